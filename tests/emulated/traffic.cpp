#include "traffic.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "machine.h"

namespace triax::simt {
namespace {

constexpr uintptr_t kSector = 32;

/// A lane's part of an access: which one, and a sector that it touches.
struct Touch {
  uint64_t access;  // place and kind
  uint32_t warp, visit;
  uintptr_t sector;
  bool store;
  auto key() const { return std::tie(access, warp, visit, sector); }
};

struct Counted {
  std::string kernel;
  Traffic traffic;
};

std::vector<Touch> touches;  // of the running block
std::vector<Counted> all;

uint64_t mixed(uint64_t a, uint64_t b) {
  a = (a ^ b) * 0x9E3779B97F4A7C15ULL;
  return a ^ a >> 29;
}

/// How often the running thread was at this place before.
uint32_t visit_of(Thread& t, uint64_t access) {
  for (auto& [place, visits] : t.visits) {
    if (place == access) return visits++;
  }
  t.visits.emplace_back(access, 1);
  return 0;
}

}  // namespace

void note_access(AccessKind kind, const void* p, size_t bytes, const std::source_location& site) {
  const auto begin = reinterpret_cast<uintptr_t>(p);
  Thread& t = *machine.running;
  uint64_t access = mixed(reinterpret_cast<uintptr_t>(site.file_name()), uint64_t{site.line()} << 32 | site.column());
  access = mixed(access, reinterpret_cast<uintptr_t>(site.function_name()));
  access = mixed(access, bytes << 1 | (kind == AccessKind::Store ? 1 : 0));
  const uint32_t visit = visit_of(t, access);
  for (uintptr_t s = begin / kSector; s <= (begin + bytes - 1) / kSector; ++s) {
    touches.push_back({access, t.linear / 32, visit, s, kind == AccessKind::Store});
  }
}

void begin_traffic_of(const char* kernel) {
  const auto at = std::find_if(all.begin(), all.end(), [&](const Counted& c) { return c.kernel == kernel; });
  if (at == all.end()) all.push_back({kernel, {}});
  ++std::find_if(all.begin(), all.end(), [&](const Counted& c) { return c.kernel == kernel; })->traffic.launches;
}

void end_traffic_of_block(const char* kernel) {
  std::sort(touches.begin(), touches.end(), [](const Touch& a, const Touch& b) { return a.key() < b.key(); });
  const auto end =
      std::unique(touches.begin(), touches.end(), [](const Touch& a, const Touch& b) { return a.key() == b.key(); });
  Traffic& traffic =
      std::find_if(all.begin(), all.end(), [&](const Counted& c) { return c.kernel == kernel; })->traffic;
  for (auto touch = touches.begin(); touch != end; ++touch) {
    (touch->store ? traffic.stored_bytes : traffic.loaded_bytes) += kSector;
  }
  touches.clear();
}

}  // namespace triax::simt

extern "C" __attribute__((visibility("default"))) size_t triax_emulated_traffic(const char** names,
                                                                                triax::simt::Traffic* traffic,
                                                                                size_t most) {
  const size_t n = std::min(most, triax::simt::all.size());
  for (size_t i = 0; i < n; ++i) {
    names[i] = triax::simt::all[i].kernel.c_str();
    traffic[i] = triax::simt::all[i].traffic;
  }
  return triax::simt::all.size();
}

extern "C" __attribute__((visibility("default"))) void triax_emulated_count_traffic(int on) {
  triax::simt::counting_traffic = on != 0;
  triax::simt::touches.clear();
  if (on != 0) triax::simt::all.clear();
}
