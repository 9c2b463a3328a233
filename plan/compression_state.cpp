#include "plan/compression_state.h"

#include "io/options/validate.h"

namespace triax::plan {

double compression_state_bytes(const io::RunOptions& run, const StepShape& shape, const HeldParts& held) {
  using comm::CompressionMethod;
  const comm::CompressionOptions& c = run.parallel.compression;
  if (c.method == CompressionMethod::None || shape.data == 1) return 0;
  if (shape.zero >= 2) return 0;  // the trainer refuses it, and says why
  const ShapeParameters of = parameters_of(shape);
  const auto layers = static_cast<double>(held.layers);
  const double psi = of.layer * layers + (held.embedding && !c.exempt_embedding ? of.embedding : 0) +
                     (held.head && !c.exempt_head ? of.head : 0);
  const auto width = static_cast<double>(size_of(io::state_dtype(run.control.precision)));
  double bytes = c.feedback() ? width * psi : 0;
  const bool coded = c.method == CompressionMethod::BFloat16 || c.method == CompressionMethod::Int8 ||
                     c.method == CompressionMethod::OneBitAdam;
  if (coded && c.feedback() && shape.zero == 0) bytes += width * psi / shape.data;
  if (c.method == CompressionMethod::PowerSgd) {
    // Columns of the four matrices: qkv and the MLP's first have whole rows, the other two are cut.
    const double columns = 2.0 * static_cast<double>(shape.hidden) +
                           static_cast<double>(shape.hidden + run.model.ffn_hidden_size) / shape.tensor;
    bytes += width * static_cast<double>(c.rank) * columns * layers;
  }
  return bytes;
}

}  // namespace triax::plan
