#include "train/batch_upload.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "train/batch_source.h"

namespace triax::train {
namespace {

constexpr int64_t kSlotAlignment = 64;

}  // namespace

std::vector<size_t> batch_slots(std::span<const parallel::Op> ops, int num_micro_batches) {
  const auto m = static_cast<size_t>(num_micro_batches);
  std::vector<size_t> last(m, 0), slots(m, m);
  for (size_t i = 0; i < ops.size(); ++i) {
    if (parallel::is_compute(ops[i].kind)) last[static_cast<size_t>(ops[i].micro_batch)] = i;
  }
  std::set<size_t> free;
  for (size_t slot = 0; slot < m; ++slot) free.insert(slot);
  for (size_t i = 0; i < ops.size(); ++i) {
    const auto batch = static_cast<size_t>(ops[i].micro_batch);
    if (ops[i].kind == parallel::OpKind::LoadBatch && slots[batch] == m) {
      slots[batch] = *free.begin();
      free.erase(free.begin());
    }
    if (parallel::is_compute(ops[i].kind) && last[batch] == i && slots[batch] < m) free.insert(slots[batch]);
  }
  return slots;
}

BatchUpload::BatchUpload(kernels::Device& device, Arena& arena, int64_t micro_batches, int64_t samples, int64_t tokens)
    : device_(&device), staging_arena_(device.staging_memory()) {
  if (device.on_host()) return;
  const int64_t bytes = 8 * samples + 16 * tokens;
  slot_bytes_ = (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
  const auto all = static_cast<size_t>(slot_bytes_ * micro_batches);
  staging_ = staging_arena_.allocate(all, MemoryCategory::Staging);
  slots_ = arena.allocate(all, MemoryCategory::Workspace);
}

parallel::MicroBatch BatchUpload::view(size_t index, size_t slot, const io::MicroBatch& batch) {
  const parallel::MicroBatch host = view_of(batch);
  if (slot_bytes_ == 0) return host;
  auto* const staged = static_cast<std::byte*>(staging_.data()) + static_cast<int64_t>(index) * slot_bytes_;
  auto* const there = static_cast<std::byte*>(slots_.data()) + static_cast<int64_t>(slot) * slot_bytes_;
  int64_t used = 0;
  const auto place = [&](const Tensor& from) {
    if (!from) return Tensor();
    ensure(used + from.bytes() <= slot_bytes_, "BatchUpload: the batch is larger than its slot");
    std::memcpy(staged + used, from.data(), static_cast<size_t>(from.bytes()));
    const Tensor to(there + used, from.dtype(), {from.numel()});
    used += from.bytes();
    return to;
  };
  parallel::MicroBatch device;
  device.index.sample = place(host.index.sample);
  device.index.position = place(host.index.position);
  device.token = place(host.token);
  device.target = place(host.target);
  device.loss_mask = place(host.loss_mask);
  device_->start_upload(Tensor(staged, DType::UInt8, {used}), Tensor(there, DType::UInt8, {used}));
  return device;
}

}  // namespace triax::train
