// Marks a thread as working for the emulation, not for the product: what it allocates meanwhile a real GPU would not have
// allocated, and tests do not count it.
#pragma once

namespace triax::simt {

inline thread_local int apart_depth = 0;

struct Apart {
  Apart() { ++apart_depth; }
  ~Apart() { --apart_depth; }
  Apart(const Apart&) = delete;
  Apart& operator=(const Apart&) = delete;
};

}  // namespace triax::simt
