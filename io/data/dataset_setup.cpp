#include "io/data/dataset_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <functional>
#include <future>

#include "base/error.h"

namespace triax::io {

namespace {

/// What the ranks tell each other: all-reduced by maximum.
struct Status {
  int32_t busy = 0;
  int32_t failed_rank = -1;
};

Status largest(Status mine, comm::Communicator& world) {
  std::array<int32_t, 2> words{mine.busy, mine.failed_rank};
  world.all_reduce(Tensor(words.data(), DType::Int32, {2}), comm::ReduceOp::Max).wait();
  return {words[0], words[1]};
}

// Runs `work` on the ranks that have some, while all wait for each other.
void together(comm::Communicator& world, const std::function<void()>& work) {
  std::future<void> running;
  if (work) running = std::async(std::launch::async, work);
  std::exception_ptr error;
  Status mine{running.valid() ? 1 : 0, -1};
  auto pause = std::chrono::milliseconds(1);
  for (;;) {
    if (mine.busy != 0 && running.wait_for(pause) == std::future_status::ready) {
      mine.busy = 0;
      try {
        running.get();
      } catch (...) {
        error = std::current_exception();
        mine.failed_rank = world.rank();
      }
    }
    const Status all = largest(mine, world);
    if (all.busy == 0) {
      if (error) std::rethrow_exception(error);
      if (all.failed_rank >= 0) {
        throw RunTimeError(fmt::format("rank {} could not prepare the data; its message says why", all.failed_rank));
      }
      return;
    }
    pause = std::min(2 * pause, std::chrono::milliseconds(1000));
  }
}

}  // namespace

Datasets set_up_datasets(const DatasetRequest& request, comm::Communicator& world, NodeRole role) {
  const auto prepare = [&request] { prepare_datasets(request); };
  const std::function<void()> nothing;
  together(world, world.rank() == 0 ? std::function<void()>(prepare) : nothing);
  together(world, world.rank() != 0 && role == NodeRole::Leader ? std::function<void()>(prepare) : nothing);
  Datasets datasets;
  together(world, [&request, &datasets] { datasets = open_datasets(request); });
  return datasets;
}

}  // namespace triax::io
