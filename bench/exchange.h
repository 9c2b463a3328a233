// One collective with its tensors: called in and out of place, and checked against what it must give.
#pragma once

#include "base/memory.h"
#include "comm/communicator.h"
#include "kernels/discrete_device.h"

namespace triax::bench {

/// Whether the result replaces the input (all_reduce, reduce, broadcast work so by nature) or goes into other memory
/// (those copy first; of broadcast and reduce only the root's copy).
enum class Place { OutOf, In };

/// all_to_all and sendrecv cannot work in place.
bool has_in_place(comm::Operation operation);
/// "all_reduce" ...; Send is called "sendrecv": every rank sends to the next one of its group and receives from the one
/// before.
const char* bench_name(comm::Operation operation);

/// Tensors of nccl-tests' size: all_reduce, reduce, broadcast, send: the buffer; all_gather the output; reduce_scatter
/// and all_to_all the input. Root 0.
class Exchange {
 public:
  /// `bytes` is rounded down to whole elements of every rank; size_bytes() says to what, 0 where there is not one.
  /// device: whose memory the arena and the group have; null: the host's.
  Exchange(comm::Communicator& group, Arena& arena, comm::Operation operation, comm::ReduceOp reduce, DType dtype,
           int64_t bytes, kernels::DiscreteDevice* device = nullptr);
  Exchange(Exchange&&) = default;

  /// Starts the operation; wait() ends it. On a group that works on the caller, start() does most of it. On a device
  /// neither waits on the host: what the device is given next comes after the operation.
  void start(Place place);
  void wait();
  void call(Place place) {
    start(place);
    wait();
  }
  /// One call with known values; elements of this rank that are not exactly as they must be. Leaves zeros.
  int64_t check(Place place);

  comm::Operation operation() const { return operation_; }
  int64_t size_bytes() const { return elements_ * static_cast<int64_t>(size_of(dtype_)); }
  /// nccl-tests' count: elements of one rank's part where there are parts, else all.
  int64_t count() const;

 private:
  Tensor part(Tensor whole, int rank) const;
  void fill_inputs(Place place);
  void fill(const Tensor& t, int rank, int64_t first) const;
  void fill_zero(const Tensor& t) const;
  void copy(const Tensor& from, const Tensor& to) const;
  template <class Expected>
  int64_t count_wrong(const Tensor& t, Expected expected) const;

  comm::Communicator* group_;
  kernels::DiscreteDevice* device_;
  comm::Operation operation_;
  comm::ReduceOp reduce_;
  DType dtype_;
  int64_t elements_ = 0;  ///< of the size
  Buffer a_buffer_, b_buffer_;
  Tensor a_, b_;  ///< [elements] each: input and output, or the one in place
  comm::Work work_, other_;
};

}  // namespace triax::bench
