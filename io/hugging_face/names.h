// The tensors of a Hugging Face model and ours: names, shapes, and how the values of one become the other's.
#pragma once

#include <string>
#include <vector>

#include "io/hugging_face/config.h"

namespace triax::io {

/// A tensor of ours: whole, in [out, in] order.
struct TensorPart {
  std::string name;
  std::vector<int64_t> shape;
};

/// GPT-2's linear layers (Conv1D) store [in, out].
enum class Storage { AsOurs, Transposed };

/// One tensor of theirs: its value is our parts' rows one after the other (GPT-2's c_attn holds q, k and v), stored as
/// said.
struct HubTensor {
  std::string name;
  std::vector<TensorPart> parts;
  Storage storage = Storage::AsOurs;
  /// [rows of all parts, cols], or [n].
  std::vector<int64_t> our_shape() const;
  std::vector<int64_t> stored_shape() const;
};

/// Every tensor of a model, in the order of the layers. A tied head is not among them. Llama's names are ours; GPT-2's
/// are those of GPT2LMHeadModel ("transformer.h.0.attn.c_attn.weight").
std::vector<HubTensor> hub_tensors(const model::ModelConfig& config, HubFamily family);

}  // namespace triax::io
