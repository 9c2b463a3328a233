// What gradient compression keeps between steps, by formula.
#pragma once

#include "plan/step_shape.h"

namespace triax::plan {

/// What a rank holds: of the model's tables all or nothing.
struct HeldParts {
  int64_t layers = 0;
  bool embedding = false, head = false;
};

/// Bytes of residuals and factors (docs/zero.md, "kept between steps"; psi: parameters that are compressed, e bytes of
/// a gradient): e psi of error feedback; a code that goes both ways keeps e psi / n more at the owner of a piece (not
/// under ZeRO 1); PowerSGD r b for each matrix [a, b]. 0 without compression and on one replica. Vectors of a layer,
/// which are mostly too short to be compressed, are counted as if they were.
double compression_state_bytes(const io::RunOptions& run, const StepShape& shape, const HeldParts& held);

}  // namespace triax::plan
