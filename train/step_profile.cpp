#include "train/step_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "io/report/run_directory.h"
#include "io/trace/chrome_trace.h"
#include "io/trace/hta.h"
#include "parallel/program_print.h"

namespace triax::train {
namespace {

using io::DeviceStream;
using parallel::Op;
using parallel::OpKind;

struct Kernel {
  const char* operation;  ///< as NCCL's kernels are called; null: the op computes
  DeviceStream stream;
};

/// What an op appears as: communication by the name under which the tools know it.
Kernel kernel_of(OpKind kind) {
  switch (kind) {
    case OpKind::SendActivation:
    case OpKind::RecvActivation:
    case OpKind::SendGradient:
    case OpKind::RecvGradient:
      return {"SendRecv", DeviceStream::Pipeline};
    case OpKind::SumTied:
      return {"AllReduce", DeviceStream::Pipeline};
    case OpKind::SumTensorPartial:
      return {"AllReduce", DeviceStream::Tensor};
    case OpKind::GatherActivation:
    case OpKind::GatherGradient:
      return {"AllGather", DeviceStream::Tensor};
    case OpKind::ReduceGradients:
      return {"Reduce", DeviceStream::Data};
    case OpKind::GatherParameters:
      return {"AllGather", DeviceStream::Data};
    default:
      return {nullptr, DeviceStream::Compute};
  }
}

io::RankTrace trace_of(const parallel::Program& program, int position, const OpTimes& times) {
  io::RankTrace trace;
  int64_t first = std::numeric_limits<int64_t>::max(), last = 0;
  for (const auto& own : times) {
    for (const parallel::OpTime& time : own) {
      first = std::min(first, time.start_ps);
      last = std::max(last, time.stop_ps);
    }
  }
  trace.step_ps = last - first;
  const auto& ops = program.positions[static_cast<size_t>(position)];
  for (size_t k = 0; k < ops.size(); ++k) {
    const parallel::OpTime& time = times[static_cast<size_t>(position)][k];
    if (time.stop_ps <= time.start_ps) continue;
    const Kernel kernel = kernel_of(ops[k].kind);
    std::string name = parallel::text_of(program.layers, position, ops[k]);
    if (kernel.operation != nullptr) name = fmt::format("ncclDevKernel_{} {}", kernel.operation, name);
    if (ops[k].kind == OpKind::LoadBatch) name = "Memcpy HtoD " + name;
    trace.kernels.push_back({name, kernel.stream, time.start_ps - first, time.stop_ps - first});
  }
  return trace;
}

}  // namespace

StepProfile::StepProfile(const io::RunOptions& options, std::string directory, Trainer& trainer,
                         kernels::Device& device, int world_rank, int local_rank)
    : options_(&options),
      directory_(std::move(directory) + "/trace/profile"),
      trainer_(&trainer),
      device_(&device),
      world_rank_(world_rank),
      local_rank_(local_rank) {
  const auto& ranks = options.control.profile_ranks;
  mine_ = std::find(ranks.begin(), ranks.end(), std::to_string(world_rank)) != ranks.end();
}

StepProfile::~StepProfile() {
  try {
    if (captures_) device_->stop_capture();
  } catch (const std::exception&) {  // the device is lost, and says so elsewhere
  }
}

void StepProfile::before_step() {
  const io::RunControl& control = options_->control;
  if (!control.profile || !mine_ || trainer_->progress().iteration != control.profile_step_start) return;
  can_capture_ = captures_ = device_->start_capture();
}

std::string StepProfile::after_step() {
  const io::RunControl& control = options_->control;
  const int64_t step = trainer_->progress().iteration;
  if (!control.profile || step <= control.profile_step_start || step > control.profile_step_end) return "";
  if (first_ == 0) first_ = step;
  last_ = step;
  const bool end = step == control.profile_step_end;
  if (end && captures_) {
    device_->stop_capture();
    captures_ = false;
  }
  write(step);
  if (!end) return "";
  return fmt::format(
      "profiled steps {} to {}: {}/step-*.json, and step-*/rank-*.json.gz for Holistic Trace Analysis; {}", first_,
      last_, directory_,
      can_capture_ ? "a capture by cudaProfilerApi was open meanwhile (nsys profile -c cudaProfilerApi)"
                   : "no capture by Nsight: that is for GPUs (and steps from --profile-step-start on)");
}

void StepProfile::write(int64_t step) {
  const OpTimes times = trainer_->op_times();
  if (!mine_ && world_rank_ != 0) return;
  const std::string folder = fmt::format("{}/step-{}", directory_, step);
  std::filesystem::create_directories(folder);
  if (world_rank_ == 0) {
    const bool is_virtual = trainer_->virtual_unit_ps() > 0;
    io::write_text_file(folder + ".json", io::chrome_trace(io::make_timeline(trainer_->program(), times,
                                                                             is_virtual ? "virtual" : "measured")));
  }
  if (!mine_) return;
  io::RankTrace trace = trace_of(trainer_->program(), trainer_->position(), times);
  trace.rank = world_rank_;
  trace.world_size = options_->parallel.grid.world();
  trace.device = local_rank_;
  io::write_gzip_file(fmt::format("{}/rank-{}.json.gz", folder, world_rank_), io::hta_json(trace));
}

}  // namespace triax::train
