// `triax ckpt export --format safetensors` and `import`: to and from the directory of a Hugging Face model.
#include <fmt/format.h>

#include <filesystem>

#include "apps/ckpt.h"
#include "apps/ckpt_options.h"
#include "base/error.h"
#include "base/version.h"
#include "io/checkpoint/verify.h"
#include "io/hugging_face/byte_size.h"
#include "io/hugging_face/checkpoint_tensors.h"
#include "io/hugging_face/tokenizer_files.h"

namespace triax::apps {
namespace {

DType dtype_of_option(const std::string& command, const std::string& text, DType otherwise) {
  if (text.empty()) return otherwise;
  for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float16}) {
    if (text == name_of(dtype)) return dtype;
  }
  throw ConfigError(fmt::format("ckpt {}: --dtype {}: must be fp32, bf16 or fp16", command, text));
}

/// The tokenizer of the checkpoint, with files named anew where the user did.
io::TokenizerOptions tokenizer_of(const io::WeightsHeader& header, const CkptOptions& o) {
  io::TokenizerOptions tokenizer = header.tokenizer;
  if (!o.tokenizer_model.empty()) tokenizer.model = o.tokenizer_model;
  if (!o.vocab_file.empty()) tokenizer.vocab_file = o.vocab_file;
  if (!o.merge_file.empty()) tokenizer.merge_file = o.merge_file;
  return tokenizer;
}

io::HubTokens tokens_of(const io::CopiedTokenizer& copied, const io::WeightsHeader& header) {
  io::HubTokens tokens;
  if (copied.options.type.empty()) return tokens;
  const std::unique_ptr<io::Tokenizer> tokenizer = io::make_tokenizer(copied.options);
  if (!header.tokenizer_hash.empty() && tokenizer->hash() != header.tokenizer_hash) {
    throw ConfigError(
        fmt::format("ckpt export: the tokenizer's files have the hash {}, the checkpoint was trained with {}: name "
                    "the right ones, or leave them out with --no-tokenizer",
                    tokenizer->hash(), header.tokenizer_hash));
  }
  tokens.bos = tokenizer->bos().value_or(-1);
  tokens.eos = tokenizer->eod().value_or(-1);
  return tokens;
}

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

/// The type that a directory is imported in.
DType imported_dtype(const io::HubModel& hub, const CkptOptions& o, const std::string& from) {
  if (o.dtype.empty() && !hub.dtype()) {
    throw ConfigError(
        fmt::format("ckpt import: {}: its weights have several types; say one with --dtype fp32, bf16 or fp16", from));
  }
  return dtype_of_option("import", o.dtype, hub.dtype().value_or(DType::Float32));
}

}  // namespace

int export_to_safetensors(const CopyRequest& request) {
  const CkptOptions& o = request.options;
  if (request.kinds.size() > 1) throw ConfigError("ckpt export --format safetensors: takes one --kind");
  const std::string kind = request.kinds.empty() ? io::kWeight : request.kinds[0];
  const std::optional<int64_t> most = io::parse_byte_size(o.most_file_size);
  if (!most) {
    throw ConfigError(
        fmt::format("ckpt export: --max-shard-size {}: must be a size such as 5GB, 500MB or 1GiB", o.most_file_size));
  }
  io::CheckpointReader reader(request.from);
  const io::WeightsHeader& header = reader.header().weights;
  const io::CheckpointSource source(reader, kind);
  io::HubExport options;
  options.dtype = dtype_of_option("export", o.dtype, source.dtype());
  options.most_file_bytes = *most;
  io::refuse_other_weights(request.to);
  io::verify_share(request.from, 0, 1);  // damaged values must not become a model
  io::CopiedTokenizer copied;
  if (!o.no_tokenizer) copied = io::export_tokenizer(tokenizer_of(header, o), request.to);
  options.tokens = tokens_of(copied, header);
  io::export_hub(source, header.model, request.to, options);
  fmt::print("{}: {} of iteration {} as {}; tokenizer files: {}\n", request.to, kind, header.iteration,
             name_of(options.dtype), list_of(copied.files));
  return 0;
}

int import_from_safetensors(const CopyRequest& request) {
  const CkptOptions& o = request.options;
  const io::HubModel hub(request.from);
  const DType dtype = imported_dtype(hub, o, request.from);
  io::CheckpointHeader header;
  header.weights.model = hub.config().model;
  header.weights.model.name = std::filesystem::path(request.from).lexically_normal().filename().string();
  if (header.weights.model.name.empty()) header.weights.model.name = hub.config().model.name;
  header.weights.dtype = dtype;
  header.layout = "imported";
  header.program = fmt::format("triax {} ({})", build_info().version, build_info().commit);
  int64_t bytes = 0;
  for (const io::HubTensor& tensor : io::hub_tensors(hub.config().model, hub.config().family)) {
    for (const io::TensorPart& part : tensor.parts) {
      bytes += elements_of(part.shape) * static_cast<int64_t>(size_of(dtype));
    }
  }
  io::CheckpointSink sink(request.to, header, bytes);
  io::CopiedTokenizer copied;
  if (!o.no_tokenizer) copied = io::import_tokenizer(request.from, request.to);
  if (!copied.options.type.empty()) {
    const std::unique_ptr<io::Tokenizer> tokenizer = io::make_tokenizer(copied.options);
    if (tokenizer->vocab_size() > header.weights.model.vocab_size) {
      throw ConfigError(
          fmt::format("ckpt import: the tokenizer has {} ids, config.json vocab_size {}; --no-tokenizer "
                      "leaves its files out",
                      tokenizer->vocab_size(), header.weights.model.vocab_size));
    }
    header.weights.tokenizer = copied.options;
    header.weights.tokenizer_hash = tokenizer->hash();
    sink.set_header(header);
  }
  hub.copy_to(sink, dtype);
  sink.commit();
  fmt::print("{}: {} as {}, {} bytes; tokenizer files: {}\n", io::step_path(request.to, 0), header.weights.model.name,
             name_of(dtype), bytes, list_of(copied.files));
  return 0;
}

}  // namespace triax::apps
