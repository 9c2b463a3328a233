// The timed choice of an algorithm: each of the heuristic's first eight runs once to warm up and five times between
// events, on the product's own operands; the one with the shortest time is taken. The product's output is written again
// and again meanwhile; what it accumulates into is kept on the host and put back. No memory of the GPU is taken for it.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "kernels/cuda/check.h"
#include "kernels/cuda/gemm_plans.h"
#include "kernels/cuda/resources.h"

namespace triax::kernels {
namespace {

constexpr int kCandidates = 8, kRounds = 5;

/// The elements of a matrix, kept on the host.
class SavedMatrix {
 public:
  SavedMatrix(const Tensor& matrix, cudaStream_t stream)
      : matrix_(matrix),
        stream_(stream),
        width_(static_cast<size_t>(matrix.cols()) * size_of(matrix.dtype())),
        pitch_(static_cast<size_t>(matrix.row_stride()) * size_of(matrix.dtype())),
        bytes_(width_ * static_cast<size_t>(matrix.rows())) {
    copy(bytes_.data(), width_, matrix.data(), pitch_, cudaMemcpyDeviceToHost);
  }
  void put_back() { copy(matrix_.data(), pitch_, bytes_.data(), width_, cudaMemcpyHostToDevice); }

 private:
  void copy(void* to, size_t to_pitch, const void* from, size_t from_pitch, cudaMemcpyKind kind) {
    TRIAX_CUDA(
        cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width_, static_cast<size_t>(matrix_.rows()), kind, stream_));
    TRIAX_CUDA(cudaStreamSynchronize(stream_));
  }
  Tensor matrix_;
  cudaStream_t stream_;
  size_t width_, pitch_;
  std::vector<char> bytes_;
};

}  // namespace

std::string GemmPlans::name_of(const Key& key, const Gemm& g, const Epilogue& epilogue) {
  const auto letter = [](Transpose t) { return t == Transpose::Yes ? 'T' : 'N'; };
  const auto alignment = [&key](int place) { return key[8] >> place & 0xff; };
  return fmt::format("{} {} {}, {} x {} x {}, {}{}, strides {} {} {} {}, {} epilogue{}, aligned {} {} {} {} {}",
                     triax::name_of(g.a.dtype()), triax::name_of(g.b.dtype()), triax::name_of(g.c.dtype()), key[0],
                     key[1], key[2], letter(g.transpose_a), letter(g.transpose_b), key[3], key[4], key[5], key[6],
                     kernels::name_of(epilogue.kind), epilogue.vector ? " with a vector" : "", alignment(0),
                     alignment(8), alignment(16), alignment(24), alignment(32));
}

std::unique_ptr<GemmPlans::Plan> GemmPlans::choose(const Key& key, const Gemm& g, const Epilogue& epilogue,
                                                   cudaStream_t stream) {
  auto plan = make_plan(g, epilogue);
  const std::string product = choices_ ? name_of(key, g, epilogue) : std::string();
  const GemmChoice* choice = choices_ ? choices_->find(product) : nullptr;
  if (choice == nullptr) {
    const bool times = choices_ && choices_->measures();
    const auto among = candidates(*plan, g, times ? kCandidates : 1);
    if (among.empty()) return plan;
    if (!times) {
      plan->take(among[0].algo, among[0].workspaceSize);
      return plan;
    }
    // Whatever may wait for another rank, memory of the GPU included, comes before the file is held.
    const Buffer scratch = workspace_.allocate(kWorkspaceBytes, MemoryCategory::Workspace);
    settings_.synchronize();
    std::optional<SavedMatrix> saved;
    if (g.accumulate == Accumulate::Yes) saved.emplace(g.c, stream);
    choice = &choices_->find_or_measure(product, [&] { return measure(*plan, among, g, scratch, stream); });
    if (saved) saved->put_back();
  }
  plan->take(choice->algorithm, choice->workspace_bytes);
  check(*plan, product);
  return plan;
}

GemmChoice GemmPlans::measure(Plan& plan, const std::vector<cublasLtMatmulHeuristicResult_t>& among, const Gemm& g,
                              const Buffer& scratch, cudaStream_t stream) {
  CudaEvent begin, end;
  TRIAX_CUDA(cudaEventCreateWithFlags(begin.out(), cudaEventDefault));
  TRIAX_CUDA(cudaEventCreateWithFlags(end.out(), cudaEventDefault));
  GemmChoice best;
  best.time_us = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < among.size(); ++i) {
    plan.take(among[i].algo, among[i].workspaceSize);
    // The heuristic may name what then refuses to run.
    if (launch(plan, g, scratch, stream) != CUBLAS_STATUS_SUCCESS) continue;
    double shortest = std::numeric_limits<double>::infinity();
    for (int round = 0; round < kRounds; ++round) {
      float ms = 0;
      TRIAX_CUDA(cudaEventRecord(begin.get(), stream));
      TRIAX_CUBLASLT(launch(plan, g, scratch, stream));
      TRIAX_CUDA(cudaEventRecord(end.get(), stream));
      TRIAX_CUDA(cudaEventSynchronize(end.get()));
      TRIAX_CUDA(cudaEventElapsedTime(&ms, begin.get(), end.get()));
      shortest = std::min(shortest, 1e3 * static_cast<double>(ms));
    }
    if (i == 0) best.first_us = shortest;
    if (shortest < best.time_us) {
      best.time_us = shortest;
      best.algorithm = among[i].algo;
      best.workspace_bytes = among[i].workspaceSize;
    }
  }
  if (best.time_us == std::numeric_limits<double>::infinity()) {
    throw RunTimeError("--gemm-tuning measure: none of the algorithms that cuBLASLt names for a product of " +
                       g.a.describe() + " and " + g.b.describe() + " runs; use --gemm-tuning off");
  }
  ++timed_;
  return best;
}

void GemmPlans::check(const Plan& plan, const std::string& product) const {
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle_.get(), plan.matmul.get(), plan.a.get(), plan.b.get(),
                                                        plan.c.get(), plan.c.get(), &plan.algorithm, &result);
  if (status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= plan.workspace_bytes) return;
  throw ConfigError(
      fmt::format("--gemm-cache {}: cuBLASLt cannot use the algorithm for \"{}\" ({}); remove the file to "
                  "have products timed again",
                  choices_->path(), product, cublasLtGetStatusString(status)));
}

}  // namespace triax::kernels
