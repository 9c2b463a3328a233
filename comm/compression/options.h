// What a run asks of gradient compression.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace triax::comm {

enum class CompressionMethod : uint8_t { None, TopK, OneBitAdam, PowerSgd, Qsgd, Int8, BFloat16 };
/// "none", "topk", "onebit-adam", "powersgd", "qsgd", "int8", "bf16".
std::string_view name_of(CompressionMethod method);

struct CompressionOptions {
  CompressionMethod method = CompressionMethod::None;
  double density = 0.01;               ///< topk: share of the elements that is sent
  int64_t rank = 4;                    ///< powersgd
  int64_t levels = 127;                ///< qsgd: steps between 0 and the norm of a block, 1 to 127
  int64_t block_length = 0;            ///< elements with one scale; 0: 256, onebit-adam 2048
  std::optional<bool> error_feedback;  ///< not given: yes but for qsgd, which is unbiased without
  int64_t min_elements = 1024;         ///< tensors of the model with fewer travel as they are
  int64_t warmup_steps = -1;           ///< updates with plain sums before compression; -1: 0, onebit-adam 100
  bool exempt_embedding = true, exempt_head = true;
  bool feedback() const { return error_feedback.value_or(method != CompressionMethod::Qsgd); }
  int64_t warmup() const {
    return warmup_steps >= 0 ? warmup_steps : method == CompressionMethod::OneBitAdam ? 100 : 0;
  }
  int64_t block() const {
    return block_length > 0 ? block_length : method == CompressionMethod::OneBitAdam ? 2048 : 256;
  }
};

}  // namespace triax::comm
