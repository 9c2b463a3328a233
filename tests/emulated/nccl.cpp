// NCCL's stand-in on MPI messages. An operation is a task of its stream: it sends and posts its receives when the
// stream comes to it, and ends when all have arrived; sums are taken in the order of ranks, in fp32 or wider. Data pass
// through host buffers of the operation, so that a device address never reaches MPI. Like the library it wants device
// memory, the same sizes on all ranks, and that nothing is in flight when a communicator is destroyed.
#include <mpi.h>
#include <nccl.h>
#include <simt_apart.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "gpu.h"
#include "nccl_state.h"

using triax::emulated::fail;
using triax::emulated::Gpu;
using triax::emulated::is_registered;
using triax::emulated::nccl_counts;
using triax::emulated::not_on_device;

namespace {

constexpr int kConnectionTag = 1 << 18, kConnections = 4;

size_t width(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

/// Messages of one operation, each through a buffer of its own.
class Exchange {
 public:
  explicit Exchange(EmulatedNccl& comm) : comm_(&comm) {}
  void send(int peer, const void* data, size_t bytes) {
    auto& out = buffers_.emplace_back(bytes);
    std::memcpy(out.data(), data, bytes);
    MPI_Isend(out.data(), static_cast<int>(bytes), MPI_BYTE, comm_->world[static_cast<size_t>(peer)], comm_->tag,
              MPI_COMM_WORLD, &requests_.emplace_back());
    expected_.push_back(-1);
  }
  std::vector<char>& recv(int peer, size_t bytes) {
    auto& in = buffers_.emplace_back(bytes);
    MPI_Irecv(in.data(), static_cast<int>(bytes), MPI_BYTE, comm_->world[static_cast<size_t>(peer)], comm_->tag,
              MPI_COMM_WORLD, &requests_.emplace_back());
    expected_.push_back(static_cast<int>(bytes));
    return in;
  }
  bool done() {
    int flag = 0;
    std::vector<MPI_Status> statuses(requests_.size());
    if (MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &flag, statuses.data()) != MPI_SUCCESS) {
      throw std::runtime_error("emulated NCCL: a message failed: the ranks' sizes differ");
    }
    if (flag == 0) return false;
    for (size_t i = 0; i < expected_.size(); ++i) {
      int got = 0;
      MPI_Get_count(&statuses[i], MPI_BYTE, &got);
      if (expected_[i] >= 0 && got != expected_[i]) {
        throw std::runtime_error("emulated NCCL: " + std::to_string(got) + " bytes came, " +
                                 std::to_string(expected_[i]) + " were expected: the ranks' sizes differ");
      }
    }
    return true;
  }

 private:
  EmulatedNccl* comm_;
  std::deque<std::vector<char>> buffers_;  // stay in place
  std::vector<MPI_Request> requests_;
  std::vector<int> expected_;
};

/// One call: what is to be sent and received, and what to do with what has come.
struct Call {
  EmulatedNccl* comm;
  cudaStream_t stream;
  std::function<void(Exchange&)> start;
  std::function<void()> finish;
  int peer = -1;  ///< of a message; of all else, every rank is
  triax::emulated::Connection connection = triax::emulated::kOfAll;
};

class Running {
 public:
  explicit Running(std::vector<Call> calls) : calls_(std::move(calls)) {}
  bool step() {
    EmulatedNccl& comm = *calls_.front().comm;
    if (comm.aborted) return end();
    if (!exchange_) {
      exchange_ = std::make_unique<Exchange>(comm);
      for (const Call& call : calls_) call.start(*exchange_);
    }
    if (!exchange_->done()) return false;
    for (const Call& call : calls_) call.finish();
    return end();
  }

 private:
  bool end() { return --calls_.front().comm->in_flight, true; }
  std::vector<Call> calls_;
  std::unique_ptr<Exchange> exchange_;
};

struct Group {
  int depth = 0;
  std::vector<Call> calls;
};
thread_local Group group;

void connect(EmulatedNccl& comm, int peer, triax::emulated::Connection kind) {
  if (peer == comm.rank || !comm.connected.emplace(peer, kind).second) return;
  const int other = comm.world[static_cast<size_t>(peer)], tag = kConnectionTag + kConnections * comm.tag + kind;
  MPI_Isend(nullptr, 0, MPI_BYTE, other, tag, MPI_COMM_WORLD, &comm.connecting.emplace_back());
  MPI_Irecv(nullptr, 0, MPI_BYTE, other, tag, MPI_COMM_WORLD, &comm.connecting.emplace_back());
}

// The stream gets the operation in ncclCommGetAsyncError: what the caller gives it before that comes first.
ncclResult_t issue(std::vector<Call> calls) {
  if (calls.empty()) return ncclSuccess;
  if (calls.front().stream->capture) return fail(ncclInvalidUsage, "operations in a graph are not emulated");
  EmulatedNccl& comm = *calls.front().comm;
  ++comm.in_flight;
  comm.polls = 1;
  for (const Call& call : calls) {
    for (int peer = 0; peer < comm.size(); ++peer) {
      if (call.peer < 0 || call.peer == peer) connect(comm, peer, call.connection);
    }
  }
  const cudaStream_t stream = calls.front().stream;
  comm.starting = [stream, running = std::make_shared<Running>(std::move(calls))] {
    Gpu::instance().submit(*stream, [running] { return running->step(); });
  };
  return ncclInProgress;
}

ncclResult_t give(Call call) {
  if (call.comm->aborted) return fail(ncclInvalidUsage, "the communicator was aborted");
  if (call.comm->polls > 0 || call.comm->starting) return fail(ncclInvalidUsage, "the communicator is not ready yet");
  if (group.depth == 0) return issue({std::move(call)});
  group.calls.push_back(std::move(call));
  return ncclSuccess;
}

bool on_device(const EmulatedNccl* comm, std::initializer_list<std::pair<const void*, size_t>> ranges) {
  ++nccl_counts().operations;
  const bool known = std::all_of(ranges.begin(), ranges.end(),
                                 [&](const auto& range) { return is_registered(*comm, range.first, range.second); });
  if (known) ++nccl_counts().operations_on_buffers;
  return std::all_of(ranges.begin(), ranges.end(), [](const auto& range) {
    return range.second == 0 || triax::emulated::on_device(range.first, range.second);
  });
}

triax::emulated::Connection way(int from, int to) {
  return from < to ? triax::emulated::kUpward : triax::emulated::kDownward;
}

template <class T, class Wide>
void combine(ncclRedOp_t op, const std::vector<const char*>& from, void* to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const auto value = [&](size_t r) {
      T v;
      std::memcpy(&v, from[r] + i * sizeof(T), sizeof v);
      return static_cast<Wide>(v);
    };
    Wide all = value(0);
    for (size_t r = 1; r < from.size(); ++r) {
      const Wide v = value(r);
      all = op == ncclSum ? static_cast<Wide>(all + v) : op == ncclMax ? std::max(all, v) : std::min(all, v);
    }
    static_cast<T*>(to)[i] = static_cast<T>(all);
  }
  // For tests of who looks at results: the last element is wrong.
  if (count > 0 && std::getenv("TRIAX_EMULATED_NCCL_WRONG") != nullptr) {
    static_cast<T*>(to)[count - 1] = static_cast<T>(static_cast<Wide>(static_cast<T*>(to)[count - 1]) + Wide{1});
  }
}

void reduce(ncclDataType_t type, ncclRedOp_t op, const std::vector<const char*>& from, void* to, size_t count) {
  switch (type) {
    case ncclInt8:
      return combine<int8_t, int>(op, from, to, count);
    case ncclUint8:
      return combine<uint8_t, int>(op, from, to, count);
    case ncclInt32:
      return combine<int32_t, int32_t>(op, from, to, count);
    case ncclInt64:
      return combine<int64_t, int64_t>(op, from, to, count);
    case ncclFloat16:
      return combine<triax::fp16, float>(op, from, to, count);
    case ncclBfloat16:
      return combine<triax::bf16, float>(op, from, to, count);
    case ncclFloat32:
      return combine<float, float>(op, from, to, count);
    case ncclFloat64:
      return combine<double, double>(op, from, to, count);
  }
}

/// Every receiver gets a part of every rank's input, and reduces the parts: what all reductions are made of.
/// part(r): offset in bytes of what rank r is to have, or -1 for nothing.
Call reduction(EmulatedNccl* comm, cudaStream_t stream, const void* in, void* out, size_t count, ncclDataType_t type,
               ncclRedOp_t op, std::function<int64_t(int)> part) {
  auto parts = std::make_shared<std::vector<const char*>>();
  const size_t bytes = count * width(type);
  const auto* const from = static_cast<const char*>(in);
  auto own = std::make_shared<std::vector<char>>();
  const auto start = [=](Exchange& exchange) {
    for (int r = 0; r < comm->size(); ++r) {
      if (r != comm->rank && part(r) >= 0) exchange.send(r, from + part(r), bytes);
    }
    if (part(comm->rank) < 0) return;
    own->assign(from + part(comm->rank), from + part(comm->rank) + bytes);
    for (int r = 0; r < comm->size(); ++r) {
      parts->push_back(r == comm->rank ? own->data() : exchange.recv(r, bytes).data());
    }
  };
  return {comm, stream, start, [=] {
            if (!parts->empty()) reduce(type, op, *parts, out, count);
          }};
}

}  // namespace

// ---- Operations -----------------------------------------------------------------------------------------------------

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  const triax::simt::Apart apart;
  if (!on_device(comm, {{in, count * width(type)}, {out, count * width(type)}})) return not_on_device();
  return give(reduction(comm, stream, in, out, count, type, op, [](int) { return int64_t{0}; }));
}
ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  const triax::simt::Apart apart;
  if (!on_device(comm, {{in, count * width(type)}})) return not_on_device();
  return give(reduction(comm, stream, in, out, count, type, op, [root](int r) { return int64_t{r == root ? 0 : -1}; }));
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  const triax::simt::Apart apart;
  const size_t bytes = count * width(type);
  if (!on_device(comm, {{in, bytes * comm->world.size()}, {out, bytes}})) return not_on_device();
  return give(
      reduction(comm, stream, in, out, count, type, op, [bytes](int r) { return static_cast<int64_t>(bytes) * r; }));
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const triax::simt::Apart apart;
  const size_t bytes = count * width(type);
  if (!on_device(comm, {{in, bytes}, {out, bytes * comm->world.size()}})) return not_on_device();
  auto parts = std::make_shared<std::vector<const char*>>();
  const auto start = [=](Exchange& exchange) {
    auto* const own = static_cast<char*>(out) + bytes * static_cast<size_t>(comm->rank);
    std::memmove(own, in, bytes);
    for (int r = 0; r < comm->size(); ++r) {
      if (r != comm->rank) exchange.send(r, own, bytes);
      parts->push_back(r == comm->rank ? own : exchange.recv(r, bytes).data());
    }
  };
  return give({comm, stream, start, [=] {
                 for (size_t r = 0; r < parts->size(); ++r) {
                   std::memmove(static_cast<char*>(out) + bytes * r, (*parts)[r], bytes);
                 }
               }});
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  const triax::simt::Apart apart;
  const size_t bytes = count * width(type);
  if (!on_device(comm, {{out, bytes}})) return not_on_device();
  auto got = std::make_shared<const char*>(nullptr);
  const auto start = [=](Exchange& exchange) {
    if (comm->rank != root) {
      *got = exchange.recv(root, bytes).data();
      return;
    }
    std::memmove(out, in, bytes);
    for (int r = 0; r < comm->size(); ++r) {
      if (r != root) exchange.send(r, out, bytes);
    }
  };
  return give({comm, stream, start, [=] {
                 if (*got != nullptr) std::memcpy(out, *got, bytes);
               }});
}
ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const triax::simt::Apart apart;
  const size_t bytes = count * width(type);
  if (!on_device(comm, {{data, bytes}})) return not_on_device();
  return give({comm, stream, [=](Exchange& exchange) { exchange.send(peer, data, bytes); }, [] {}, peer,
               way(comm->rank, peer)});
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  const triax::simt::Apart apart;
  const size_t bytes = count * width(type);
  if (!on_device(comm, {{data, bytes}})) return not_on_device();
  auto got = std::make_shared<const char*>(nullptr);
  return give({comm, stream, [=](Exchange& exchange) { *got = exchange.recv(peer, bytes).data(); },
               [=] { std::memcpy(data, *got, bytes); }, peer, way(peer, comm->rank)});
}
ncclResult_t ncclGroupStart() { return ++group.depth, ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  const triax::simt::Apart apart;
  if (--group.depth > 0) return ncclSuccess;
  return issue(std::exchange(group.calls, {}));
}
