#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "comm/process_grid.h"
#include "plan/rank_traces.h"

namespace triax::plan {
namespace {

using io::DeviceKernel;
using io::DeviceStream;
using parallel::Op;
using parallel::OpKind;

/// What runs inside of a compute op, in order; no name: nothing does.
struct Piece {
  std::string name;
  DeviceStream stream = DeviceStream::Compute;
  double seconds = 0;
};

class KernelList {
 public:
  KernelList(const SimulatedStep& step, int position, DType dtype)
      : step_(step), position_(position), dtype_(name_of(dtype)) {}

  std::vector<DeviceKernel> run() {
    const std::vector<Op>& ops = step_.program.positions[static_cast<size_t>(position_)];
    const std::vector<parallel::OpTime>& times = step_.simulation.times[static_cast<size_t>(position_)];
    for (size_t k = 0; k < ops.size(); ++k) {
      if (is_compute(ops[k].kind)) {
        compute(ops[k], times[k]);
      } else if (!is_send(ops[k].kind)) {
        whole(ops[k], times[k]);
      }
    }
    return std::move(kernels_);
  }

 private:
  std::string nccl(const char* what) const { return fmt::format("ncclDevKernel_{}_{}", what, dtype_); }

  void add_pass(std::vector<Piece>& pieces, const OpParts& parts, const char* pass) const {
    pieces.push_back({nccl("AllGather_weights"), DeviceStream::Data, parts.gather_s});
    pieces.push_back({fmt::format("gemm_{}", pass), DeviceStream::Compute, parts.gemm_s});
    pieces.push_back({fmt::format("attention_{}", pass), DeviceStream::Compute, parts.attention_s});
    pieces.push_back({fmt::format("elementwise_{}", pass), DeviceStream::Compute, parts.elementwise_s});
    pieces.push_back({"", DeviceStream::Compute, parts.launch_s});
    pieces.push_back({nccl("AllReduce_Sum"), DeviceStream::Tensor, parts.tensor_s});
  }

  void compute(const Op& op, const parallel::OpTime& time) {
    const StageParts& parts = step_.parts[static_cast<size_t>(position_ * step_.program.chunks + op.chunk)];
    std::vector<Piece> pieces;
    if (is_forward(op.kind)) add_pass(pieces, parts.forward, "forward");
    if (op.kind == OpKind::Recompute || is_backward_input(op.kind)) add_pass(pieces, parts.recompute, "recompute");
    if (is_backward_input(op.kind)) add_pass(pieces, parts.backward_input, "backward_input");
    if (is_backward_weight(op.kind)) add_pass(pieces, parts.backward_weight, "backward_weight");
    std::vector<double> weights;
    for (const Piece& piece : pieces) weights.push_back(piece.seconds);
    const std::vector<int64_t> shares = apportion(time.stop_ps - time.start_ps, weights);
    int64_t now = time.start_ps;
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (shares[i] > 0 && !pieces[i].name.empty()) {
        kernels_.push_back({pieces[i].name, pieces[i].stream, now, now + shares[i]});
      }
      now += shares[i];
    }
  }

  void whole(const Op& op, const parallel::OpTime& time) {
    if (time.stop_ps <= time.start_ps) return;
    const auto put = [&](const std::string& name, DeviceStream stream) {
      kernels_.push_back({name, stream, time.start_ps, time.stop_ps});
    };
    switch (op.kind) {
      case OpKind::LoadBatch:
        return put("Memcpy HtoD (Pinned -> Device)", DeviceStream::Compute);
      case OpKind::RecvActivation:
      case OpKind::RecvGradient:
        return put(nccl("SendRecv"), DeviceStream::Pipeline);
      case OpKind::GatherActivation:
      case OpKind::GatherGradient:
        return put(nccl("AllGather"), DeviceStream::Tensor);
      case OpKind::SumTensorPartial:
        return put("ncclDevKernel_AllReduce_Sum_fp32", DeviceStream::Tensor);
      case OpKind::SumTied:
        return put("ncclDevKernel_AllReduce_Sum_fp32", DeviceStream::Pipeline);
      case OpKind::ReduceGradients:
        return put("ncclDevKernel_Reduce_Sum_fp32", DeviceStream::Data);
      case OpKind::GatherParameters:
        return put(nccl("AllGather"), DeviceStream::Data);
      case OpKind::GradientNorm:
        return put("ncclDevKernel_AllReduce_Sum_fp32", DeviceStream::Tensor);
      default:
        return put("optimizer_step", DeviceStream::Compute);
    }
  }

  const SimulatedStep& step_;
  int position_;
  std::string dtype_;
  std::vector<DeviceKernel> kernels_;
};

}  // namespace

std::vector<DeviceKernel> kernels_of(const SimulatedStep& step, int position, DType dtype) {
  return KernelList(step, position, dtype).run();
}

int write_hta(const Prediction& prediction, const io::RunOptions& options, int devices_per_node, int replica,
              const std::string& directory) {
  std::filesystem::create_directories(directory);
  const comm::GridShape& grid = options.parallel.grid;
  int files = 0;
  for (int position = 0; position < grid.pipeline; ++position) {
    io::RankTrace trace;
    trace.world_size = grid.world();
    trace.step_ps = prediction.step_ps;
    trace.kernels = kernels_of(*prediction.simulated, position, prediction.peak_dtype);
    comm::GridCoord coord;
    coord.pipeline = position;
    const bool all = grid.world() <= kMostHtaRanks;
    for (coord.data = all ? 0 : replica; coord.data < (all ? grid.data : replica + 1); ++coord.data) {
      for (coord.tensor = 0; coord.tensor < (all ? grid.tensor : 1); ++coord.tensor) {
        trace.rank = comm::rank_of(grid, coord);
        trace.device = trace.rank % devices_per_node;
        io::write_gzip_file(fmt::format("{}/rank-{}.json.gz", directory, trace.rank), io::hta_json(trace));
        ++files;
      }
    }
  }
  return files;
}

}  // namespace triax::plan
