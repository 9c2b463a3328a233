// TensorBoard event files: TFRecord framing (length, masked CRC32C) around protobuf Event messages.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

#include "io/report/records.h"

namespace triax::io {

/// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78) and TFRecord's mask of it.
uint32_t crc32c(std::string_view bytes);
uint32_t masked_crc32c(std::string_view bytes);
/// length (8, little endian), masked crc of these 8, data, masked crc of data.
std::string tfrecord(std::string_view data);
/// Event { double wall_time = 1; int64 step = 2; Summary summary = 5 { Value { string tag = 1; float simple_value = 2 }
/// } }
std::string scalar_event(double wall_time_s, int64_t step, std::string_view tag, float value);

/// Writes <directory>/events.out.tfevents.<seconds>.<host>, creating the directory. Throws RunTimeError.
class EventFile {
 public:
  explicit EventFile(const std::string& directory);
  void scalar(std::string_view tag, int64_t step, double value);
  /// Megatron's tags of one iteration ("lm loss", "lm loss vs samples", "learning-rate", ...).
  void write(const IterationRecord& record);
  void write(const EvaluationRecord& record);
  void flush() { file_.flush(); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace triax::io
