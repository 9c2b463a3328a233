// Every byte has a category: arenas hand out buffers, a ledger counts what is live and the peak.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "base/tensor.h"

namespace triax {

enum class MemoryCategory : uint8_t {
  Parameters,
  Gradients,
  Optimizer,
  Activations,
  Communication,
  Workspace,
  Staging
};
inline constexpr size_t kMemoryCategories = 7;
std::string_view name_of(MemoryCategory category);

/// Source of memory for arenas: heap, MPI shared window, CUDA.
class MemoryProvider {
 public:
  virtual ~MemoryProvider() = default;
  /// At least 64-byte aligned; throws std::bad_alloc.
  virtual void* allocate(size_t size_bytes) = 0;
  virtual void deallocate(void* data, size_t size_bytes) noexcept = 0;
};

/// Heap memory aligned to 64 bytes; what is 1 MiB and larger is aligned to 2 MiB and advised to use huge pages.
class HeapProvider final : public MemoryProvider {
 public:
  void* allocate(size_t size_bytes) override;
  void deallocate(void* data, size_t size_bytes) noexcept override;
};

/// Live and peak bytes of each category and of the sum, as requested (rounded up to 64 bytes).
struct MemoryLedger {
  std::array<int64_t, kMemoryCategories> live{};
  std::array<int64_t, kMemoryCategories> peak{};
  int64_t live_total = 0;
  int64_t peak_total = 0;
  void add(MemoryCategory category, int64_t bytes);
};

class Arena;

/// Move-only owner of a piece of an arena; gives it back on destruction.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer() { reset(); }
  void reset() noexcept;
  explicit operator bool() const { return data_ != nullptr; }
  void* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  /// The buffer's start as a tensor; must fit.
  Tensor view(DType dtype, std::initializer_list<int64_t> shape) const;

 private:
  friend class Arena;
  Buffer(Arena* arena, void* data, size_t size_bytes, MemoryCategory category)
      : arena_(arena), data_(data), size_bytes_(size_bytes), category_(category) {}
  Arena* arena_ = nullptr;
  void* data_ = nullptr;
  size_t size_bytes_ = 0;
  MemoryCategory category_ = MemoryCategory::Workspace;
};

/// Which of several freed buffers of a size is handed out: the one freed last, which may still be in a cache, or the
/// one of the lowest address. With the latter, addresses depend only on what is live: the same sequence of allocations
/// from the same live buffers has the same addresses every time.
enum class Reuse { Latest, Lowest };

/// Hands out buffers and keeps freed ones in lists by exact (64-byte rounded) size, so that a steady step asks the
/// provider for nothing. Not thread-safe: one arena belongs to one thread.
class Arena {
 public:
  explicit Arena(MemoryProvider& provider) : provider_(&provider) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  Arena(Arena&&) = delete;
  Arena& operator=(Arena&&) = delete;
  /// Buffers must not outlive their arena.
  ~Arena();

  /// Uninitialised memory.
  Buffer allocate(size_t size_bytes, MemoryCategory category);
  Buffer allocate(DType dtype, int64_t elements, MemoryCategory category);
  /// From now on; Latest until then.
  void reuse(Reuse order);
  const MemoryLedger& ledger() const { return ledger_; }
  /// Calls made to the provider so far: constant over steady steps.
  int64_t provider_calls() const { return provider_calls_; }

 private:
  friend class Buffer;
  void give_back(Buffer& buffer) noexcept;
  MemoryProvider* provider_;
  MemoryLedger ledger_;
  Reuse reuse_ = Reuse::Latest;
  std::map<size_t, std::vector<void*>> free_;  ///< of a size; a heap with the lowest address on top under Lowest
  int64_t provider_calls_ = 0;
};

}  // namespace triax
