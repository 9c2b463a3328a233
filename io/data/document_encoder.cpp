#include "io/data/document_encoder.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/error.h"

namespace triax::io {

namespace {

/// What is wrong with one line of JSON.
class BadLine : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Encoder {
 public:
  Encoder(const EncoderOptions& options, const Tokenizer& tokenizer) : options_(options), tokenizer_(tokenizer) {
    if (options.append_eod) {
      ensure(tokenizer.eod().has_value(), "encode_documents: the tokenizer has no end-of-document token");
      eod_ = *tokenizer.eod();
    }
  }

  void begin_document(EncodedDocuments& out) const { out.sequences.push_back(0); }

  void add_sequence(EncodedDocuments& out, std::string_view text) const {
    const size_t before = out.tokens.size();
    tokenizer_.encode(text, out.tokens);
    const size_t length = out.tokens.size() - before;
    out.text_bytes += static_cast<int64_t>(text.size());
    if (length == 0) return;
    if (length >= static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
      throw RunTimeError(
          fmt::format("a document has {} tokens, the format holds 2^31-1 in one; cut it, for example with "
                      "--document-separator",
                      length));
    }
    out.sequence_lengths.push_back(static_cast<int32_t>(length));
    ++out.sequences.back();
  }

  void end_document(EncodedDocuments& out) const {
    if (!options_.append_eod || out.sequences.back() == 0) return;
    out.tokens.push_back(eod_);
    ++out.sequence_lengths.back();
  }

 private:
  const EncoderOptions& options_;
  const Tokenizer& tokenizer_;
  int32_t eod_ = 0;
};

// The texts of each key; all are checked before any is encoded, so that a skipped line leaves nothing.
nlohmann::json parse_line(std::string_view line, const std::vector<std::string>& keys) {
  nlohmann::json value;
  try {
    value = nlohmann::json::parse(line);
  } catch (const nlohmann::json::exception& fault) {
    const std::string words = fault.what();
    const size_t after = words.find("] ");
    throw BadLine(fmt::format("no valid JSON: {}", after == std::string::npos ? words : words.substr(after + 2)));
  }
  if (!value.is_object()) throw BadLine("is no JSON object");
  for (const std::string& key : keys) {
    const auto at = value.find(key);
    if (at == value.end()) throw BadLine(fmt::format("has no key \"{}\"", key));
    bool good = at->is_string() || at->is_array();
    if (at->is_array()) {
      for (const auto& part : *at) good = good && part.is_string();
    }
    if (!good) throw BadLine(fmt::format("key \"{}\" holds neither a string nor a list of strings", key));
  }
  return value;
}

void encode_line(std::string_view line, const EncoderOptions& options, const Encoder& encoder, EncodedBatch& out) {
  const nlohmann::json value = parse_line(line, options.json_keys);
  for (size_t k = 0; k < options.json_keys.size(); ++k) {
    const nlohmann::json& text = value.at(options.json_keys[k]);
    encoder.begin_document(out.keys[k]);
    if (text.is_string()) {
      encoder.add_sequence(out.keys[k], text.get_ref<const std::string&>());
    } else {
      for (const auto& part : text) encoder.add_sequence(out.keys[k], part.get_ref<const std::string&>());
    }
    encoder.end_document(out.keys[k]);
  }
}

}  // namespace

EncodedBatch encode_documents(const DocumentBatch& batch, const EncoderOptions& options, const Tokenizer& tokenizer) {
  const Encoder encoder(options, tokenizer);
  if (batch.format != InputFormat::Jsonl && options.json_keys.size() > 1) {
    throw ConfigError(
        fmt::format("--json-keys: {} is read as plain text, which has one output; give one key, or "
                    "--input-format jsonl",
                    batch.source));
  }
  EncodedBatch out;
  out.number = batch.number;
  out.input_bytes = static_cast<int64_t>(batch.bytes.size());
  out.keys.resize(options.json_keys.size());
  for (size_t i = 0; i < batch.ends.size(); ++i) {
    if (batch.format != InputFormat::Jsonl) {
      encoder.begin_document(out.keys[0]);
      encoder.add_sequence(out.keys[0], batch.document(i));
      encoder.end_document(out.keys[0]);
      continue;
    }
    try {
      encode_line(batch.document(i), options, encoder, out);
    } catch (const BadLine& fault) {
      const std::string what = fmt::format("{} line {}: {}", batch.source, batch.lines[i], fault.what());
      if (!options.skip_bad_lines) {
        throw RunTimeError(what + "; mend the line, or drop such lines with --skip-bad-lines");
      }
      if (out.bad_lines++ == 0) out.first_bad_line = what;
    }
  }
  return out;
}

}  // namespace triax::io
