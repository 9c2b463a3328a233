#include "base/flight_recorder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>

#include "base/error.h"

namespace triax {
namespace {

/// All groups that find no room for a name of their own.
constexpr std::string_view kOtherNames = "other groups";

int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int64_t realtime_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

template <size_t kSize>
void set_text(std::array<char, kSize>& target, std::string_view text) {
  target.fill(0);
  std::memcpy(target.data(), text.data(), std::min(text.size(), kSize - 1));
}

[[noreturn]] void fail(const std::string& path, int error) {
  throw RunTimeError(fmt::format("{}: the flight recorder's file cannot be made: {}", path, std::strerror(error)));
}

/// A file of the full size whose blocks are reserved: a full disk must not end the run later by SIGBUS.
int make_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) fail(path, errno);
  const int error = ::posix_fallocate(file, 0, static_cast<off_t>(kFlightFileBytes));
  if (error == 0) return file;
  ::close(file);
  ::unlink(path.c_str());
  fail(path, error);
}

}  // namespace

const char* name_of(FlightPhase phase) {
  constexpr std::array<const char*, kFlightPhases> kNames{"MPI start", "build",    "data", "load",   "tune",
                                                          "step",      "evaluate", "save", "finish", "leave"};
  return kNames[static_cast<size_t>(phase)];
}

std::string flight_directory(const std::string& run_directory) { return run_directory + "/flight"; }

std::string flight_path(const std::string& run_directory, int rank) {
  return fmt::format("{}/rank-{:05}.flight", flight_directory(run_directory), rank);
}

std::string run_directory_of(const FlightHeader& header) {
  return std::filesystem::path(header.path.data()).parent_path().parent_path().string();
}

FlightRecorder::FlightRecorder() {
  memory_ = ::mmap(nullptr, kFlightFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory_ == MAP_FAILED) throw std::bad_alloc();
  FlightHeader& h = header();  // all zero
  h.magic = kFlightMagic;
  h.version = kFlightVersion;
  h.header_bytes = kFlightHeaderBytes;
  h.record_bytes = sizeof(FlightRecord);
  h.records = kFlightRecords;
  h.rank = -1;
  h.leaving.store(-1);
  h.start_realtime_ns = realtime_ns();
  h.start_monotonic_ns = monotonic_ns();
  set_process(::getpid(), 0);
}

FlightRecorder::~FlightRecorder() { ::munmap(memory_, kFlightFileBytes); }

void FlightRecorder::set_process(int pid, int parent_pid) {
  header().pid = pid;
  header().parent_pid = parent_pid;
}

void FlightRecorder::set_rank(int rank, int world, const std::string& host, double timeout_s) {
  header().world = world;
  set_text(header().host, host);
  header().timeout_s = timeout_s;
  header().rank = rank;
}

void FlightRecorder::set_place(const std::string& place) { set_text(header().place, place); }

void FlightRecorder::attach(const std::string& run_directory) {
  const std::string path = flight_path(run_directory, header().rank);
  std::error_code error;
  std::filesystem::create_directories(flight_directory(run_directory), error);
  if (error) fail(path, error.value());
  const int file = make_file(path);
  // Written before it is mapped over the old memory: what other threads record in between is lost, no more.
  FlightHeader& mine = header();
  const std::string absolute = std::filesystem::absolute(path).string();
  const bool copied = ::pwrite(file, memory_, kFlightFileBytes, 0) == static_cast<ssize_t>(kFlightFileBytes);
  set_text(mine.path, absolute);  // where the parent, which keeps the old memory, looks
  void* mapped = MAP_FAILED;
  if (copied) {
    mapped = ::mmap(memory_, kFlightFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
  }
  const int reason = errno;
  ::close(file);
  if (mapped == MAP_FAILED) {
    set_text(mine.path, "");
    fail(path, reason);
  }
  set_text(header().path, absolute);
}

uint8_t FlightRecorder::name_index(std::string_view name) {
  const std::lock_guard lock(mutex_);
  auto& names = header().names;
  for (size_t i = 0; i < names.size(); ++i) {
    const bool last = i + 1 == names.size();
    if (names[i][0] == 0) set_text(names[i], last ? kOtherNames : name);
    if (name.substr(0, names[i].size() - 1) == names[i].data()) return static_cast<uint8_t>(i);
  }
  return static_cast<uint8_t>(names.size() - 1);
}

FlightRecord* FlightRecorder::records() const {
  return reinterpret_cast<FlightRecord*>(static_cast<std::byte*>(memory_) + kFlightHeaderBytes);
}

void FlightRecorder::write(FlightEvent event, const Entry& entry) {
  const uint64_t index = header().written.fetch_add(1, std::memory_order_relaxed);
  FlightRecord& record = records()[index % kFlightRecords];
  record.ticket.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  record.time_ns = monotonic_ns();
  record.number = entry.number;
  record.step = step_.load(std::memory_order_relaxed);
  record.micro_batch = entry.micro_batch;
  record.chunk = entry.chunk;
  record.event = static_cast<uint8_t>(event);
  record.kind = static_cast<uint8_t>(entry.kind);
  record.code = entry.code;
  record.lane = static_cast<uint8_t>(entry.lane);
  record.name = entry.name;
  record.ticket.store(index + 1, std::memory_order_release);
}

void FlightRecorder::set_failure(FailureKind kind, std::string_view words) {
  const std::lock_guard lock(mutex_);
  FlightHeader& h = header();
  if (h.failure_kind.load() != static_cast<int32_t>(FailureKind::None)) return;
  set_text(h.failure_words, words);
  h.failure_time_ns = monotonic_ns();
  h.failure_kind.store(static_cast<int32_t>(kind), std::memory_order_release);
}

PhaseRecord::PhaseRecord(FlightRecorder* recorder, FlightPhase phase)
    : recorder_(recorder), exceptions_(std::uncaught_exceptions()) {
  entry_.code = static_cast<uint8_t>(phase);
  if (recorder_ != nullptr) recorder_->begin(entry_);
}

PhaseRecord::~PhaseRecord() {
  if (recorder_ != nullptr && std::uncaught_exceptions() == exceptions_) recorder_->end(entry_);
}

UnguardedCall::UnguardedCall(FlightRecorder* recorder, const char* name) : recorder_(recorder) {
  if (recorder_ == nullptr) return;
  set_text(recorder_->header().unguarded, name);
  recorder_->header().unguarded_since_ns.store(monotonic_ns());
}

UnguardedCall::~UnguardedCall() {
  if (recorder_ != nullptr) recorder_->header().unguarded_since_ns.store(0);
}

}  // namespace triax
