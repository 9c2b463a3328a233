// Trains a SentencePiece model (Kudo & Richardson 2018, arXiv 1808.06226).
#pragma once

#include <string>

#include "io/tokenizer/train.h"

namespace triax::io {

/// Content of a .model file of `options.model_type` with `options.vocab_size` pieces, trained on the lines of `source`.
/// Lossless settings, as Llama 2's: identity normalisation, blanks kept, single digits, bytes for rare characters; ids
/// 0 <unk>, 1 <s>, 2 </s>. One thread, so the result depends on the text alone. Throws ConfigError with SentencePiece's
/// words when the vocabulary does not fit the text.
std::string train_sentence_piece(const TrainTokenizerOptions& options, const TextSource& source);

}  // namespace triax::io
