// What products of fp8 need: a device, a 16-bit type to round from, and multiples of 16.
#include <algorithm>

#include "io/options/fault_list.h"

namespace triax::io {

void check_fp8(const RunOptions& options, FaultList& faults) {
  if (options.fp8.format == parallel::Fp8Format::None) return;
  const std::string value = options.fp8.format == parallel::Fp8Format::Hybrid ? "hybrid" : "e4m3";
  const Precision precision = options.control.precision;
  if (precision != Precision::Bf16 && precision != Precision::Fp16) {
    faults.add("fp8-format", value, "rounds products of 16-bit tensors", "--bf16 or --fp16 with it");
  }
  if (options.control.device == "cpu") {
    faults.add("fp8-format", value, "the CPU has no fp8 products", "--device cuda, or --bf16 alone");
  }
  constexpr int64_t kMultiple = 16;
  const model::ModelConfig& m = options.model;
  const int64_t t = options.parallel.grid.tensor;
  const auto need = [&](int64_t width, const std::string& what) {
    if (t > 0 && width % (kMultiple * t) != 0) {
      faults.add("fp8-format", value,
                 fmt::format("{} is {}, but fp8 products need a multiple of 16{}", what, width,
                             t > 1 ? fmt::format(" on each of {} tensor-parallel ranks", t) : ""),
                 nearest_multiples(kMultiple * t, width) + ", or --bf16 alone");
    }
  };
  if (m.hidden_size % kMultiple != 0) {
    faults.add("fp8-format", value,
               fmt::format("--hidden-size is {}, but fp8 products need a multiple of 16", m.hidden_size),
               nearest_multiples(kMultiple, m.hidden_size) + ", or --bf16 alone");
  }
  need(m.query_size(), "the width of the queries (heads x --kv-channels)");
  const int64_t here =
      t > 0 ? m.query_size() / t + 2 * std::max<int64_t>(1, m.num_query_groups / t) * m.kv_channels : 0;
  if (here % kMultiple != 0) {
    faults.add(
        "fp8-format", value,
        fmt::format("queries, keys and values of a rank are {} wide, but fp8 products need a multiple of 16", here),
        "other heads or --kv-channels, or --bf16 alone");
  }
  need(m.ffn_hidden_size, "--ffn-hidden-size");
  const int64_t tokens = m.seq_length * options.batch.micro_batch_size;
  if (tokens % kMultiple != 0) {
    faults.add("fp8-format", value,
               fmt::format("a micro-batch has {} tokens, but fp8 products need a multiple of 16", tokens),
               "a --seq-length or --micro-batch-size that gives one, or --bf16 alone");
  }
}

}  // namespace triax::io
