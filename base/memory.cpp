#include "base/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <new>
#include <utility>

namespace triax {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kHugePageFrom = size_t{1} << 20;

size_t round_up(size_t size, size_t to) { return (size + to - 1) / to * to; }

}  // namespace

std::string_view name_of(MemoryCategory category) {
  constexpr std::array<std::string_view, kMemoryCategories> kNames{
      "parameters", "gradients", "optimizer", "activations", "communication", "workspace", "staging"};
  return kNames[static_cast<size_t>(category)];
}

void* HeapProvider::allocate(size_t size_bytes) {
  const size_t alignment = size_bytes >= kHugePageFrom ? kHugePage : kAlignment;
  void* data = std::aligned_alloc(alignment, round_up(std::max<size_t>(size_bytes, 1), alignment));
  if (data == nullptr) throw std::bad_alloc();
  if (alignment == kHugePage) madvise(data, round_up(size_bytes, kHugePage), MADV_HUGEPAGE);  // advice only
  return data;
}

void HeapProvider::deallocate(void* data, size_t) noexcept { std::free(data); }

void MemoryLedger::add(MemoryCategory category, int64_t bytes) {
  const auto i = static_cast<size_t>(category);
  live[i] += bytes;
  live_total += bytes;
  peak[i] = std::max(peak[i], live[i]);
  peak_total = std::max(peak_total, live_total);
}

Buffer::Buffer(Buffer&& other) noexcept
    : arena_(std::exchange(other.arena_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      category_(other.category_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    reset();
    arena_ = std::exchange(other.arena_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
    category_ = other.category_;
  }
  return *this;
}

void Buffer::reset() noexcept {
  if (data_ != nullptr) arena_->give_back(*this);
  arena_ = nullptr;
  data_ = nullptr;
  size_bytes_ = 0;
}

Tensor Buffer::view(DType dtype, std::initializer_list<int64_t> shape) const {
  Tensor t(data_, dtype, shape);
  ensure(t.bytes() <= static_cast<int64_t>(size_bytes_), "Buffer::view: larger than the buffer");
  return t;
}

Arena::~Arena() {
  for (auto& [size, list] : free_) {
    for (void* data : list) provider_->deallocate(data, size);
  }
}

Buffer Arena::allocate(size_t size_bytes, MemoryCategory category) {
  const size_t size = round_up(std::max<size_t>(size_bytes, 1), kAlignment);
  auto& list = free_[size];
  void* data = nullptr;
  if (list.empty()) {
    data = provider_->allocate(size);
    ++provider_calls_;
    // A freed buffer must find room in the list without allocating.
    list.reserve(list.capacity() + 1);
  } else {
    if (reuse_ == Reuse::Lowest) std::pop_heap(list.begin(), list.end(), std::greater<>());
    data = list.back();
    list.pop_back();
  }
  ledger_.add(category, static_cast<int64_t>(size));
  return Buffer(this, data, size, category);
}

void Arena::reuse(Reuse order) {
  reuse_ = order;
  if (order == Reuse::Latest) return;
  for (auto& [size, list] : free_) std::make_heap(list.begin(), list.end(), std::greater<>());
}

Buffer Arena::allocate(DType dtype, int64_t elements, MemoryCategory category) {
  return allocate(static_cast<size_t>(elements) * size_of(dtype), category);
}

void Arena::give_back(Buffer& buffer) noexcept {
  ledger_.add(buffer.category_, -static_cast<int64_t>(buffer.size_bytes_));
  std::vector<void*>& list = free_[buffer.size_bytes_];
  list.push_back(buffer.data_);
  if (reuse_ == Reuse::Lowest) std::push_heap(list.begin(), list.end(), std::greater<>());
}

}  // namespace triax
