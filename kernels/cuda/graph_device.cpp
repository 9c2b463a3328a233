#include "kernels/cuda/graph_device.h"

#include <fmt/format.h>

#include <algorithm>

namespace triax::kernels {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;  // arguments of some 3000 operations
constexpr size_t kShortest = 2;                  // operations that are worth a graph
constexpr int64_t kLongAgo = 4;                  // x most stretches: more than most steps have
constexpr size_t kMostSeen = 4 * GraphDevice::kMostGraphs;

SpecialCalls difference(const SpecialCalls& after, const SpecialCalls& before) {
  const auto& [attention, products, epilogues] = before;
  return {after.hopper_attention - attention, after.fp8_products - products, after.gemm_epilogues - epilogues};
}

}  // namespace

/// The calls are being given while it lives; then they are given, or one of them has failed.
class GraphDevice::Giving {
 public:
  explicit Giving(GraphDevice& owner) : owner_(&owner) { owner.busy_ = true; }
  ~Giving() {
    owner_->busy_ = false;
    owner_->forget_calls();
  }
  Giving(const Giving&) = delete;
  Giving& operator=(const Giving&) = delete;

 private:
  GraphDevice* owner_;
};

GraphDevice::GraphDevice(CudaDevice& device, size_t most)
    : device_(&device), most_(most), block_(kBlockBytes), memory_(block_.data(), block_.size()) {}

void GraphDevice::begin() {
  recording_ = true;
  pass_replayed_ = true;
}

void GraphDevice::end() {
  recording_ = false;
  flush();
  ++counts_.passes;
  if (pass_replayed_) ++counts_.replayed_passes;
}

void GraphDevice::discard() noexcept {
  forget_calls();
  recording_ = false;
}

RecorderCounts GraphDevice::counts() const {
  RecorderCounts counts = counts_;
  counts.graphs = static_cast<int64_t>(graphs_.size());
  return counts;
}

void GraphDevice::forget_calls() noexcept {
  calls_.clear();
  memory_.release();
  key_ = {};
}

void GraphDevice::play_calls() {
  for (const Call& call : calls_) call.play(*device_, call.arguments);
}

void GraphDevice::play_singly() {
  play_calls();
  counts_.single_operations += static_cast<int64_t>(calls_.size());
}

void GraphDevice::give_calls() {
  const Giving giving(*this);
  ++stretch_;
  if (calls_.size() < kShortest) {
    play_singly();
  } else if (const auto made = graphs_.find(key_); made != graphs_.end()) {
    device_->count(made->second.special);
    launch(made->second);
  } else {
    if (seen_.size() >= kMostSeen) seen_.clear();
    const auto [seen, first] = seen_.try_emplace(key_, stretch_);
    Graph* const graph = first ? nullptr : make_graph(seen->second);
    if (graph != nullptr) {
      seen_.erase(key_);
      launch(*graph);
    } else {
      seen_[key_] = stretch_;
      pass_replayed_ = false;
      play_singly();
    }
  }
}

void GraphDevice::launch(Graph& graph) {
  TRIAX_CUDA(cudaGraphLaunch(graph.exec.get(), device_->stream()));
  graph.used = stretch_;
  ++counts_.launches;
  counts_.graph_operations += graph.operations;
}

bool GraphDevice::make_room(int64_t seen) {
  if (graphs_.size() < most_) return true;
  const int64_t long_ago = std::min(seen, stretch_ - kLongAgo * static_cast<int64_t>(most_));
  const auto idle = [&](const auto& entry) { return entry.second.used < long_ago; };
  // Where none is, a step has more stretches than there may be graphs: this comes for each, and must not wait.
  if (std::ranges::none_of(graphs_, idle)) return false;
  device_->synchronize();  // a graph that is given up does not run
  std::erase_if(graphs_, idle);
  return true;
}

GraphDevice::Graph* GraphDevice::make_graph(int64_t seen) {
  if (!make_room(seen)) return nullptr;
  const cudaStream_t stream = device_->stream();
  const SpecialCalls before = device_->special_calls();
  CudaGraph recorded;
  // Calls of other threads of the process (copies of checkpoints, NCCL's own) are none of this capture's.
  TRIAX_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  try {
    play_calls();
  } catch (...) {
    static_cast<void>(cudaStreamEndCapture(stream, recorded.out()));
    throw;
  }
  TRIAX_CUDA(cudaStreamEndCapture(stream, recorded.out()));
  Graph graph;
  const cudaError_t status = cudaGraphInstantiate(graph.exec.out(), recorded.get(), 0);
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    throw CudaOutOfMemory(
        fmt::format("out of GPU memory for CUDA graph {} of this rank, of {} operations: leave out "
                    "--enable-cuda-graph, or free memory by other options (triax mem)",
                    counts_.made + 1, calls_.size()));
  }
  TRIAX_CUDA(status);
  graph.operations = static_cast<int64_t>(calls_.size());
  graph.special = difference(device_->special_calls(), before);
  ++counts_.made;
  return &graphs_.emplace(key_, std::move(graph)).first->second;
}

}  // namespace triax::kernels
