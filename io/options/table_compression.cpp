// Compression of the gradient sums over dp.
#include "io/options/entries.h"
#include "kernels/compression.h"

namespace triax::io {
namespace {

using comm::CompressionMethod;
constexpr OptionGroup kCompressionGroup = OptionGroup::Parallel;

OptionEntry method() {
  return choice_option<CompressionMethod>(
      "grad-compression", kCompressionGroup,
      {{"none", CompressionMethod::None},
       {"topk", CompressionMethod::TopK},
       {"onebit-adam", CompressionMethod::OneBitAdam},
       {"powersgd", CompressionMethod::PowerSgd},
       {"qsgd", CompressionMethod::Qsgd},
       {"int8", CompressionMethod::Int8},
       {"bf16", CompressionMethod::BFloat16}},
      [](auto& o) -> auto& { return o.parallel.compression.method; },
      "how gradients travel over dp, with ZeRO 0 or 1; docs/zero.md");
}

OptionEntry error_feedback() {
  OptionEntry entry = derived_option("grad-compression-error-feedback", ValueKind::Switch, kCompressionGroup, "",
                                     "what was not sent is added to the next gradient; default yes, but for qsgd");
  entry.set = [](RunOptions& o, const std::vector<std::string>& values) -> std::string {
    o.parallel.compression.error_feedback = values[0] == "true";
    return {};
  };
  entry.get = [](const RunOptions& o) -> std::vector<std::string> {
    if (!o.parallel.compression.error_feedback) return {};
    return {*o.parallel.compression.error_feedback ? "true" : "false"};
  };
  return entry;
}

OptionEntry exempt() {
  OptionEntry entry = derived_option("grad-compression-exempt", ValueKind::Value, kCompressionGroup,
                                     "embedding,head|embedding|head|none",
                                     "parts of the model whose gradients are not compressed; default embedding,head");
  entry.set = [](RunOptions& o, const std::vector<std::string>& values) -> std::string {
    const std::string& v = values[0];
    if (v != "none" && v != "embedding" && v != "head" && v != "embedding,head" && v != "head,embedding") {
      return "must be embedding,head, embedding, head or none";
    }
    o.parallel.compression.exempt_embedding = v.find("embedding") != std::string::npos;
    o.parallel.compression.exempt_head = v.find("head") != std::string::npos;
    return {};
  };
  entry.get = [](const RunOptions& o) -> std::vector<std::string> {
    const comm::CompressionOptions& c = o.parallel.compression;
    if (c.exempt_embedding) return {c.exempt_head ? "embedding,head" : "embedding"};
    return {c.exempt_head ? "head" : "none"};
  };
  return entry;
}

}  // namespace

std::vector<OptionEntry> compression_entries() {
  return {
      method(),
      real_option(
          "grad-compression-density", kCompressionGroup, {0, 1, true, false},
          [](auto& o) -> auto& { return o.parallel.compression.density; }, "topk: share of the elements that is sent"),
      integer_option(
          "grad-compression-rank", kCompressionGroup, {1, kMostWidth},
          [](auto& o) -> auto& { return o.parallel.compression.rank; }, "powersgd: columns of the two factors"),
      integer_option(
          "grad-compression-levels", kCompressionGroup, {1, 127},
          [](auto& o) -> auto& { return o.parallel.compression.levels; },
          "qsgd: steps between 0 and the norm of a block"),
      integer_option(
          "grad-compression-block", kCompressionGroup, {1, kernels::kLongestBlock},
          [](auto& o) -> auto& { return o.parallel.compression.block_length; },
          "elements with one scale in int8, qsgd and onebit-adam; default 256, onebit-adam 2048"),
      error_feedback(),
      exempt(),
      integer_option(
          "grad-compression-min-elements", kCompressionGroup, {0, kMostCount},
          [](auto& o) -> auto& { return o.parallel.compression.min_elements; },
          "tensors of the model with fewer elements are not compressed"),
      other_names(
          integer_option(
              "grad-compression-warmup-steps", kCompressionGroup, {0, kMostCount},
              [](auto& o) -> auto& { return o.parallel.compression.warmup_steps; },
              "updates before the first compressed one; default 0, onebit-adam 100: then its second moment is frozen"),
          "optimizer.params.freeze_step", ""),
  };
}

}  // namespace triax::io
