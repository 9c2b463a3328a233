// The parts of a tokenizer.json, each read into a BpeSpec. All throw std::invalid_argument with the reason for whatever
// would encode otherwise than the Hugging Face library does.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "io/tokenizer/bpe_tokenizer.h"

namespace triax::io {

/// "model": BPE over the byte alphabet, no dropout, no affixes, no byte fallback.
BpeVocabulary read_bpe_model(const nlohmann::json& model);

/// "normalizer": null, NFC, NFD, NFKC, NFKD or a Sequence of at most one of them.
void read_normalizer(const nlohmann::json& normalizer, BpeSpec& spec);

/// "pre_tokenizer": ByteLevel, alone or last in a Sequence after Split and Digits.
void read_pre_tokenizer(const nlohmann::json& pre_tokenizer, BpeSpec& spec);

/// "added_tokens": matched as they stand (no lstrip, rstrip or single_word).
void read_added_tokens(const nlohmann::json& added_tokens, BpeSpec& spec);

/// "post_processor": null, ByteLevel, TemplateProcessing of one text, or a Sequence of them.
void read_post_processor(const nlohmann::json& post_processor, BpeSpec& spec);

}  // namespace triax::io
