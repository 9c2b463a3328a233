// A step's micro-batches where the device reads them.
#pragma once

#include <span>
#include <vector>

#include "base/memory.h"
#include "io/data/batch_loader.h"
#include "kernels/device.h"
#include "parallel/layer_context.h"
#include "parallel/program.h"

namespace triax::train {

/// A slot for each micro-batch of a position's ops: two micro-batches share one when the last compute op of the one
/// comes before the first load of the other; as few as can be, the lowest first. So what is read from step to step, and
/// from micro-batch to micro-batch in a steady schedule, stands at the same addresses.
std::vector<size_t> batch_slots(std::span<const parallel::Op> ops, int num_micro_batches);

/// On a device with memory of its own: a slot per micro-batch, of 8 bytes per sample and 16 per token, in the device's
/// memory (MemoryCategory::Workspace) and in pinned host memory. Else nothing: views are of the batch itself.
class BatchUpload {
 public:
  /// `samples`, `tokens`: of one micro-batch.
  BatchUpload(kernels::Device& device, Arena& arena, int64_t micro_batches, int64_t samples, int64_t tokens);
  /// Begins to copy batch `index` (not since the last synchronize()) into a slot and returns what the device sees: to
  /// be used by operations given to the device after this call, until the slot is given another batch.
  parallel::MicroBatch view(size_t index, size_t slot, const io::MicroBatch& batch);

 private:
  kernels::Device* device_;
  int64_t slot_bytes_ = 0;
  Arena staging_arena_;
  Buffer staging_, slots_;
};

}  // namespace triax::train
