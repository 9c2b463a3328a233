#include <spdlog/spdlog.h>

#include <array>
#include <cstddef>
#include <exception>
#include <new>

#include "comm/communicator.h"

namespace triax::comm {
namespace {

/// Freed states, by size in steps of 64 bytes; a state is freed on the thread that waited for it.
class StatePool {
 public:
  static constexpr size_t kStep = 64;
  static constexpr size_t kClasses = 8;

  StatePool() = default;
  ~StatePool() {
    for (Node* node : free_) {
      while (node != nullptr) ::operator delete(std::exchange(node, node->next));
    }
  }
  StatePool(const StatePool&) = delete;
  StatePool& operator=(const StatePool&) = delete;

  void* take(size_t size_bytes) {
    const size_t size_class = (size_bytes - 1) / kStep;
    if (size_class >= kClasses) return ::operator new(size_bytes);
    Node*& head = free_[size_class];
    if (head == nullptr) return ::operator new((size_class + 1) * kStep);
    return std::exchange(head, head->next);
  }
  void give(void* state, size_t size_bytes) noexcept {
    const size_t size_class = (size_bytes - 1) / kStep;
    if (size_class >= kClasses) return ::operator delete(state);
    free_[size_class] = new (state) Node{free_[size_class]};
  }

 private:
  struct Node {
    Node* next;
  };
  std::array<Node*, kClasses> free_{};
};

StatePool& pool() {
  thread_local StatePool states;
  return states;
}

}  // namespace

void* Work::State::operator new(size_t size_bytes) { return pool().take(size_bytes); }
void Work::State::operator delete(void* state, size_t size_bytes) noexcept { pool().give(state, size_bytes); }

Work::~Work() {
  if (!state_) return;
  try {
    // While an error unwinds the stack the peer may never answer, and the job is about to be aborted.
    if (std::uncaught_exceptions() > 0 && !state_->test()) return;
    state_->wait();
  } catch (const std::exception& error) {
    spdlog::error("an operation dropped in flight failed: {}", error.what());
  }
}

}  // namespace triax::comm
