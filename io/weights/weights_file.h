// One HDF5 file of whole tensors under their global names: what `--save` writes, `sample` and `train --load` read, in
// any layout. Dataset "<parameter name>": the true shape (no vocabulary padding), in the compute type.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "io/weights/header.h"
#include "parallel/parameter.h"

namespace triax::io {

/// Where a piece of a tensor lies: `count` indices from `begin` on along `cut_dim`, everything along the other
/// dimension; of those, local rows (elements of a vector) [first, last).
struct Slab {
  int cut_dim = 0;
  int64_t begin = 0, count = 0;
  int64_t first = 0, last = 0;
};

/// Pieces of at most `limit_bytes` (at least one row) that cover what this rank holds of p, in order.
std::vector<Slab> slabs_of(const parallel::ShardSpec& spec, DType dtype, int64_t limit_bytes);
/// Elements of a slab.
int64_t numel_of(const Slab& slab, const std::vector<int64_t>& global_shape);

/// Writes to <path>.tmp.<host>.<pid>; commit() flushes, closes, makes durable and renames. Unless committed the
/// temporary file is removed. One process writes. Errors: RunTimeError.
class WeightsWriter {
 public:
  WeightsWriter(const std::string& path, const WeightsHeader& header);
  ~WeightsWriter();
  WeightsWriter(const WeightsWriter&) = delete;
  WeightsWriter& operator=(const WeightsWriter&) = delete;
  WeightsWriter(WeightsWriter&&) = delete;
  WeightsWriter& operator=(WeightsWriter&&) = delete;

  void create(const std::string& name, const std::vector<int64_t>& global_shape);
  /// values: contiguous, header's dtype.
  void write(const std::string& name, const Slab& slab, Tensor values);
  /// Throws std::logic_error when some tensor was not written whole.
  void commit();

 private:
  struct Dataset {
    Hdf5Dataset id;
    std::vector<int64_t> shape;
    int64_t missing = 0;  ///< elements not written yet
  };
  std::string path_, temporary_;
  Hdf5Type type_;
  DType dtype_;
  Hdf5File file_;
  std::map<std::string, Dataset> datasets_;
};

class WeightsReader {
 public:
  /// Throws RunTimeError: no such file, not HDF5, locked by a writer, another format.
  explicit WeightsReader(const std::string& path);
  const WeightsHeader& header() const { return header_; }
  const std::string& path() const { return path_; }
  /// Reads what this rank holds of p into out[0 .. p.true_numel()), a vector of fp32, fp64 (converted exactly from
  /// narrower types) or the stored type. A missing tensor and another shape are RunTimeErrors that name it.
  void read(const parallel::Parameter& p, Tensor out) const;

 private:
  std::string path_;
  Hdf5File file_;
  WeightsHeader header_;
};

}  // namespace triax::io
