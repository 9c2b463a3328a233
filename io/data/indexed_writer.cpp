#include "io/data/indexed_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace triax::io {

namespace {

template <class T>
void pack(std::span<const int32_t> tokens, std::vector<std::byte>& out) {
  out.resize(tokens.size() * sizeof(T));
  bool good = true;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto value = static_cast<T>(tokens[i]);
    good &= static_cast<int64_t>(value) == int64_t{tokens[i]} && tokens[i] >= 0;
    std::memcpy(out.data() + i * sizeof(T), &value, sizeof(T));
  }
  ensure(good, "IndexedDatasetWriter: a token does not fit the file's type");
}

}  // namespace

IndexedDatasetWriter::IndexedDatasetWriter(const std::string& prefix, TokenType type)
    : prefix_(prefix), type_(type), bin_(prefix + ".bin"), idx_(prefix + ".idx") {
  ensure(type != TokenType::Float32 && type != TokenType::Float64, "IndexedDatasetWriter: floating tokens");
}

void IndexedDatasetWriter::add_document(std::span<const int32_t> tokens) {
  if (tokens.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    throw RunTimeError(fmt::format("{}: document {} has {} tokens, the format holds 2^31-1; split it into documents",
                                   prefix_, documents(), tokens.size()));
  }
  const auto length = static_cast<int32_t>(tokens.size());
  add_document(tokens, std::span(&length, tokens.empty() ? 0u : 1u));
}

void IndexedDatasetWriter::add_document(std::span<const int32_t> tokens, std::span<const int32_t> sequence_lengths) {
  ensure(std::accumulate(sequence_lengths.begin(), sequence_lengths.end(), int64_t{0}) ==
             static_cast<int64_t>(tokens.size()),
         "IndexedDatasetWriter: sequence lengths do not sum to the tokens");
  switch (type_) {
    case TokenType::UInt8:
      pack<uint8_t>(tokens, packed_);
      break;
    case TokenType::Int8:
      pack<int8_t>(tokens, packed_);
      break;
    case TokenType::Int16:
      pack<int16_t>(tokens, packed_);
      break;
    case TokenType::UInt16:
      pack<uint16_t>(tokens, packed_);
      break;
    case TokenType::Int64:
      pack<int64_t>(tokens, packed_);
      break;
    default:
      pack<int32_t>(tokens, packed_);
      break;
  }
  bin_.write(packed_.data(), packed_.size());
  bytes_ += static_cast<int64_t>(packed_.size());
  lengths_.insert(lengths_.end(), sequence_lengths.begin(), sequence_lengths.end());
  documents_.push_back(static_cast<int64_t>(lengths_.size()));
}

void IndexedDatasetWriter::append(const IndexedDataset& other) {
  ensure(other.type() == type_, "IndexedDatasetWriter::append: types differ");
  const auto before = static_cast<int64_t>(lengths_.size());
  for (int64_t i = 0; i < other.sequences(); ++i) lengths_.push_back(other.length(i));
  for (int64_t d = 1; d <= other.documents(); ++d) documents_.push_back(before + other.document_begin(d));
  const std::span<const std::byte> bytes = other.raw_tokens();
  bin_.write(bytes.data(), bytes.size());
  bytes_ += static_cast<int64_t>(bytes.size());
}

void IndexedDatasetWriter::finish() {
  const auto put = [this](auto value) { idx_.write(&value, sizeof(value)); };
  idx_.write("MMIDIDX\0\0", 9);
  put(uint64_t{1});
  put(static_cast<uint8_t>(type_));
  put(static_cast<uint64_t>(lengths_.size()));
  put(static_cast<uint64_t>(documents_.size()));
  idx_.write(lengths_.data(), lengths_.size() * sizeof(int32_t));
  int64_t offset = 0;
  for (const int32_t length : lengths_) {
    put(offset);
    offset += length * size_of(type_);
  }
  idx_.write(documents_.data(), documents_.size() * sizeof(int64_t));
  // An old index must never be seen beside the new tokens.
  ::unlink((prefix_ + ".idx").c_str());
  bin_.commit();
  idx_.commit();
}

}  // namespace triax::io
