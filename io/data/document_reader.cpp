#include "io/data/document_reader.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

namespace triax::io {

namespace {

constexpr size_t kDocumentReadBytes = size_t{1} << 20;
constexpr std::string_view kBlanks = " \t\r\n\f\v";

bool is_blank(std::string_view text) { return text.find_first_not_of(kBlanks) == std::string_view::npos; }

bool named_as_json(const std::string& path) {
  std::filesystem::path name(path);
  if (name.extension() == ".gz" || name.extension() == ".zst") name = name.stem();
  const std::string extension = name.extension().string();
  return extension == ".jsonl" || extension == ".json" || extension == ".ndjson";
}

}  // namespace

DocumentReader::DocumentReader(Options options) : options_(std::move(options)) {}

bool DocumentReader::read_more() {
  if (begin_ > 0) {
    buffer_.erase(0, begin_);
    scanned_ -= begin_;
    begin_ = 0;
  }
  const size_t size = buffer_.size();
  // Growing by half at least keeps a document of many blocks linear in time.
  buffer_.resize(size + std::max(kDocumentReadBytes, size / 2));
  const size_t got = source_->read(std::span(buffer_).subspan(size));
  buffer_.resize(size + got);
  return got > 0;
}

void DocumentReader::open_next() {
  const std::string& path = options_.inputs[next_input_++];
  source_ = open_byte_source(path);
  buffer_.clear();
  begin_ = scanned_ = 0;
  line_ = 0;
  format_ = options_.format;
  if (format_ == InputFormat::Auto) {
    bool json = named_as_json(path);
    if (path == "-") {
      while (is_blank(buffer_) && read_more()) continue;
      json = !is_blank(buffer_) && buffer_[buffer_.find_first_not_of(kBlanks)] == '{';
    }
    format_ = json ? InputFormat::Jsonl : InputFormat::Text;
  }
  separator_ = format_ == InputFormat::Jsonl ? "\n" : options_.separator;
}

// Length of the current document when its separator lies in the buffer.
std::optional<size_t> DocumentReader::find_separator() {
  if (separator_.empty()) return std::nullopt;
  const size_t at = buffer_.find(separator_, scanned_);
  if (at != std::string::npos) return at - begin_;
  // The separator may be cut by the buffer's end.
  const size_t tail = buffer_.size() < separator_.size() ? 0 : buffer_.size() - separator_.size() + 1;
  scanned_ = std::max(begin_, tail);
  return std::nullopt;
}

void DocumentReader::take(DocumentBatch& batch, size_t length, size_t separator_length) {
  const std::string_view document = std::string_view(buffer_).substr(begin_, length);
  begin_ += length + separator_length;
  scanned_ = begin_;
  ++line_;
  if (!separator_.empty() && is_blank(document)) return;
  batch.bytes.append(document);
  batch.ends.push_back(batch.bytes.size());
  if (format_ == InputFormat::Jsonl) batch.lines.push_back(line_);
}

std::optional<DocumentBatch> DocumentReader::next() {
  DocumentBatch batch;
  while (batch.ends.empty()) {
    if (source_ == nullptr) {
      if (next_input_ == options_.inputs.size()) return std::nullopt;
      open_next();
    }
    batch.source = options_.inputs[next_input_ - 1];
    batch.format = format_;
    while (batch.bytes.size() < options_.batch_bytes) {
      if (const auto length = find_separator()) {
        take(batch, *length, separator_.size());
      } else if (!read_more()) {
        // Without a separator the rest is the whole file, also when it is empty.
        if (separator_.empty() || begin_ < buffer_.size()) take(batch, buffer_.size() - begin_, 0);
        source_.reset();
        break;
      }
    }
  }
  batch.number = batches_++;
  return batch;
}

}  // namespace triax::io
