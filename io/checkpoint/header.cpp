#include "io/checkpoint/header.h"

#include <fmt/format.h>

#include "base/error.h"
#include "io/weights/attributes.h"

namespace triax::io {
namespace {

/// One list of fields for both directions.
template <class Header, class Visitor>
void visit(Header& h, Visitor& visitor) {
  visitor("updates", h.training.updates);
  visitor("schedule_samples", h.training.schedule_samples);
  visitor("consumed_valid_samples", h.training.consumed_valid_samples);
  visitor("evaluated_at", h.training.evaluated_at);
  visitor("learning_rate", h.training.learning_rate);
  visitor("loss_scale", h.training.loss_scale);
  visitor("loss_scale.good_steps", h.training.good_steps);
  visitor("loss_scale.hysteresis_left", h.training.hysteresis_left);
  visitor("loss_scale.consecutive_skips", h.training.consecutive_skips);
  visitor("layout", h.layout);
  visitor("zero_stage", h.zero_stage);
  visitor("options", h.options);
  visitor("program", h.program);
}

}  // namespace

void write_checkpoint_header(hid_t file, const CheckpointHeader& header) {
  AttributeWriter write(file);
  write("format", std::string(kCheckpointFormat));
  write("version", kCheckpointVersion);
  write_model_header(file, header.weights);
  visit(header, write);
}

CheckpointHeader read_checkpoint_header(hid_t file, const std::string& path) {
  AttributeReader read(file, path);
  std::string format;
  if (read.has("format")) read("format", format);
  CheckpointHeader header;
  if (format != kCheckpointFormat) {
    header.weights = read_header(file, path);  // or says that it is neither
    return header;
  }
  int64_t version = 0;
  read("version", version);
  if (version > kCheckpointVersion) {
    throw RunTimeError(fmt::format("{}: version {} of the checkpoint format, this program reads up to {}", path,
                                   version, kCheckpointVersion));
  }
  header.weights = read_model_header(file, path);
  visit(header, read);
  return header;
}

}  // namespace triax::io
