#include <simt.h>

#include <algorithm>
#include <utility>

#include "machine.h"

// Where static shared memory lies (shared_memory.ld). Between the variables are guards of AddressSanitizer, over which
// it must not stumble.
extern "C" {
extern volatile uint64_t __start_triax_shared[] __attribute__((weak, visibility("hidden")));
extern volatile uint64_t __stop_triax_shared[] __attribute__((weak, visibility("hidden")));
}
#if defined(__SANITIZE_ADDRESS__)
#define TRIAX_UNSANITIZED __attribute__((no_sanitize("address", "undefined")))
#else
#define TRIAX_UNSANITIZED
#endif

namespace triax::simt {
namespace {

void perform(Copy& c) {
  if (c.done) return;
  c.done = true;
  if (c.from == nullptr) {
    std::memset(c.to, 0, c.bytes);
  } else {
    std::memcpy(c.to, c.from, c.bytes);
  }
}

/// The kernels' static shared memory becomes NaN: it is unwritten when a launch begins.
TRIAX_UNSANITIZED void forget_static_shared() {
  for (volatile uint64_t* word = __start_triax_shared; word != __stop_triax_shared; ++word) *word = ~uint64_t{0};
}

}  // namespace

void wait_as(State state, unsigned mask, const char* file, int line) {
  Thread& t = *machine.running;
  t.state = state;
  t.mask = mask;
  t.file = file;
  t.line = line;
  Worker& w = *machine.worker;
  w.stack.leave_for(machine.stack_lowest, machine.stack_bytes);
  w.scheduler = std::move(w.scheduler).resume();
  w.stack.arrive_from(&machine.stack_lowest, &machine.stack_bytes);
  if (machine.abandoned) throw Abandoned{};
}

unsigned emulated_capability() {
  const char* const text = std::getenv("TRIAX_EMULATED_COMPUTE_CAPABILITY");
  if (text == nullptr) return 86;
  const double value = std::atof(text);
  return static_cast<unsigned>(value * 10 + 0.5);
}
size_t emulated_shared_limit() {
  const unsigned capability = emulated_capability(), family = capability / 10;
  const size_t kib = family == 9 || family == 10 ? 227 : capability == 80 ? 163 : 99;
  return kib * 1024;
}

void fail_misaligned(size_t bytes, const std::source_location& site) {
  throw KernelFault("an access of " + std::to_string(bytes) +
                    " bytes to global memory is not aligned: " + site.file_name() + ":" + std::to_string(site.line()));
}

void find_range(const void* p, size_t bytes, const std::source_location& site) {
  if (recent_generation != memory_generation) {
    recent_ranges = {};
    recent_generation = memory_generation;
  }
  GlobalRange range;
  if (!find_global(p, bytes, range)) {
    throw KernelFault("an access of " + std::to_string(bytes) + " bytes outside of device memory: " + site.file_name() +
                      ":" + std::to_string(site.line()));
  }
  std::rotate(recent_ranges.begin(), recent_ranges.end() - 1, recent_ranges.end());
  recent_ranges[0] = range;
}

Counters& counters() {
  static Counters all;
  return all;
}

void run_grid(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& thread) {
  const uint64_t size = uint64_t{block.x} * block.y * block.z;
  if (size == 0 || size > 1024 || grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535 ||
      shared_bytes > emulated_shared_limit()) {
    throw KernelFault(std::string("kernel ") + kernel + ": invalid launch: grid (" + std::to_string(grid.x) + ", " +
                      std::to_string(grid.y) + ", " + std::to_string(grid.z) + "), " + std::to_string(size) +
                      " threads, " + std::to_string(shared_bytes) + " bytes of shared memory");
  }
  ++counters().launches;
  if (counting_traffic) begin_traffic_of(kernel);
  forget_static_shared();
  machine.grid = grid;
  machine.block = block;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        machine.block_index = dim3(x, y, z);
        machine.run_block(kernel, thread, shared_bytes);
        if (counting_traffic) end_traffic_of_block(kernel);
      }
    }
  }
}

const dim3& thread_index() { return machine.running->index; }
const dim3& block_index() { return machine.block_index; }
const dim3& block_size() { return machine.block; }
const dim3& grid_size() { return machine.grid; }
unsigned char* dynamic_shared() { return reinterpret_cast<unsigned char*>(machine.shared.data()); }
unsigned lane() { return machine.running->linear % 32; }

void block_barrier(const char* file, int line) { wait_as(State::AtBarrier, 0, file, line); }

const unsigned char* share(unsigned mask, const void* value, size_t bytes, const char* file, int line) {
  const unsigned mine = machine.running->linear;
  Warp& warp = machine.warps[mine / 32];
  const int parity = warp.parity;
  if (bytes > 0) std::memcpy(warp.slots[parity][mine % 32], value, bytes);
  wait_as(State::AtWarp, mask, file, line);
  return machine.warps[mine / 32].slots[parity][0];
}

void copy_later(void* to, const void* from, size_t bytes) {
  machine.running->open.push_back({to, from, bytes, false});
  // The hardware may copy at any moment from here to the wait: now or then, by chance.
  if (machine.by_chance()) perform(machine.running->open.back());
}

void close_copies() {
  Thread& t = *machine.running;
  t.groups.push_back(std::move(t.open));
  t.open.clear();
}

void finish_copies(size_t groups_left) {
  Thread& t = *machine.running;
  for (; t.groups.size() > groups_left; t.groups.erase(t.groups.begin())) {
    for (Copy& c : t.groups.front()) perform(c);
  }
}

}  // namespace triax::simt
