// `triax ckpt export` and `reshard`.
#include <fmt/format.h>

#include "apps/ckpt.h"
#include "apps/ckpt_options.h"
#include "base/error.h"
#include "io/checkpoint/rewrite.h"

namespace triax::apps {
namespace {

int export_to_hdf5(const CopyRequest& request) {
  io::CheckpointReader reader(request.from);
  io::export_hdf5(reader, request.to, request.kinds);
  fmt::print("{}: {} bytes of {}\n", request.to, reader.bytes_read(), request.from);
  return 0;
}

}  // namespace

const std::vector<CopyFormat>& export_formats() {
  static const std::vector<CopyFormat> kFormats{
      {"hdf5", "one plain HDF5 file TO, with the same groups and names", export_to_hdf5},
      {"safetensors", "directory TO of a GPT-2 or Llama model for Hugging Face's transformers", export_to_safetensors},
  };
  return kFormats;
}

const std::vector<CopyFormat>& import_formats() {
  static const std::vector<CopyFormat> kFormats{
      {"safetensors", "directory FROM of a GPT-2 or Llama model: config.json, *.safetensors, tokenizer files",
       import_from_safetensors},
  };
  return kFormats;
}

int ckpt_export(const std::vector<std::string>& args) {
  const CkptOptions o = parse_ckpt("export", args, 2);
  std::string names;
  for (const CopyFormat& format : export_formats()) {
    if (o.format == format.name) {
      return format.run({checkpoint_at("export", o.paths[0], o.step), o.paths[1], o.kinds, o});
    }
    names += (names.empty() ? "" : ", ") + std::string(format.name);
  }
  throw ConfigError(o.format == "table" ? fmt::format("ckpt export: --format is missing: one of {}", names)
                                        : fmt::format("ckpt export: --format {}: must be one of {}", o.format, names));
}

int ckpt_import(const std::vector<std::string>& args) {
  const CkptOptions o = parse_ckpt("import", args, 2);
  for (const CopyFormat& format : import_formats()) {
    if (o.format == "table" || o.format == format.name) return format.run({o.paths[0], o.paths[1], {}, o});
  }
  throw ConfigError(fmt::format("ckpt import: --format {}: must be safetensors", o.format));
}

int ckpt_reshard(const std::vector<std::string>& args) {
  const CkptOptions o = parse_ckpt("reshard", args, 2);
  io::CheckpointReader reader(checkpoint_at("reshard", o.paths[0], o.step));
  io::reshard(reader, o.paths[1], o.shards);
  fmt::print("{}: iteration {} in {} shards\n", o.paths[1], reader.header().weights.iteration, o.shards);
  return 0;
}

}  // namespace triax::apps
