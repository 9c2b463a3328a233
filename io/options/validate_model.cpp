#include <cmath>

#include "io/options/fault_list.h"

namespace triax::io {
namespace {

void check_attention(const model::ModelConfig& m, FaultList& faults) {
  const int64_t heads = m.num_attention_heads;
  if (m.kv_channels <= 0 && m.hidden_size % heads != 0) {
    faults.add("num-attention-heads", heads, fmt::format("must divide --hidden-size {}", m.hidden_size),
               nearest_divisors(m.hidden_size, heads) + ", or name --kv-channels");
  }
  if (m.num_query_groups <= 0 || heads % m.num_query_groups != 0) {
    faults.add("num-query-groups", m.num_query_groups, fmt::format("must divide --num-attention-heads {}", heads),
               nearest_divisors(heads, std::max<int64_t>(m.num_query_groups, 1)));
  }
  if (m.position != model::PositionType::Rope || m.kv_channels <= 0) return;
  const auto rotated = static_cast<int64_t>(std::floor(static_cast<double>(m.kv_channels) * m.rotary_percent));
  if (m.kv_channels % 2 != 0) {
    faults.add("kv-channels", m.kv_channels, "rotary positions turn pairs of channels",
               fmt::format("an even number, {} or {}", m.kv_channels - 1, m.kv_channels + 1));
  } else if (rotated % 2 != 0 || rotated == 0) {
    const int64_t even = std::max<int64_t>(rotated / 2 * 2, 2);
    faults.add("rotary-percent", m.rotary_percent,
               fmt::format("rotates {} of {} channels, which must be an even number", rotated, m.kv_channels),
               fmt::format("{}", static_cast<double>(even) / static_cast<double>(m.kv_channels)));
  }
}

}  // namespace

void check_model(const model::ModelConfig& m, FaultList& faults) {
  const char* const kOrModel = "a whole number of at least 1, or a named model with --model (--list-models)";
  if (m.num_layers <= 0) faults.missing("num-layers", kOrModel);
  if (m.hidden_size <= 0) faults.missing("hidden-size", kOrModel);
  if (m.num_attention_heads <= 0) faults.missing("num-attention-heads", kOrModel);
  if (m.seq_length <= 0) faults.missing("seq-length", kOrModel);
  if (m.hidden_size > 0 && m.ffn_hidden_size <= 0) {
    faults.add("hidden-size", m.hidden_size, "gives --swiglu a width of int(4h*2/3/64)*64 = 0",
               "--ffn-hidden-size with a width of its own");
  }
  if (m.hidden_size > 0 && m.num_attention_heads > 0) check_attention(m, faults);
  if (m.position == model::PositionType::Learned && m.seq_length > m.max_position_embeddings) {
    faults.add(
        "seq-length", m.seq_length,
        fmt::format("is longer than the learned positions, --max-position-embeddings {}", m.max_position_embeddings),
        fmt::format("at most {}, or more positions", m.max_position_embeddings));
  }
  for (const auto& [name, value] :
       {std::pair{"hidden-dropout", m.hidden_dropout}, std::pair{"attention-dropout", m.attention_dropout}}) {
    if (!(value >= 0 && value < 1)) faults.add(name, value, "must be in [0, 1)", "0 to switch dropout off");
  }
}

}  // namespace triax::io
