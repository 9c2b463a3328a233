#include "bench/exchange.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "base/error.h"

namespace triax::bench {
namespace {

using comm::Operation;
using comm::ReduceOp;

bool in_parts(Operation operation) {
  return operation == Operation::AllGather || operation == Operation::ReduceScatter || operation == Operation::AllToAll;
}

/// Calls f with the elements as a typed pointer.
template <class F>
void with_data(void* data, DType dtype, F f) {
  switch (dtype) {
    case DType::Float64:
      return f(static_cast<double*>(data));
    case DType::Float32:
      return f(static_cast<float*>(data));
    case DType::BFloat16:
      return f(static_cast<bf16*>(data));
    case DType::Float16:
      return f(static_cast<fp16*>(data));
    case DType::Int8:
      return f(static_cast<int8_t*>(data));
    case DType::UInt8:
      return f(static_cast<uint8_t*>(data));
    case DType::Int32:
      return f(static_cast<int32_t*>(data));
    case DType::Int64:
      return f(static_cast<int64_t*>(data));
    default:
      throw ConfigError("bench coll: --datatype must be double, float, half, bfloat16, int8, uint8, int32 or int64");
  }
}

/// Integers of 8 bits wrap, as sums of them do.
template <class T>
T element(int64_t value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(value);
  } else {
    return T(static_cast<float>(value));
  }
}

/// What two elements are compared by.
template <class T>
double number(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(value);
  } else {
    return static_cast<double>(static_cast<float>(value));
  }
}

/// Small whole numbers, whose sums are exact in every dtype, in any order and over any number of ranks.
int64_t value(int rank, int64_t i) {
  constexpr int kCounting = 64;  // 4 x 64 = 256 is the last whole number up to which bf16 has all
  return rank < kCounting ? (i + rank) % 5 : 0;
}

/// Element i of op over the ranks' values.
int64_t reduced(ReduceOp op, int ranks, int64_t i) {
  int64_t result = value(0, i);
  for (int r = 1; r < ranks; ++r) {
    const int64_t next = value(r, i);
    result = op == ReduceOp::Sum   ? result + next
             : op == ReduceOp::Max ? std::max(result, next)
                                   : std::min(result, next);
  }
  return result;
}

Tensor as_bytes(const Tensor& t) { return Tensor(t.data(), DType::UInt8, {t.bytes()}); }

}  // namespace

bool has_in_place(Operation operation) { return operation != Operation::AllToAll && operation != Operation::Send; }

const char* bench_name(Operation operation) {
  return operation == Operation::Send ? "sendrecv" : comm::name_of(operation);
}

Exchange::Exchange(comm::Communicator& group, Arena& arena, Operation operation, ReduceOp reduce, DType dtype,
                   int64_t bytes, kernels::DiscreteDevice* device)
    : group_(&group), device_(device), operation_(operation), reduce_(reduce), dtype_(dtype) {
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

/// t[i] = value of `rank` at global index first + i.
void Exchange::fill(const Tensor& t, int rank, int64_t first) const {
  std::vector<std::byte> made(device_ != nullptr ? static_cast<size_t>(t.bytes()) : 0);
  void* const host = device_ != nullptr ? made.data() : t.data();
  with_data(host, dtype_, [&]<class T>(T* data) {
    for (int64_t i = 0; i < t.numel(); ++i) data[i] = element<T>(value(rank, first + i));
  });
  if (device_ != nullptr) device_->upload(Tensor(host, dtype_, {t.numel()}), t);
}

void Exchange::fill_zero(const Tensor& t) const {
  if (device_ != nullptr) return device_->fill(t, 0);
  std::memset(t.data(), 0, static_cast<size_t>(t.bytes()));
}

void Exchange::copy(const Tensor& from, const Tensor& to) const {
  if (from.data() == to.data()) return;
  if (device_ == nullptr) {
    std::memcpy(to.data(), from.data(), static_cast<size_t>(from.bytes()));
    return;
  }
  constexpr int64_t kMost = int64_t{1} << 30;  // of one copy: CUDA's widest row is 2 GiB
  for (int64_t at = 0; at < from.bytes(); at += kMost) {
    const int64_t end = std::min(at + kMost, from.bytes());
    device_->copy(as_bytes(from).range(at, end), as_bytes(to).range(at, end));
  }
}

template <class Expected>
int64_t Exchange::count_wrong(const Tensor& t, Expected expected) const {
  std::vector<std::byte> copied(device_ != nullptr ? static_cast<size_t>(t.bytes()) : 0);
  void* const host = device_ != nullptr ? copied.data() : t.data();
  if (device_ != nullptr) device_->download(t, Tensor(host, dtype_, {t.numel()}));
  int64_t wrong = 0;
  with_data(host, dtype_, [&]<class T>(const T* data) {
    for (int64_t i = 0; i < t.numel(); ++i) {
      wrong += number(data[i]) == number(element<T>(expected(i))) ? 0 : 1;
    }
  });
  return wrong;
}

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
