// Algorithms of cuBLASLt that were timed, in a file which all ranks and later runs share (--gemm-cache): whoever needs
// a product first times it, all others read what was chosen, so that replicas and later runs have the same bits.
//
// Text: the first line is "triax gemm choices 1"; then a line for each choice, fields parted by " | ":
//   GPU | cuBLASLt's version | product | algorithm, 128 hexadecimal digits | bytes of workspace | us | us of the first
// The product is types, m x n x k, transposes, strides, epilogue and log2 of the alignments; times are of the chosen
// algorithm and of the heuristic's first. The algorithm is cuBLASLt's own structure, which its header allows to be kept
// for the same version of the library. Choices for another GPU or version stay in the file and are not used.
#pragma once

#include <cublasLt.h>

#include <functional>
#include <map>
#include <string>

#include "base/handle.h"
#include "kernels/cuda_loader.h"

namespace triax::kernels {

struct GemmChoice {
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace_bytes = 0;
  double time_us = 0, first_us = 0;
};

class GemmChoices {
 public:
  using Log = std::function<void(const std::string&)>;

  /// Reads the file; with GemmTuning::Measure makes it where there is none. ConfigError, with the line, for a file that
  /// is not such a one or cannot be opened.
  GemmChoices(const GemmSearch& search, std::string gpu, size_t version, size_t max_workspace_bytes, const Log& log);

  /// What is known of the product; null: nothing. Does not look into the file again.
  const GemmChoice* find(const std::string& product) const;
  bool measures() const { return measures_; }
  /// Holds the file against all other ranks while it reads what they added; then what is known of the product, or what
  /// `measure` says, which is added to the file. `measure` must not wait for another rank.
  const GemmChoice& find_or_measure(const std::string& product, const std::function<GemmChoice()>& measure);
  const std::string& path() const { return path_; }

 private:
  struct FilePolicy {
    using type = int;
    static type null() noexcept { return -1; }
    static void destroy(type raw) noexcept;
  };
  /// RunTimeError when another process holds the file for longer than the search has patience.
  void lock(int how) const;
  void read_new_lines();
  void take_line(const std::string& line);
  [[noreturn]] void fail(const std::string& what) const;
  void append(const std::string& text);

  std::string path_, gpu_;
  size_t version_, max_workspace_bytes_;
  bool measures_;
  double patience_s_;
  Handle<FilePolicy> file_;
  size_t lines_ = 0;
  int64_t read_ = 0;  ///< bytes of whole lines
  std::map<std::string, GemmChoice> choices_;
  std::map<std::string, int> others_;  ///< "GPU, cuBLASLt V" to choices for it
};

}  // namespace triax::kernels
