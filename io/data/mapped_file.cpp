#include "io/data/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/handle.h"

namespace triax::io {

namespace {

struct DescriptorPolicy {
  using type = int;
  static type null() noexcept { return -1; }
  static void destroy(type descriptor) noexcept { ::close(descriptor); }
};

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const Handle<DescriptorPolicy> file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw RunTimeError(fmt::format("{}: cannot open: {}", path, std::strerror(errno)));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) {
    throw RunTimeError(fmt::format("{}: cannot read its size: {}", path, std::strerror(errno)));
  }
  if (!S_ISREG(status.st_mode)) throw RunTimeError(fmt::format("{}: is not a regular file", path));
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) {
    throw RunTimeError(fmt::format("{}: cannot map {} bytes: {}", path, size_, std::strerror(errno)));
  }
  data_ = static_cast<const std::byte*>(data);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, size_t{0})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::advise_sequential() const {
  if (data_ != nullptr) ::madvise(const_cast<std::byte*>(data_), size_, MADV_SEQUENTIAL);
}

void MappedFile::advise_random() const {
  if (data_ != nullptr) ::madvise(const_cast<std::byte*>(data_), size_, MADV_RANDOM);
}

void MappedFile::will_need(const std::byte* from, size_t size_bytes) const {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const auto before = static_cast<size_t>(from - data_) % page;
  ::madvise(const_cast<std::byte*>(from - before), size_bytes + before, MADV_WILLNEED);
}

}  // namespace triax::io
