#include "bench/exchange.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace triax::bench {
namespace {

using comm::Operation;
using comm::ReduceOp;

bool in_parts(Operation operation) {
  return operation == Operation::AllGather || operation == Operation::ReduceScatter || operation == Operation::AllToAll;
}

/// Calls f with the tensor's elements as a typed pointer.
template <class F>
void with_data(const Tensor& t, F f) {
  switch (t.dtype()) {
    case DType::Float64:
      return f(t.as<double>());
    case DType::Float32:
      return f(t.as<float>());
    case DType::BFloat16:
      return f(t.as<bf16>());
    case DType::Float16:
      return f(t.as<fp16>());
    default:
      throw ConfigError("bench coll: --datatype must be double, float, bfloat16 or half");
  }
}

/// Small whole numbers, whose sums are exact in every dtype.
float value(int rank, int64_t i) { return static_cast<float>((i + rank) % 5); }

/// t[i] = value of `rank` at global index first + i.
void fill(const Tensor& t, int rank, int64_t first) {
  with_data(t, [&]<class T>(T* data) {
    for (int64_t i = 0; i < t.numel(); ++i) data[i] = T(value(rank, first + i));
  });
}

void fill_zero(const Tensor& t) { std::memset(t.data(), 0, static_cast<size_t>(t.bytes())); }

template <class Expected>
int64_t count_wrong(const Tensor& t, Expected expected) {
  int64_t wrong = 0;
  with_data(t, [&](const auto* data) {
    for (int64_t i = 0; i < t.numel(); ++i) wrong += static_cast<float>(data[i]) == expected(i) ? 0 : 1;
  });
  return wrong;
}

/// Element i of op over the ranks' values.
float reduced(ReduceOp op, int ranks, int64_t i) {
  float result = value(0, i);
  for (int r = 1; r < ranks; ++r) {
    const float next = value(r, i);
    result = op == ReduceOp::Sum   ? result + next
             : op == ReduceOp::Max ? std::max(result, next)
                                   : std::min(result, next);
  }
  return result;
}

void copy(const Tensor& from, const Tensor& to) {
  if (from.data() != to.data()) std::memcpy(to.data(), from.data(), static_cast<size_t>(from.bytes()));
}

}  // namespace

bool has_in_place(Operation operation) { return operation != Operation::AllToAll && operation != Operation::Send; }

const char* bench_name(Operation operation) {
  return operation == Operation::Send ? "sendrecv" : comm::name_of(operation);
}

Exchange::Exchange(comm::Communicator& group, Arena& arena, Operation operation, ReduceOp reduce, DType dtype,
                   int64_t bytes)
    : group_(&group), operation_(operation), reduce_(reduce), dtype_(dtype) {
  elements_ = bytes / static_cast<int64_t>(size_of(dtype));
  if (in_parts(operation)) elements_ = elements_ / group.size() * group.size();
  if (elements_ == 0) return;
  a_buffer_ = arena.allocate(dtype, elements_, MemoryCategory::Workspace);
  b_buffer_ = arena.allocate(dtype, elements_, MemoryCategory::Workspace);
  a_ = a_buffer_.view(dtype, {elements_});
  b_ = b_buffer_.view(dtype, {elements_});
  fill_zero(a_);
  fill_zero(b_);
}

int64_t Exchange::count() const { return in_parts(operation_) ? elements_ / group_->size() : elements_; }

Tensor Exchange::part(Tensor whole, int rank) const {
  const int64_t n = elements_ / group_->size();
  return whole.range(rank * n, (rank + 1) * n);
}

void Exchange::start(Place place) {
  const Tensor out = place == Place::In ? a_ : b_;
  const int rank = group_->rank();
  const int size = group_->size();
  switch (operation_) {
    case Operation::AllReduce:
      copy(a_, out);
      work_ = group_->all_reduce(out, reduce_);
      return;
    case Operation::Reduce:
      copy(a_, out);
      work_ = group_->reduce(out, reduce_, 0);
      return;
    case Operation::Broadcast:
      if (rank == 0) copy(a_, out);
      work_ = group_->broadcast(out, 0);
      return;
    case Operation::AllGather:
      work_ = group_->all_gather(part(a_, place == Place::In ? rank : 0), out);
      return;
    case Operation::ReduceScatter:
      work_ = group_->reduce_scatter(a_, part(out, place == Place::In ? rank : 0), reduce_);
      return;
    case Operation::AllToAll:
      work_ = group_->all_to_all(a_, b_);
      return;
    default:
      work_ = group_->recv(b_, (rank + size - 1) % size, 0);
      other_ = group_->send(a_, (rank + 1) % size, 0);
  }
}

void Exchange::wait() {
  work_.wait();
  other_.wait();
}

void Exchange::fill_inputs(Place place) {
  const int rank = group_->rank();
  const int64_t n = elements_ / group_->size();
  fill_zero(b_);
  if (operation_ == Operation::AllGather) {
    fill_zero(a_);
    fill(part(a_, place == Place::In ? rank : 0), rank, rank * n);
  } else {
    fill(a_, rank, 0);
  }
}

int64_t Exchange::check(Place place) {
  const int rank = group_->rank();
  const int size = group_->size();
  const int64_t n = elements_ / size;
  fill_inputs(place);
  call(place);
  const Tensor out = place == Place::In ? a_ : b_;
  int64_t wrong = 0;
  switch (operation_) {
    case Operation::AllReduce:
      wrong = count_wrong(out, [&](int64_t i) { return reduced(reduce_, size, i); });
      break;
    case Operation::Reduce:
      if (rank == 0) wrong = count_wrong(out, [&](int64_t i) { return reduced(reduce_, size, i); });
      break;
    case Operation::Broadcast:
      wrong = count_wrong(out, [&](int64_t i) { return value(0, i); });
      break;
    case Operation::AllGather:
      wrong = count_wrong(out, [&](int64_t i) { return value(static_cast<int>(i / n), i); });
      break;
    case Operation::ReduceScatter:
      wrong = count_wrong(part(out, place == Place::In ? rank : 0),
                          [&](int64_t i) { return reduced(reduce_, size, rank * n + i); });
      break;
    case Operation::AllToAll:
      wrong = count_wrong(b_, [&](int64_t i) { return value(static_cast<int>(i / n), rank * n + i % n); });
      break;
    default:
      wrong = count_wrong(b_, [&](int64_t i) { return value((rank + size - 1) % size, i); });
  }
  // Sums of zeros stay finite however often they are taken.
  fill_zero(a_);
  fill_zero(b_);
  return wrong;
}

}  // namespace triax::bench
