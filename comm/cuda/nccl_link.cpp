#include "comm/cuda/nccl_link.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "comm/cuda/nccl_check.h"

namespace triax::comm {
namespace {

constexpr int kNarrowBlocks = 4;
constexpr auto kPoll = std::chrono::microseconds(100);
constexpr double kSpin_s = 2e-3;     // a wait for NCCL begins with looking again and again
constexpr size_t kMostKept = 65536;  // operations between two calls of meet()
constexpr int kMeetTag = 1;

double seconds_between(const kernels::CudaEvent& from, const kernels::CudaEvent& to) {
  float ms = 0;
  TRIAX_CUDA(cudaEventElapsedTime(&ms, from.get(), to.get()));
  return 1e-3 * static_cast<double>(ms);
}

/// Between two looks. NCCL starts an operation in a thread of its own, within some 20 us: a sleep would be longer.
void pause(double waited_s) {
  if (waited_s < kSpin_s) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(kPoll);
  }
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
    case DType::UInt8:
      return ncclUint8;
    default:
      break;
  }
  ensure(false, fmt::format("NCCL moves no {}", name_of(dtype)));
  return ncclUint8;
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

NcclLink::NcclLink(kernels::CudaDevice& device, DeviceGroup group, const DeviceGroups::Id& id, const Members& members)
    : device_(&device), group_(std::move(group)), members_(members) {
  static_assert(sizeof(ncclUniqueId) == sizeof(DeviceGroups::Id));
  int least = 0, greatest = 0;
  TRIAX_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  TRIAX_CUDA(cudaStreamCreateWithPriority(stream_.out(), cudaStreamNonBlocking, greatest));
  ncclUniqueId name;
  std::memcpy(&name, id.data(), sizeof name);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (members.other) config.maxCTAs = kNarrowBlocks;
  try {
    const ncclResult_t status = ncclCommInitRankConfig(&comm_, members.ranks, name, members.rank, &config);
    if (status != ncclInProgress) TRIAX_NCCL(status);
    wait_until_ready({});
    meet_members();
  } catch (...) {
    abort();
    throw;
  }
}

/// NCCL connects ranks at their first message or sum, in which each waits on the host until the others come to theirs.
/// So that is done here, where all are: a receive that is posted ahead would wait for a sender that waits for us.
void NcclLink::meet_members() {
  constexpr size_t kBytes = sizeof(float);
  kernels::CudaProvider memory;
  void* const token = memory.allocate(kBytes);
  const cudaStream_t stream = stream_.get();
  TRIAX_CUDA(cudaMemsetAsync(token, 0, kBytes, stream));
  ncclResult_t status = ncclSuccess;
  if (!members_.other) {
    status = ncclAllReduce(token, token, 1, ncclFloat32, ncclSum, comm_, stream);
  } else if (members_.rank == 0) {
    status = ncclSend(token, kBytes, ncclUint8, 1, comm_, stream);
  } else {
    status = ncclRecv(token, kBytes, ncclUint8, 0, comm_, stream);
  }
  started(status, {});
  RunningTime waited;
  while (!TRIAX_CUDA_DONE(cudaStreamQuery(stream))) {
    check_error();
    if (waited.elapsed_s() > group_.info.timeout_s) throw_lost({}, waited.elapsed_s());
    pause(waited.elapsed_s());
  }
  memory.deallocate(token, kBytes);
}

NcclLink::~NcclLink() {
  device_->gives_up().before_free();
  if (at_end_) at_end_();
  if (comm_ == nullptr) return;
  // Only what has been waited for is left; the stream is empty once the device is.
  ncclResult_t status = ncclCommFinalize(comm_);
  ncclResult_t state = status == ncclSuccess ? ncclInProgress : status;
  RunningTime waited;
  while (state == ncclInProgress && waited.elapsed_s() < group_.info.timeout_s) {
    pause(waited.elapsed_s());
    status = ncclCommGetAsyncError(comm_, &state);
    if (status != ncclSuccess) state = status;
  }
  // A communicator that is not finalized waits for its peers in its destruction.
  if (state != ncclSuccess) {
    abort();
  } else {
    static_cast<void>(ncclCommDestroy(comm_));
  }
}

void NcclLink::abort() noexcept {
  if (comm_ != nullptr) static_cast<void>(ncclCommAbort(std::exchange(comm_, nullptr)));
}

void NcclLink::throw_lost(std::optional<Operation> op, double waited_s) const {
  if (op) throw_peer_lost(group_.info, *op, sequence_, waited_s, {});
  throw_peer_lost(group_.info, "making the communicator", waited_s, {});
}

void NcclLink::wait_until_ready(std::optional<Operation> op) {
  RunningTime waited;
  while (true) {
    ncclResult_t state = ncclSuccess;
    TRIAX_NCCL(ncclCommGetAsyncError(comm_, &state));
    if (state != ncclInProgress) return TRIAX_NCCL(state);
    if (waited.elapsed_s() > group_.info.timeout_s) throw_lost(op, waited.elapsed_s());
    pause(waited.elapsed_s());
  }
}

void NcclLink::started(ncclResult_t status, std::optional<Operation> op) {
  if (status == ncclInProgress) return wait_until_ready(op);
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
    in_flight_.reserve(slots_.size());
    idle_.push_back(&fresh);
  }
  Slot& slot = *idle_.back();
  idle_.pop_back();
  slot.op = op;
  slot.sequence = ++sequence_;
  slot.label = group_.ledger->label();
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

void NcclLink::collect() {
  size_t ended = 0;
  for (; ended < in_flight_.size() && in_flight_[ended]->waited; ++ended) {
    Slot& slot = *in_flight_[ended];
    if (!TRIAX_CUDA_DONE(cudaEventQuery(slot.go.get()))) break;
    end_wait(slot);
    const double busy_s = seconds_between(slot.begin, slot.done);
    group_.ledger->record_seconds(group_.info.name, slot.op, slot.label, busy_s, seconds_between(slot.stand, slot.go));
    if (came_.size() < kMostKept) {
      if (came_.empty()) came_.reserve(kMostKept);
      came_.push_back({slot.op, slot.label, device_->host_time_s(slot.begin), busy_s});
    }
    idle_.push_back(&slot);
  }
  in_flight_.erase(in_flight_.begin(), in_flight_.begin() + static_cast<ptrdiff_t>(ended));
}

/// What every member gives, member after member; of messages, what both do.
std::vector<double> NcclLink::exchange(Communicator& host, const std::vector<double>& mine) const {
  const auto n = static_cast<int64_t>(mine.size());
  std::vector<double> all(mine.size() * static_cast<size_t>(members_.ranks));
  const Tensor given(const_cast<double*>(mine.data()), DType::Float64, {n});
  if (!members_.other) {
    host.all_gather(given, Tensor(all.data(), DType::Float64, {n * members_.ranks})).wait();
    return all;
  }
  std::copy(mine.begin(), mine.end(), all.begin());
  Work sent = host.send(given, *members_.other, kMeetTag);
  host.recv(Tensor(all.data() + n, DType::Float64, {n}), *members_.other, kMeetTag).wait();
  sent.wait();
  return all;
}

void NcclLink::meet(Communicator& host, double clock_offset_s) {
  const std::vector<double> counts = exchange(host, {static_cast<double>(came_.size())});
  const auto count = static_cast<size_t>(*std::min_element(counts.begin(), counts.end()));
  if (count == 0) return came_.clear();
  std::vector<double> mine(count);
  for (size_t i = 0; i < count; ++i) mine[i] = came_[i].begin_s - clock_offset_s;
  const std::vector<double> all = exchange(host, mine);
  for (size_t i = 0; i < count; ++i) {
    double last = mine[i];
    for (size_t r = 0; r < counts.size(); ++r) last = std::max(last, all[r * count + i]);
    group_.ledger->record_waited(group_.info.name, came_[i].op, came_[i].label,
                                 std::min(last - mine[i], came_[i].busy_s));
  }
  came_.clear();
}

void NcclLink::check_error() {
  if (comm_ == nullptr) return;
  ncclResult_t state = ncclSuccess;
  TRIAX_NCCL(ncclCommGetAsyncError(comm_, &state));
  if (state != ncclInProgress) TRIAX_NCCL(state);
}

void NcclLink::check_deadline() {
  for (Slot* slot : in_flight_) {
    if (TRIAX_CUDA_DONE(cudaEventQuery(slot->done.get()))) {
      end_wait(*slot);
      continue;
    }
    if (!TRIAX_CUDA_DONE(cudaEventQuery(slot->begin.get()))) return;  // none behind it has begun
    if (!slot->running) {
      slot->running.emplace();
      group_.record.begin(slot->op, slot->sequence);
    }
    const double ran_s = slot->running->elapsed_s();
    if (ran_s > group_.info.timeout_s) throw_peer_lost(group_.info, slot->op, slot->sequence, ran_s, {});
    return;
  }
}

void NcclLink::end_wait(Slot& slot) {
  if (slot.running) group_.record.end(slot.op, slot.sequence);
  slot.running.reset();
}

}  // namespace triax::comm
