#include "io/data/byte_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/handle.h"

namespace triax::io {

namespace {

constexpr size_t kBlockBytes = size_t{1} << 18;

struct InputPolicy {
  using type = int;
  static type null() noexcept { return -1; }
  static void destroy(type descriptor) noexcept {
    if (descriptor != STDIN_FILENO) ::close(descriptor);
  }
};

class FileSource final : public ByteSource {
 public:
  explicit FileSource(const std::string& path) : path_(path == "-" ? "standard input" : path) {
    file_ = Handle<InputPolicy>(path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status {};
    if (!file_ || ::fstat(file_.get(), &status) != 0) fail("open");
    if (S_ISDIR(status.st_mode)) {
      throw RunTimeError(
          fmt::format("{}: is a directory; name its files (a shell pattern such as {}/* will do)", path, path));
    }
  }

  size_t read(std::span<char> out) override {
    for (;;) {
      const ssize_t got = ::read(file_.get(), out.data(), out.size());
      if (got >= 0) return static_cast<size_t>(got);
      if (errno != EINTR) fail("read");
    }
  }
  const std::string& name() const { return path_; }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw RunTimeError(fmt::format("{}: cannot {}: {}", path_, what, std::strerror(errno)));
  }
  std::string path_;
  Handle<InputPolicy> file_;
};

/// The compressed side of a decoder: a block of input, and how far it is used.
struct Input {
  explicit Input(FileSource source) : file(std::move(source)), block(kBlockBytes) { fill(); }
  /// Reads the next block when this one is used up; false at the end.
  bool fill() {
    if (used < size) return true;
    used = 0;
    size = file.read(block);
    return size > 0;
  }
  /// Reads on until `count` bytes lie in the block or the input ends (a pipe may give them piecemeal).
  void at_least(size_t count) {
    while (size < count) {
      const size_t got = file.read(std::span(block).subspan(size));
      if (got == 0) return;
      size += got;
    }
  }
  FileSource file;
  std::vector<char> block;
  size_t used = 0;
  size_t size = 0;
};

class PlainSource final : public ByteSource {
 public:
  explicit PlainSource(Input input) : input_(std::move(input)) {}
  size_t read(std::span<char> out) override {
    if (input_.used == input_.size) return input_.file.read(out);
    const size_t count = std::min(out.size(), input_.size - input_.used);
    std::memcpy(out.data(), input_.block.data() + input_.used, count);
    input_.used += count;
    return count;
  }

 private:
  Input input_;
};

class GzipSource final : public ByteSource {
 public:
  explicit GzipSource(Input input) : input_(std::move(input)) {
    ensure(::inflateInit2(&stream_, 15 + 16) == Z_OK, "inflateInit2 failed");
  }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;
  GzipSource(GzipSource&&) = delete;
  GzipSource& operator=(GzipSource&&) = delete;
  ~GzipSource() override { ::inflateEnd(&stream_); }

  size_t read(std::span<char> out) override {
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    while (stream_.avail_out == out.size()) {
      if (!input_.fill()) {
        if (inside_) fail("ends within its compressed data");
        return 0;
      }
      if (!inside_) {  // the next member of a concatenation
        ::inflateReset(&stream_);
        inside_ = true;
      }
      stream_.next_in = reinterpret_cast<Bytef*>(input_.block.data() + input_.used);
      stream_.avail_in = static_cast<uInt>(input_.size - input_.used);
      const int code = ::inflate(&stream_, Z_NO_FLUSH);
      input_.used = input_.size - stream_.avail_in;
      if (code == Z_STREAM_END) {
        inside_ = false;
      } else if (code != Z_OK && code != Z_BUF_ERROR) {
        fail(stream_.msg != nullptr ? stream_.msg : "bad data");
      }
    }
    return out.size() - stream_.avail_out;
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw RunTimeError(fmt::format("{}: damaged gzip data: {}", input_.file.name(), what));
  }
  Input input_;
  z_stream stream_{};
  bool inside_ = true;
};

struct ZstdPolicy {
  using type = ZSTD_DStream*;
  static type null() noexcept { return nullptr; }
  static void destroy(type stream) noexcept { ZSTD_freeDStream(stream); }
};

class ZstdSource final : public ByteSource {
 public:
  explicit ZstdSource(Input input) : input_(std::move(input)), stream_(ZSTD_createDStream()) {
    ensure(static_cast<bool>(stream_), "ZSTD_createDStream failed");
  }

  size_t read(std::span<char> out) override {
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    while (to.pos == 0) {
      // What the decoder still holds comes out without further input.
      if (!input_.fill() && !pending_) {
        if (inside_) fail("ends within its compressed data");
        return 0;
      }
      ZSTD_inBuffer from{input_.block.data(), input_.size, input_.used};
      const size_t code = ZSTD_decompressStream(stream_.get(), &to, &from);
      if (ZSTD_isError(code)) fail(ZSTD_getErrorName(code));
      input_.used = from.pos;
      inside_ = code != 0;
      pending_ = to.pos == to.size;
    }
    return to.pos;
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw RunTimeError(fmt::format("{}: damaged zstd data: {}", input_.file.name(), what));
  }
  Input input_;
  Handle<ZstdPolicy> stream_;
  bool inside_ = true;
  bool pending_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> open_byte_source(const std::string& path) {
  Input input{FileSource(path)};
  input.at_least(4);
  const auto begins_with = [&input](std::string_view magic) {
    return input.size >= magic.size() && std::memcmp(input.block.data(), magic.data(), magic.size()) == 0;
  };
  if (begins_with("\x1f\x8b")) return std::make_unique<GzipSource>(std::move(input));
  if (begins_with("\x28\xb5\x2f\xfd")) return std::make_unique<ZstdSource>(std::move(input));
  return std::make_unique<PlainSource>(std::move(input));
}

}  // namespace triax::io
