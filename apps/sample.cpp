// `triax sample`: continues a text with saved weights, on one rank or on tp x pp ranks.
#include <fmt/format.h>

#include <boost/program_options.hpp>
#include <cstdio>
#include <thread>

#include "apps/commands.h"
#include "apps/session.h"
#include "base/error.h"
#include "io/checkpoint/directory.h"
#include "io/checkpoint/reader.h"
#include "io/options/validate.h"
#include "train/program_builder.h"
#include "train/run_device.h"
#include "train/text_generator.h"

namespace triax::apps {
namespace {

namespace po = boost::program_options;

constexpr int64_t kMostTokens = int64_t{1} << 30;  // prompt and text together stay within 32 bits

struct SampleRequest {
  std::string load, prompt, device = "cpu";
  int64_t max_new_tokens = 64, seed = 1234, step = 0;
  train::SamplingOptions sampling;
  int tensor = 1, pipeline = 1, threads = 0;
  io::TokenizerOptions tokenizer;  ///< overrides paths that the file recorded
};

po::options_description describe(SampleRequest& r) {
  po::options_description options("Options");
  auto add = options.add_options();
  add("help,h", "this text");
  add("load", po::value(&r.load)->value_name("DIR"), "directory that --save wrote, one step of it, or an HDF5 file");
  add("ckpt-step", po::value(&r.step)->value_name("N"), "iteration to load; default the latest");
  add("prompt", po::value(&r.prompt)->value_name("TEXT"), "text to go on from");
  add("max-new-tokens", po::value(&r.max_new_tokens)->value_name("N"), "default 64; fewer at an end of document");
  add("temperature", po::value(&r.sampling.temperature)->value_name("X"), "default 1; 0 takes the most likely token");
  add("top-k", po::value(&r.sampling.top_k)->value_name("K"), "only the K most likely tokens; default 0, all");
  add("top-p", po::value(&r.sampling.top_p)->value_name("P"), "only the likeliest that sum to P; default 1, all");
  add("seed", po::value(&r.seed)->value_name("N"), "default 1234; the same seed gives the same text");
  add("tensor-model-parallel-size", po::value(&r.tensor)->value_name("T"), "default 1");
  add("pipeline-model-parallel-size", po::value(&r.pipeline)->value_name("P"), "default 1");
  add("device", po::value(&r.device)->value_name("NAME"), "cpu, or cuda: a GPU for each rank");
  add("threads", po::value(&r.threads)->value_name("N"), "compute threads per rank");
  add("tokenizer-model", po::value(&r.tokenizer.model)->value_name("FILE"), "where the tokenizer's file lies now");
  add("vocab-file", po::value(&r.tokenizer.vocab_file)->value_name("FILE"), "the same for vocab.json");
  add("merge-file", po::value(&r.tokenizer.merge_file)->value_name("FILE"), "the same for merges.txt");
  return options;
}

void parse_sample(const po::options_description& options, const std::vector<std::string>& args,
                  po::variables_map& values) {
  try {
    const int style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::store(po::command_line_parser(args).options(options).style(style).run(), values);
    po::notify(values);
  } catch (const po::error& error) {
    throw ConfigError(fmt::format("sample: {}; 'triax sample --help' lists the options", error.what()));
  }
}

void check(const SampleRequest& r) {
  std::string faults;
  const auto fault = [&](bool bad, const char* words) {
    if (bad) faults += fmt::format("{}{}", faults.empty() ? "" : "; ", words);
  };
  fault(r.load.empty(), "--load DIR is missing: the directory that --save wrote");
  fault(r.prompt.empty(), "--prompt TEXT is missing or empty: give at least one character");
  fault(r.max_new_tokens < 1 || r.max_new_tokens > kMostTokens, "--max-new-tokens must be from 1 to 1073741824");
  fault(r.step < 0, "--ckpt-step must be 1 or more");
  fault(r.seed < 0, "--seed must be 0 or more");
  fault(r.device != "cpu" && r.device != "cuda" && r.device != "cuda-emulated", "--device must be cpu or cuda");
  fault(r.threads < 0 || r.threads > 1024, "--threads must be from 1 to 1024, or 0 for all cores of the rank");
  fault(!(r.sampling.temperature >= 0), "--temperature must be 0 or more");
  fault(r.sampling.top_k < 0, "--top-k must be 0 or more");
  fault(!(r.sampling.top_p > 0 && r.sampling.top_p <= 1), "--top-p must be above 0 and at most 1");
  fault(r.tensor < 1 || r.pipeline < 1 || r.tensor > 32768 || r.pipeline > 32768,
        "parallel sizes must be from 1 to 32768");
  if (!faults.empty()) throw ConfigError("sample: " + faults);
}

std::unique_ptr<io::Tokenizer> tokenizer_of(const io::CheckpointReader& file, const SampleRequest& r) {
  const io::WeightsHeader& header = file.header().weights;
  if (header.tokenizer_hash.empty()) {
    throw ConfigError(
        fmt::format("sample: {} was trained on data without a tokenizer (mock data, or data without a "
                    "description), so there is no text to show",
                    file.path()));
  }
  io::TokenizerOptions options = header.tokenizer;
  if (!r.tokenizer.model.empty()) options.model = r.tokenizer.model;
  if (!r.tokenizer.vocab_file.empty()) options.vocab_file = r.tokenizer.vocab_file;
  if (!r.tokenizer.merge_file.empty()) options.merge_file = r.tokenizer.merge_file;
  std::unique_ptr<io::Tokenizer> tokenizer = io::make_tokenizer(options);
  if (tokenizer->hash() != header.tokenizer_hash) {
    throw ConfigError(fmt::format(
        "sample: the weights were trained with tokenizer {}, {} is {}: give the right files with "
        "--tokenizer-model or --vocab-file and --merge-file",
        header.tokenizer_hash, options.model.empty() ? options.vocab_file : options.model, tokenizer->hash()));
  }
  return tokenizer;
}

int sample_on_ranks(comm::MpiSession& session, RankName& name, const SampleRequest& r) {
  if (session.size() != int64_t{r.tensor} * r.pipeline) {
    throw ConfigError(fmt::format("sample: tp {} x pp {} needs {} ranks, the launcher started {}: use mpiexec -n {}",
                                  r.tensor, r.pipeline, int64_t{r.tensor} * r.pipeline, session.size(),
                                  int64_t{r.tensor} * r.pipeline));
  }
  const std::string path = io::resolve_checkpoint(r.load, r.step);
  if (path.empty()) {
    throw ConfigError(
        fmt::format("sample: --load {}: there is no checkpoint; name a directory that --save wrote", r.load));
  }
  io::CheckpointReader weights(path);
  const std::unique_ptr<io::Tokenizer> tokenizer = tokenizer_of(weights, r);
  std::vector<int32_t> tokens = tokenizer->encode(r.prompt);
  const auto context = static_cast<int64_t>(tokens.size()) + r.max_new_tokens;
  io::RunOptions options = train::generation_options(weights.header().weights, r.tensor, r.pipeline, context);
  options.control.device = r.device;
  io::resolve(options, session.size(), io::Purpose::Plan);
  int threads = r.threads;
  if (threads == 0) threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / session.local_size());
  const train::RunDevice device(session, r.device, threads);
  comm::ProcessGrid grid(session, train::grid_options(options), device.groups());
  name.place = fmt::format("tp {} pp {}", grid.coord().tensor, grid.coord().pipeline);
  Arena arena(device.discrete() != nullptr ? device.get().memory() : grid.memory());
  train::TextGenerator generator(grid, device.get(), arena, options, weights);
  generator.generate(tokens, r.max_new_tokens, r.sampling, tokenizer->eod().value_or(-1));
  if (session.rank() == 0) {
    if (tokens.back() == tokenizer->eod().value_or(-1)) tokens.pop_back();
    fmt::print("{}\n", tokenizer->decode(tokens));
  }
  return 0;
}

}  // namespace

int sample_command(const std::vector<std::string>& args) {
  SampleRequest request;
  const po::options_description options = describe(request);
  po::variables_map values;
  parse_sample(options, args, values);
  if (values.count("help") > 0) {
    std::ostringstream text;
    text << options;
    fmt::print("usage: triax sample --load DIR --prompt TEXT [options]\n\n{}", text.str());
    return 0;
  }
  check(request);
  request.sampling.seed = static_cast<uint64_t>(request.seed);
  return run_with_session(
      [&](comm::MpiSession& session, RankName& name) { return sample_on_ranks(session, name, request); });
}

}  // namespace triax::apps
