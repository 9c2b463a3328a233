// RAII for handles of C libraries. The only class that owns a raw handle.
#pragma once

#include <utility>

namespace triax {

/// P: using type; static type null() noexcept; static void destroy(type) noexcept.
template <class P>
class Handle {
 public:
  using type = typename P::type;
  Handle() noexcept : raw_(P::null()) {}
  explicit Handle(type raw) noexcept : raw_(raw) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  Handle(Handle&& other) noexcept : raw_(std::exchange(other.raw_, P::null())) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      raw_ = std::exchange(other.raw_, P::null());
    }
    return *this;
  }
  ~Handle() { reset(); }

  type get() const noexcept { return raw_; }
  type* out() noexcept {
    reset();
    return &raw_;
  }
  type release() noexcept { return std::exchange(raw_, P::null()); }
  void reset() noexcept {
    if (raw_ != P::null()) P::destroy(std::exchange(raw_, P::null()));
  }
  explicit operator bool() const noexcept { return raw_ != P::null(); }

 private:
  type raw_;
};

}  // namespace triax
