#include "kernels/cuda/gemm_choices.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"

namespace triax::kernels {
namespace {

constexpr const char* kHeader = "triax gemm choices 1";
constexpr const char* kParting = " | ";
constexpr size_t kWords = sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t), kDigits = 16;

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  for (size_t begin = 0;;) {
    const size_t end = line.find(kParting, begin);
    fields.push_back(line.substr(begin, end - begin));
    if (end == std::string::npos) return fields;
    begin = end + std::strlen(kParting);
  }
}

/// A whole text as a number; false when it is none.
bool parse(const std::string& text, int base, uint64_t& value) {
  if (text.empty() || text.find_first_not_of(base == 16 ? "0123456789abcdef" : "0123456789") != std::string::npos) {
    return false;
  }
  errno = 0;
  value = std::strtoull(text.c_str(), nullptr, base);
  return errno == 0;
}

bool parse(const std::string& text, double& value) {
  char* end = nullptr;
  value = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' && value >= 0;
}

std::string hexadecimal(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (const uint64_t word : algorithm.data) text += fmt::format("{:016x}", word);
  return text;
}

bool parse(const std::string& text, cublasLtMatmulAlgo_t& algorithm) {
  if (text.size() != kWords * kDigits) return false;
  for (size_t i = 0; i < kWords; ++i) {
    uint64_t word = 0;
    if (!parse(text.substr(i * kDigits, kDigits), 16, word)) return false;
    algorithm.data[i] = word;
  }
  return true;
}

}  // namespace

void GemmChoices::FilePolicy::destroy(type raw) noexcept { ::close(raw); }

void GemmChoices::fail(const std::string& what) const {
  throw ConfigError(fmt::format("--gemm-cache {}: {}", path_, what));
}

GemmChoices::GemmChoices(const GemmSearch& search, std::string gpu, size_t version, size_t max_workspace_bytes,
                         const Log& log)
    : path_(search.cache),
      gpu_(std::move(gpu)),
      version_(version),
      max_workspace_bytes_(max_workspace_bytes),
      measures_(search.tuning == GemmTuning::Measure),
      patience_s_(search.patience_s) {
  const int how = measures_ ? O_RDWR | O_CREAT | O_APPEND : O_RDONLY;
  file_ = Handle<FilePolicy>(::open(path_.c_str(), how | O_NONBLOCK, 0644));  // a pipe is refused, not waited for
  if (!file_) {
    const char* const words = std::strerror(errno);
    fail(fmt::format("cannot be opened: {}; {}", words,
                     measures_ ? "name a file that every rank may write"
                               : "name a file that --gemm-tuning measure made, or leave it out"));
  }
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    fail("is no regular file, which keeps what ranks write; name one that every rank sees");
  }
  lock(measures_ ? LOCK_EX : LOCK_SH);
  read_new_lines();
  if (lines_ == 0 && measures_) append(fmt::format("{}\n", kHeader));
  if (lines_ == 0) fail(fmt::format("is empty; a file of choices begins with \"{}\"", kHeader));
  ::flock(file_.get(), LOCK_UN);
  for (const auto& [of, count] : others_) {
    if (log) log(fmt::format("--gemm-cache {}: {} choices are for {} and not used", path_, count, of));
  }
}

// All ranks may stand here while the one that times a product is stopped, and no deadline of a communication runs.
void GemmChoices::lock(int how) const {
  constexpr std::chrono::milliseconds kPoll(1);
  const Stopwatch waited;
  while (::flock(file_.get(), how | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      fail(fmt::format("cannot be locked: {}; name a file on a file system that has locks", std::strerror(errno)));
    }
    if (waited.elapsed_s() > patience_s_) {
      throw RunTimeError(fmt::format(
          "--gemm-cache {}: another process has held the file for {:.1f} s (--distributed-timeout-minutes): "
          "a rank that stands still while it times a product, or another run",
          path_, waited.elapsed_s()));
    }
    std::this_thread::sleep_for(kPoll);
  }
}

void GemmChoices::read_new_lines() {
  std::string text;
  char piece[65536];
  while (true) {
    const ssize_t got = ::pread(file_.get(), piece, sizeof piece, read_ + static_cast<int64_t>(text.size()));
    if (got < 0) fail(fmt::format("cannot be read: {}", std::strerror(errno)));
    if (got == 0) break;
    text.append(piece, static_cast<size_t>(got));
  }
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    ++lines_;
    take_line(text.substr(begin, end - begin));
  }
  if (begin != text.size()) {
    ++lines_;
    fail(fmt::format("line {} has no end: a run was killed while it wrote; remove that line", lines_));
  }
  read_ += static_cast<int64_t>(begin);
}

void GemmChoices::take_line(const std::string& line) {
  if (lines_ == 1) {
    if (line != kHeader) fail(fmt::format("is no file of choices: it begins with \"{}\"", line.substr(0, 40)));
    return;
  }
  const std::vector<std::string> fields = fields_of(line);
  GemmChoice choice;
  uint64_t version = 0, workspace = 0;
  if (fields.size() != 7 || !parse(fields[1], 10, version) || !parse(fields[3], choice.algorithm) ||
      !parse(fields[4], 10, workspace) || workspace > max_workspace_bytes_ || !parse(fields[5], choice.time_us) ||
      !parse(fields[6], choice.first_us)) {
    fail(fmt::format("line {} is no choice of an algorithm: \"{}\"; remove the file to have products timed again",
                     lines_, line.substr(0, 80)));
  }
  if (fields[0] != gpu_ || version != version_) {
    ++others_[fmt::format("{}, cuBLASLt {}", fields[0], version)];
    return;
  }
  choice.workspace_bytes = workspace;
  choices_.emplace(fields[2], choice);  // the first one counts
}

const GemmChoice* GemmChoices::find(const std::string& product) const {
  const auto at = choices_.find(product);
  return at == choices_.end() ? nullptr : &at->second;
}

const GemmChoice& GemmChoices::find_or_measure(const std::string& product, const std::function<GemmChoice()>& measure) {
  struct Locked {
    int file;
    ~Locked() { ::flock(file, LOCK_UN); }
  };
  lock(LOCK_EX);
  const Locked locked{file_.get()};
  read_new_lines();
  if (const GemmChoice* const known = find(product)) return *known;
  const GemmChoice choice = measure();
  append(fmt::format("{} | {} | {} | {} | {} | {:.2f} | {:.2f}\n", gpu_, version_, product,
                     hexadecimal(choice.algorithm), choice.workspace_bytes, choice.time_us, choice.first_us));
  return choices_.emplace(product, choice).first->second;
}

void GemmChoices::append(const std::string& text) {
  if (::write(file_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    fail(fmt::format("cannot be written: {}", std::strerror(errno)));
  }
  ++lines_;
  read_ += static_cast<int64_t>(text.size());
}

}  // namespace triax::kernels
