#include "io/data/build_dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "io/data/description.h"
#include "io/data/indexed_writer.h"

namespace triax::io {

namespace {

namespace fs = std::filesystem;

/// Reads and encodes on threads; next() gives batches in order, or rethrows what the earliest failed batch threw.
class Pipeline {
 public:
  Pipeline(const BuildRequest& request, const Tokenizer& tokenizer)
      : request_(request), tokenizer_(tokenizer), ahead_(4 * static_cast<int64_t>(request.workers) + 4) {
    threads_.emplace_back([this] { read(); });
    for (int i = 0; i < request.workers; ++i) threads_.emplace_back([this] { encode(); });
  }
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;
  Pipeline(Pipeline&&) = delete;
  Pipeline& operator=(Pipeline&&) = delete;
  ~Pipeline() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  std::optional<EncodedBatch> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_.contains(wanted_) || (read_all_ && wanted_ == batches_); });
    const auto at = done_.find(wanted_);
    if (at == done_.end()) {
      if (read_error_) std::rethrow_exception(read_error_);
      return std::nullopt;
    }
    Done done = std::move(at->second);
    done_.erase(at);
    ++wanted_;
    changed_.notify_all();
    if (done.error) std::rethrow_exception(done.error);
    return std::move(done.batch);
  }

 private:
  struct Done {
    EncodedBatch batch;
    std::exception_ptr error;
  };

  void read() {
    std::exception_ptr error;
    try {
      DocumentReader reader(request_.input);
      while (auto batch = reader.next()) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return stop_ || batches_ - wanted_ < ahead_; });
        if (stop_) return;
        waiting_.push_back(std::move(*batch));
        ++batches_;
        changed_.notify_all();
      }
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    read_error_ = error;
    read_all_ = true;
    changed_.notify_all();
  }

  void encode() {
    for (;;) {
      DocumentBatch batch;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return stop_ || !waiting_.empty() || read_all_; });
        if (stop_ || waiting_.empty()) return;
        batch = std::move(waiting_.front());
        waiting_.pop_front();
      }
      Done done;
      try {
        done.batch = encode_documents(batch, request_.encoder, tokenizer_);
      } catch (...) {
        done.error = std::current_exception();
      }
      const std::lock_guard lock(mutex_);
      done_.emplace(batch.number, std::move(done));
      changed_.notify_all();
    }
  }

  const BuildRequest& request_;
  const Tokenizer& tokenizer_;
  const int64_t ahead_;  // batches in flight, which bounds memory
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<DocumentBatch> waiting_;
  std::map<int64_t, Done> done_;
  int64_t wanted_ = 0;
  int64_t batches_ = 0;
  bool read_all_ = false;
  bool stop_ = false;
  std::exception_ptr read_error_;
  std::vector<std::thread> threads_;
};

std::vector<std::string> output_prefixes(const BuildRequest& request) {
  std::vector<std::string> prefixes;
  std::vector<std::string> present;
  for (const std::string& key : request.encoder.json_keys) {
    prefixes.push_back(fmt::format("{}_{}_document", request.output_prefix, key));
    for (const char* suffix : {".bin", ".idx", ".json"}) {
      if (fs::exists(prefixes.back() + suffix)) present.push_back(prefixes.back() + suffix);
    }
  }
  if (!present.empty() && !request.overwrite) {
    throw ConfigError(
        fmt::format("--output-prefix {}: {} exists; choose another prefix, or replace it with --overwrite",
                    request.output_prefix, fmt::join(present, ", ")));
  }
  const fs::path directory = fs::path(request.output_prefix).parent_path();
  std::error_code error;
  if (!directory.empty()) fs::create_directories(directory, error);
  if (error) throw RunTimeError(fmt::format("{}: cannot make the directory: {}", directory.string(), error.message()));
  return prefixes;
}

void write_documents(const EncodedDocuments& documents, IndexedDatasetWriter& writer) {
  size_t token = 0;
  size_t sequence = 0;
  for (const size_t count : documents.sequences) {
    const auto lengths = std::span(documents.sequence_lengths).subspan(sequence, count);
    size_t tokens = 0;
    for (const int32_t length : lengths) tokens += static_cast<size_t>(length);
    writer.add_document(std::span(documents.tokens).subspan(token, tokens), lengths);
    token += tokens;
    sequence += count;
  }
}

class BuildProgress {
 public:
  explicit BuildProgress(int64_t interval) : interval_(interval), next_(interval) {}
  void at(int64_t documents, int64_t bytes) {
    if (interval_ <= 0 || documents < next_) return;
    next_ = (documents / interval_ + 1) * interval_;
    spdlog::info("{} documents, {:.1f} MB, {:.1f} MB/s", documents, static_cast<double>(bytes) / 1e6,
                 static_cast<double>(bytes) / 1e6 / watch_.elapsed_s());
  }
  double seconds() const { return watch_.elapsed_s(); }

 private:
  int64_t interval_;
  int64_t next_;
  Stopwatch watch_;
};

}  // namespace

BuildReport build_dataset(const BuildRequest& request, const Tokenizer& tokenizer) {
  BuildReport report;
  report.prefixes = output_prefixes(request);
  BuildProgress progress(request.log_interval);
  std::vector<DatasetDescription> descriptions(report.prefixes.size());
  std::vector<std::unique_ptr<IndexedDatasetWriter>> writers;
  for (const std::string& prefix : report.prefixes) {
    writers.push_back(std::make_unique<IndexedDatasetWriter>(prefix, token_type_for(tokenizer.vocab_size())));
  }
  Pipeline pipeline(request, tokenizer);
  while (const auto batch = pipeline.next()) {
    for (size_t k = 0; k < writers.size(); ++k) {
      write_documents(batch->keys[k], *writers[k]);
      descriptions[k].text_bytes += batch->keys[k].text_bytes;
    }
    report.input_bytes += batch->input_bytes;
    if (batch->bad_lines > 0 && report.bad_lines == 0) spdlog::warn("skipped {}", batch->first_bad_line);
    report.bad_lines += batch->bad_lines;
    progress.at(writers[0]->documents(), report.input_bytes);
  }
  for (size_t k = 0; k < writers.size(); ++k) {
    DatasetDescription& description = descriptions[k];
    description.tokenizer = request.tokenizer;
    description.tokenizer_hash = tokenizer.hash();
    description.vocab_size = tokenizer.vocab_size();
    description.eod = tokenizer.eod();
    description.eod_appended = request.encoder.append_eod;
    description.token_type = token_type_for(tokenizer.vocab_size());
    description.documents = writers[k]->documents();
    description.tokens = writers[k]->tokens();
    description.sources = request.input.inputs;
    report.tokens += description.tokens;
    report.text_bytes += description.text_bytes;
    // An old description must not be seen beside new tokens.
    fs::remove(report.prefixes[k] + ".json");
    writers[k]->finish();
    write_description(report.prefixes[k], description);
  }
  report.documents = descriptions[0].documents;
  report.seconds = progress.seconds();
  return report;
}

}  // namespace triax::io
