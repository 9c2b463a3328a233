// A steady training step takes no memory from the heap: every operator new of this process is counted while steps run;
// on an emulated GPU, but for the emulation's own, together with the calls that take memory of the GPU or pinned
// memory.
#include <gtest/gtest.h>
#include <mpi.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

#include "kernels/cuda_loader.h"
#include "tests/emulated/recorded.h"
#include "tests/mpi/mpi_world.h"
#include "tests/mpi/train_harness.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0};
int* (*apart)() = nullptr;  // above 0: this thread works for the emulated GPU

void* counted_allocation(std::size_t bytes, std::size_t alignment) {
  if (counting.load(std::memory_order_relaxed) && (apart == nullptr || *apart() == 0)) ++allocations;
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

// Not inlined: a compiler that sees one of a pair and not the other warns of a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) { return counted_allocation(bytes, alignof(std::max_align_t)); }
[[gnu::noinline]] void* operator new[](std::size_t bytes) {
  return counted_allocation(bytes, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted_allocation(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace triax::test {
namespace {

/// The least of several: a pool may still grow once, when more messages than before are under way by chance.
int64_t allocations_of_a_step(const io::RunOptions& options) {
  TinyRun run(session(), options);
  for (int i = 0; i < 4; ++i) run.step();
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < 3; ++i) {
    const auto batches = run.next_batches();
    allocations = 0;
    counting = true;
    run.trainer().train_step({batches, 0, {}});
    counting = false;
    least = std::min(least, allocations.load());
  }
  return least;
}

// The counter sees what is allocated.
TEST(Allocations, are_counted) {
  allocations = 0;
  counting = true;
  auto* value = new volatile int(3);
  counting = false;
  delete value;
  EXPECT_EQ(allocations, 1);
}

template <class T>
T of_module(const char* symbol) {
  return reinterpret_cast<T>(kernels::cuda_module_symbol(kernels::CudaModule::Emulated, symbol));
}

TEST(Allocations, a_steady_step_on_a_gpu_makes_none) {
  if (session().size() != 2) return;
  auto& taken = *of_module<emulated::MemoryCounts* (*)()>("triax_emulated_memory")();
  apart = of_module<int* (*)()>("triax_emulated_apart");
  struct Case {
    int tp, pp, zero_stage;
  };
  for (const Case& c : {Case{2, 1, 0}, Case{1, 2, 0}, Case{1, 1, 0}, Case{1, 1, 3}}) {
    io::RunOptions options = tiny_options({.tp = c.tp, .pp = c.pp, .dp = 2 / (c.tp * c.pp)});
    options.control.precision = io::Precision::Bf16;
    options.control.device = "cuda-emulated";
    options.parallel.zero_stage = c.zero_stage;
    options.parallel.zero_persistence_threshold = 0;
    TinyRun run(session(), options);
    for (int i = 0; i < 3; ++i) run.step();
    const emulated::MemoryCounts before = taken;
    // Until a step makes none on any rank: a pool may still grow once, when more is under way than before by chance.
    int64_t made = 1;
    for (int i = 0; i < 6 && made > 0; ++i) {
      const auto batches = run.next_batches();
      allocations = 0;
      counting = true;
      run.trainer().train_step({batches, 0, {}});
      counting = false;
      made = allocations;
      MPI_Allreduce(MPI_IN_PLACE, &made, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    }
    SCOPED_TRACE(::testing::Message() << "tp " << c.tp << " pp " << c.pp << " stage " << c.zero_stage);
    EXPECT_EQ(made, 0);
    EXPECT_GT(before.device, 0);
    EXPECT_EQ(taken.device, before.device);
    EXPECT_EQ(taken.pinned, before.pinned);
  }
  apart = nullptr;
}

struct Steady {
  int tp = 1, pp = 1;
  parallel::ScheduleKind schedule = parallel::ScheduleKind::OneFOneB;
};

TEST(Allocations, a_steady_step_makes_none) {
  using enum parallel::ScheduleKind;
  for (const Steady& layout : {Steady{}, {1, 2}, {2, 1}, {1, 2, ZeroBubbleV}, {1, 2, Interleaved}}) {
    const int dp = session().size() / (layout.tp * layout.pp);
    if (dp < 2) continue;
    for (const int stage : {0, 1, 2, 3}) {
      for (const bool overlap : {true, false}) {
        io::RunOptions options = tiny_options({.tp = layout.tp, .pp = layout.pp, .dp = dp});
        if (layout.schedule != OneFOneB) options.parallel.chunks = 2;
        options.parallel.schedule = layout.schedule;
        options.parallel.zero_stage = stage;
        options.parallel.zero_persistence_threshold = 0;
        options.parallel.overlap_grad_reduce = options.parallel.overlap_param_gather = overlap;
        EXPECT_EQ(allocations_of_a_step(options), 0)
            << "tp " << layout.tp << " pp " << layout.pp << " " << parallel::name_of(layout.schedule) << " stage "
            << stage << " overlap " << overlap;
      }
    }
  }
}

}  // namespace
}  // namespace triax::test
