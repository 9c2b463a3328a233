#include "io/report/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace triax::io {
namespace {

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1u) != 0 ? 0x82F63B78u : 0u);
    table[byte] = value;
  }
  return table;
}

template <class T>
void append_little_endian(std::string& out, T value) {
  static_assert(std::endian::native == std::endian::little, "TFRecord lengths are little endian");
  std::array<char, sizeof(T)> bytes{};
  std::memcpy(bytes.data(), &value, sizeof(T));
  out.append(bytes.data(), bytes.size());
}

// Protobuf wire format: a key is (field << 3 | type), type 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes.
void append_varint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

void append_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  append_varint(out, field << 3 | 2);
  append_varint(out, bytes.size());
  out.append(bytes);
}

void append_double(std::string& out, uint32_t field, double value) {
  append_varint(out, field << 3 | 1);
  append_little_endian(out, value);
}

double wall_time_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc_table();
  uint32_t crc = 0xFFFFFFFFu;
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 0xFFu];
  return crc ^ 0xFFFFFFFFu;
}

uint32_t masked_crc32c(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u; }

std::string tfrecord(std::string_view data) {
  std::string out;
  append_little_endian(out, static_cast<uint64_t>(data.size()));
  append_little_endian(out, masked_crc32c(out));
  out.append(data);
  append_little_endian(out, masked_crc32c(data));
  return out;
}

std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value) {
  std::string summary_value;
  append_bytes(summary_value, 1, tag);
  append_varint(summary_value, 2 << 3 | 5);
  append_little_endian(summary_value, value);
  std::string summary;
  append_bytes(summary, 1, summary_value);
  std::string event;
  append_double(event, 1, wall_time);
  append_varint(event, 2 << 3 | 0);
  append_varint(event, static_cast<uint64_t>(step));
  append_bytes(event, 5, summary);
  return event;
}

EventFile::EventFile(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  path_ = fmt::format("{}/events.out.tfevents.{}.{}.{}.0", directory, static_cast<int64_t>(wall_time_s()), host.data(),
                      getpid());
  file_.open(path_, std::ios::binary | std::ios::app);
  std::string version;
  append_double(version, 1, wall_time_s());
  append_bytes(version, 3, "brain.Event:2");
  file_ << tfrecord(version);
  file_.flush();
  if (!file_) throw RunTimeError(fmt::format("--tensorboard-dir {}: cannot be written", directory));
}

void EventFile::scalar(std::string_view tag, int64_t step, double value) {
  file_ << tfrecord(scalar_event(wall_time_s(), step, tag, static_cast<float>(value)));
  if (!file_) throw RunTimeError(fmt::format("{}: writing failed (disk full?)", path_));
}

void EventFile::write(const IterationRecord& r) {
  if (!r.skipped) {
    scalar("lm loss", r.iteration, r.lm_loss);
    scalar("lm loss vs samples", r.consumed_samples, r.lm_loss);
    scalar("grad-norm", r.iteration, r.grad_norm);
  }
  scalar("learning-rate", r.iteration, r.learning_rate);
  scalar("batch-size", r.iteration, static_cast<double>(r.global_batch_size));
  scalar("loss-scale", r.iteration, r.loss_scale);
  scalar("iteration-time", r.iteration, r.step_ms / 1000);
  scalar("throughput", r.iteration, r.model_tflops);
  scalar("tokens-per-second", r.iteration, r.tokens_per_s);
  scalar("bubble-fraction", r.iteration, r.bubble_fraction);
  scalar("mem-allocated-bytes", r.iteration, static_cast<double>(r.memory_bytes));
  scalar("mem-max-allocated-bytes", r.iteration, static_cast<double>(r.peak_memory_bytes));
  if (r.num_zeros) scalar("num-zeros", r.iteration, static_cast<double>(*r.num_zeros));
  if (r.params_norm) scalar("params-norm", r.iteration, *r.params_norm);
  file_.flush();
}

void EventFile::write(const EvaluationRecord& r) {
  scalar("lm loss " + r.split, r.iteration, r.lm_loss);
  scalar("lm loss " + r.split + " ppl", r.iteration, std::exp(std::min(20.0, r.lm_loss)));
  file_.flush();
}

}  // namespace triax::io
