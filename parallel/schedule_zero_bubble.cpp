#include "parallel/schedule_zero_bubble.h"

#include <algorithm>
#include <array>

namespace triax::parallel {
namespace {

// The ops of one position as they are decided: the next micro-batch of each chunk for F, I and W. What has run out is
// left out, so that a phase may ask for more than there is.
class Order {
 public:
  explicit Order(int num_micro_batches) : m_(num_micro_batches) {}

  void forward(int chunk) { next(OpKind::Forward, forwards_, chunk, m_); }
  void backward_input(int chunk) { next(OpKind::BackwardInput, inputs_, chunk, forwards_[index(chunk)]); }
  void backward_weight(int chunk) { next(OpKind::BackwardWeight, weights_, chunk, inputs_[index(chunk)]); }

  bool has_forward(int chunk) const { return forwards_[index(chunk)] < m_; }
  int forwards(int chunk) const { return forwards_[index(chunk)]; }
  bool has_backward_input(int chunk) const { return inputs_[index(chunk)] < m_; }
  bool has_backward_weight(int chunk) const { return weights_[index(chunk)] < m_; }
  /// Micro-batches whose I is done and whose W is not.
  int waiting(int chunk) const { return inputs_[index(chunk)] - weights_[index(chunk)]; }
  std::vector<Op> take() { return std::move(ops_); }

 private:
  using Counts = std::array<int, 2>;
  static size_t index(int chunk) { return static_cast<size_t>(chunk); }
  void next(OpKind kind, Counts& counts, int chunk, int end) {
    int& count = counts[index(chunk)];
    if (count >= end) return;
    Op op;
    op.kind = kind;
    op.chunk = chunk;
    op.micro_batch = count++;
    ops_.push_back(op);
  }

  int m_;
  Counts forwards_{}, inputs_{}, weights_{};
  std::vector<Op> ops_;
};

struct Lag {
  int warmup;  ///< forwards before the first backward
  int steady;  ///< micro-batches that W stays behind I while there are forwards
  int drain;   ///< the same without forwards
};

std::vector<Op> one_chunk(int m, const Lag& lag) {
  Order order(m);
  for (int i = 0; i < lag.warmup; ++i) order.forward(0);
  while (order.has_backward_input(0)) {
    const bool steady = order.has_forward(0);
    order.forward(0);
    order.backward_input(0);
    if (order.waiting(0) > (steady ? lag.steady : lag.drain)) order.backward_weight(0);
  }
  while (order.has_backward_weight(0)) order.backward_weight(0);
  return order.take();
}

}  // namespace

std::vector<Op> zero_bubble_h1(int p, int position, int m) {
  return one_chunk(m, {.warmup = p - 1 - position, .steady = position, .drain = 0});
}

std::vector<Op> zero_bubble_h2(int p, int position, int m) {
  return one_chunk(m, {.warmup = 2 * (p - 1 - position), .steady = 2 * position, .drain = position});
}

std::vector<Op> zero_bubble_v(int p, int position, int m) {
  Order order(m);
  const auto backward = [&](int chunk) {
    order.backward_input(chunk);
    order.backward_weight(chunk);
  };
  // Down and up the V: the first micro-batch comes back to this position after 2(p - i) - 1 slots.
  for (int i = 0; i < 2 * (p - position) - 1; ++i) order.forward(0);
  for (int i = 0; i < position; ++i) {
    order.forward(1);
    order.forward(0);
  }
  // The late chunk's gradients arrive; its early half's are still under way.
  for (int i = 0; i < p - position; ++i) {
    order.forward(1);
    backward(1);
  }
  while (order.has_forward(0) || order.forwards(1) < order.forwards(0)) {
    order.forward(0);
    backward(0);
    order.forward(1);
    backward(1);
  }
  // Input gradients first, since the positions before this one wait for them; weights fill what is left.
  for (int i = 0; i < position; ++i) {
    order.backward_input(0);
    order.backward_input(1);
  }
  while (order.has_backward_input(0) || order.has_backward_input(1)) {
    order.backward_input(1);
    backward(0);
  }
  while (order.has_backward_weight(1)) order.backward_weight(1);
  while (order.has_backward_weight(0)) order.backward_weight(0);
  return order.take();
}

}  // namespace triax::parallel
