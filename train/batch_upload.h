// A step's micro-batches where the device reads them.
#pragma once

#include <vector>

#include "base/memory.h"
#include "io/data/batch_loader.h"
#include "kernels/device.h"
#include "parallel/layer_context.h"

namespace triax::train {

/// On a device with memory of its own: a slot per micro-batch, of 8 bytes per sample and 16 per token, in the device's
/// memory (MemoryCategory::Workspace) and in pinned host memory. Else nothing: views are of the batch itself.
class BatchUpload {
 public:
  /// `samples`, `tokens`: of one micro-batch.
  BatchUpload(kernels::Device& device, Arena& arena, int64_t micro_batches, int64_t samples, int64_t tokens);
  /// Begins to copy the batch into slot `index` (free since the last synchronize()) and returns what the device sees:
  /// to be used by operations given to the device after this call.
  parallel::MicroBatch view(size_t index, const io::MicroBatch& batch);

 private:
  kernels::Device* device_;
  int64_t slot_bytes_ = 0;
  Arena staging_arena_;
  Buffer staging_, slots_;
};

}  // namespace triax::train
