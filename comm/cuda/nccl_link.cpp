#include "comm/cuda/nccl_link.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "comm/cuda/nccl_check.h"

namespace triax::comm {
namespace {

constexpr int kNarrowBlocks = 4;
constexpr auto kPoll = std::chrono::microseconds(100);

double seconds_between(const kernels::CudaEvent& from, const kernels::CudaEvent& to) {
  float ms = 0;
  TRIAX_CUDA(cudaEventElapsedTime(&ms, from.get(), to.get()));
  return 1e-3 * static_cast<double>(ms);
}

}  // namespace

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return ncclFloat64;
    case DType::Float32:
      return ncclFloat32;
    case DType::Float16:
      return ncclFloat16;
    case DType::BFloat16:
      return ncclBfloat16;
    case DType::Int8:
      return ncclInt8;
    case DType::Int32:
      return ncclInt32;
    case DType::Int64:
      return ncclInt64;
    default:
      return ncclUint8;
  }
}

ncclRedOp_t nccl_op(ReduceOp op) {
  if (op == ReduceOp::Sum) return ncclSum;
  return op == ReduceOp::Max ? ncclMax : ncclMin;
}

/// What the caller of an operation holds.
class NcclLink::Pending final : public Work::State {
 public:
  Pending(NcclLink& owner, Slot& slot) : owner_(&owner), slot_(&slot) {}
  void wait() override {
    const cudaStream_t compute = owner_->device_->stream();
    TRIAX_CUDA(cudaEventRecord(slot_->stand.get(), compute));
    TRIAX_CUDA(cudaStreamWaitEvent(compute, slot_->done.get(), 0));
    TRIAX_CUDA(cudaEventRecord(slot_->go.get(), compute));
    slot_->waited = true;
  }
  /// Never before wait(), which orders the compute stream.
  bool test() override { return false; }

 private:
  NcclLink* owner_;
  Slot* slot_;
};

NcclLink::NcclLink(kernels::CudaDevice& device, DeviceGroup group, const DeviceGroups::Id& id, int ranks, int rank,
                   Width width)
    : device_(&device), group_(std::move(group)) {
  static_assert(sizeof(ncclUniqueId) == sizeof(DeviceGroups::Id));
  int least = 0, greatest = 0;
  TRIAX_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  TRIAX_CUDA(cudaStreamCreateWithPriority(stream_.out(), cudaStreamNonBlocking, greatest));
  ncclUniqueId name;
  std::memcpy(&name, id.data(), sizeof name);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (width == Width::Narrow) config.maxCTAs = kNarrowBlocks;
  const ncclResult_t status = ncclCommInitRankConfig(&comm_, ranks, name, rank, &config);
  if (status != ncclInProgress) TRIAX_NCCL(status);
  wait_until_ready("making the communicator");
}

NcclLink::~NcclLink() {
  if (comm_ == nullptr) return;
  if (std::uncaught_exceptions() > 0) {
    abort();
    return;
  }
  // Only what has been waited for is left; the stream is empty once the device is.
  ncclResult_t status = ncclCommFinalize(comm_);
  const Stopwatch watch;
  while (status == ncclSuccess || status == ncclInProgress) {
    ncclResult_t state = ncclSuccess;
    status = ncclCommGetAsyncError(comm_, &state);
    if (status != ncclSuccess || state != ncclInProgress || watch.elapsed_s() > group_.timeout_s) break;
    std::this_thread::sleep_for(kPoll);
  }
  static_cast<void>(ncclCommDestroy(comm_));
}

void NcclLink::abort() noexcept {
  if (comm_ != nullptr) static_cast<void>(ncclCommAbort(std::exchange(comm_, nullptr)));
}

void NcclLink::wait_until_ready(const char* what) {
  const Stopwatch watch;
  while (true) {
    ncclResult_t state = ncclSuccess;
    TRIAX_NCCL(ncclCommGetAsyncError(comm_, &state));
    if (state != ncclInProgress) return TRIAX_NCCL(state);
    if (watch.elapsed_s() > group_.timeout_s) {
      throw PeerLost(
          fmt::format("peer lost: {} of group {} waited {:.1f} s on {}; no answer from a member of world "
                      "ranks {}",
                      what, group_.name, watch.elapsed_s(), group_.hosts[static_cast<size_t>(group_.rank)],
                      fmt::join(group_.world_ranks, " ")));
    }
    std::this_thread::sleep_for(kPoll);
  }
}

void NcclLink::started(ncclResult_t status, Operation op) {
  if (status == ncclInProgress) return wait_until_ready(name_of(op));
  TRIAX_NCCL(status);
}

NcclLink::Slot& NcclLink::begin(Operation op) {
  collect();
  if (idle_.empty()) {
    Slot& fresh = slots_.emplace_back();
    for (kernels::CudaEvent* event : {&fresh.ready, &fresh.begin, &fresh.done, &fresh.stand, &fresh.go}) {
      TRIAX_CUDA(cudaEventCreateWithFlags(event->out(), cudaEventDefault));
    }
    idle_.reserve(slots_.size());
    idle_.push_back(&fresh);
  }
  Slot& slot = *idle_.back();
  idle_.pop_back();
  slot.op = op;
  slot.sequence = ++sequence_;
  slot.waited = false;
  TRIAX_CUDA(cudaEventRecord(slot.ready.get(), device_->stream()));
  TRIAX_CUDA(cudaStreamWaitEvent(stream_.get(), slot.ready.get(), 0));
  TRIAX_CUDA(cudaEventRecord(slot.begin.get(), stream_.get()));
  return slot;
}

Work NcclLink::end(Slot& slot) {
  TRIAX_CUDA(cudaEventRecord(slot.done.get(), stream_.get()));
  in_flight_.push_back(&slot);
  return Work(std::make_unique<Pending>(*this, slot));
}

/// Takes back what has been waited for and is done, with its seconds.
void NcclLink::collect() {
  while (!in_flight_.empty() && in_flight_.front()->waited) {
    Slot& slot = *in_flight_.front();
    const cudaError_t status = cudaEventQuery(slot.go.get());
    if (status == cudaErrorNotReady) return;
    TRIAX_CUDA(status);
    group_.ledger->record_busy(group_.name, slot.op, seconds_between(slot.begin, slot.done));
    group_.ledger->record_exposed(group_.name, slot.op, seconds_between(slot.stand, slot.go));
    in_flight_.pop_front();
    idle_.push_back(&slot);
  }
}

void NcclLink::check_error() {
  if (comm_ == nullptr) return;
  ncclResult_t state = ncclSuccess;
  TRIAX_NCCL(ncclCommGetAsyncError(comm_, &state));
  if (state != ncclInProgress) TRIAX_NCCL(state);
}

std::string NcclLink::stuck() {
  for (const Slot* slot : in_flight_) {
    cudaError_t status = cudaEventQuery(slot->begin.get());
    if (status != cudaSuccess) continue;
    status = cudaEventQuery(slot->done.get());
    if (status != cudaErrorNotReady) continue;
    return fmt::format("{} #{} of group {}", name_of(slot->op), slot->sequence, group_.name);
  }
  return {};
}

}  // namespace triax::comm
