#include "apps/program_request.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "apps/entry_makers.h"
#include "base/error.h"
#include "io/data/atomic_file.h"
#include "io/options/validate.h"
#include "io/options/values.h"
#include "parallel/cost_text.h"
#include "parallel/csv_schedule.h"
#include "train/program_builder.h"

namespace triax::apps {
namespace {

using io::OptionEntry;
using io::ValueKind;
using parallel::ScheduleKind;
using parallel::ScheduleOptions;

std::string take_stragglers(const std::vector<std::string>& words, std::vector<parallel::Straggler>& stragglers) {
  stragglers.clear();
  try {
    for (const std::string& word : words) stragglers.push_back(parallel::parse_straggler(word));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

std::vector<OptionEntry> program_layout_entries(LayoutWords& words) {
  return {
      text_entry("pipeline-schedule", "gpipe|1f1b|interleaved|zb-h1|zb-h2|zb-v|csv:FILE",
                 "order of forwards and backwards; default 1f1b, interleaved with virtual stages",
                 [&words](const std::string& text) -> std::string {
                   if (!parallel::schedule_of(text)) {
                     return "must be gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v or csv:FILE";
                   }
                   words.schedule = text;
                   return {};
                 }),
      count_entry("num-microbatches", "micro-batches m of a step and replica", 1, words.num_micro_batches),
      count_entry("data-parallel-size", "replicas d", 1, words.data_parallel),
      count_entry("world-size", "ranks; gives d as ranks / (tp pp)", 1, words.world),
  };
}

std::vector<OptionEntry> output_entries(ProgramRequest& r) {
  return {
      format_entry(r.format),
      text_entry("ops", "compute|all", "show and export: also messages, sums and the optimizer",
                 [&r](const std::string& text) -> std::string {
                   if (text != "compute" && text != "all") return "must be compute or all";
                   r.all_ops = text == "all";
                   return {};
                 }),
      switch_entry("inside", "show: what happens inside of each op: units, gathers, reductions", r.inside),
      switch_entry("describe", "explains the keys and columns", r.describe),
      path_entry("out", "writes the result there instead of stdout", r.out),
      path_entry("svg", "time: writes the picture as SVG", r.svg),
      path_entry("chrome", "time: writes a Chrome trace (Perfetto)", r.chrome),
      count_entry("width", "columns of the drawing; default the terminal's", 10, r.width),
  };
}

std::vector<OptionEntry> time_entries(ProgramRequest& r) {
  OptionEntry stragglers{.name = "straggler",
                         .kind = ValueKind::List,
                         .value_name = "R:I:X ...",
                         .help = "time: position I of replica R takes X times as long"};
  stragglers.set = [&r](io::RunOptions&, const std::vector<std::string>& words) {
    return take_stragglers(words, r.time.stragglers);
  };
  return {
      text_entry("cost", "F=1,I=1,...",
                 "time: cost of a whole stage for F, I, W (or B), R, LOAD, OPT, REDUCE_GRAD, GATHER, GATHER_MSG, "
                 "SUM_TP, SUM_TIED, NORM; P2P "
                 "latency of a hop, BYTES of a message, BANDWIDTH; lists give one value per stage: F=1,1,2,1,I=1",
                 [&r](const std::string& text) -> std::string {
                   r.cost += (r.cost.empty() ? "" : ",") + text;
                   return {};
                 }),
      text_entry("jitter", "X", "time: standard deviation of the logarithm of each op's time",
                 [&r](const std::string& text) -> std::string {
                   const std::optional<double> value = io::parse_real(text);
                   if (!value || *value < 0 || *value > 2) return "must be a number from 0 to 2";
                   r.time.jitter.sigma = *value;
                   return {};
                 }),
      stragglers,
      count_entry("replica", "time: replica whose ops are drawn", 0, r.replica),
  };
}

void append(std::vector<OptionEntry>& all, std::vector<OptionEntry> more) {
  for (OptionEntry& entry : more) all.push_back(std::move(entry));
}

// Size that a file fixes, unless the user gave another one.
int fixed_size(const io::ParsedOptions& parsed, const char* option, int given, int fixed) {
  return parsed.given(option) ? given : fixed;
}

ScheduleOptions schedule_of(const ProgramRequest& r, const LayoutWords& words) {
  const io::ParallelOptions& p = r.parsed.options.parallel;
  const std::string name = words.schedule.empty() ? parallel::name_of(p.schedule) : words.schedule;
  ScheduleOptions schedule;
  schedule.kind = *parallel::schedule_of(name);
  schedule.pipeline = p.grid.pipeline;
  schedule.chunks = p.chunks;
  schedule.group_size = p.microbatch_group_size;
  schedule.num_micro_batches = static_cast<int>(words.num_micro_batches);
  const bool chunks_given = r.parsed.given("num-virtual-stages-per-pipeline-rank") || p.chunks > 1;
  if (schedule.kind == ScheduleKind::ZeroBubbleV && !chunks_given) schedule.chunks = 2;
  if (schedule.kind == ScheduleKind::Csv) {
    const std::string path = name.substr(4);
    ScheduleOptions file = parallel::parse_csv_schedule(read_file(path), path);
    file.pipeline = fixed_size(r.parsed, "pipeline-model-parallel-size", schedule.pipeline, file.pipeline);
    if (chunks_given) file.chunks = schedule.chunks;
    if (words.num_micro_batches > 0 && words.num_micro_batches != file.num_micro_batches) {
      throw ConfigError(fmt::format("--num-microbatches {}: {} runs {} micro-batches; give {}, or leave the option out",
                                    words.num_micro_batches, path, file.num_micro_batches, file.num_micro_batches));
    }
    return file;
  }
  return schedule;
}

void set_replicas(ProgramRequest& r, const LayoutWords& words, int64_t model_ranks) {
  int64_t d = words.data_parallel > 0 ? words.data_parallel : 1;
  if (words.world > 0) {
    if (words.world % model_ranks != 0 ||
        (words.data_parallel > 0 && words.data_parallel * model_ranks != words.world)) {
      throw ConfigError(fmt::format(
          "--world-size {}: must be tp x pp x d = {} x a whole number{}; nearest: {}", words.world, model_ranks,
          words.data_parallel > 0 ? fmt::format(" ({})", words.data_parallel) : "",
          model_ranks *
              std::max<int64_t>(1, words.data_parallel > 0 ? words.data_parallel : words.world / model_ranks)));
    }
    d = words.world / model_ranks;
  }
  r.replicas = static_cast<int>(d);
}

void set_micro_batches(const io::BatchOptions& batch, int replicas, LayoutWords& words) {
  if (batch.global_batch_size <= 0 || batch.micro_batch_size <= 0) return;
  const int64_t per_pass = batch.micro_batch_size * replicas;
  if (words.num_micro_batches > 0) {
    if (words.num_micro_batches * per_pass == batch.global_batch_size) return;
    throw ConfigError(
        fmt::format("--num-microbatches {}: x micro-batch {} x {} replicas is not --global-batch-size {}; give one of "
                    "the two",
                    words.num_micro_batches, batch.micro_batch_size, replicas, batch.global_batch_size));
  }
  if (batch.global_batch_size % per_pass != 0) {
    throw ConfigError(fmt::format(
        "--global-batch-size {}: must be a multiple of micro-batch size x replicas = {}; "
        "nearest: {}",
        batch.global_batch_size, per_pass, std::max<int64_t>(1, batch.global_batch_size / per_pass) * per_pass));
  }
  words.num_micro_batches = batch.global_batch_size / per_pass;
}

// Layers of a model where one is given, else one layer per virtual stage.
parallel::LayerMap layers_of(const ProgramRequest& r) {
  const io::ParallelOptions& p = r.parsed.options.parallel;
  int64_t layers = r.parsed.options.model.num_layers;
  if (layers == 0) {
    layers = int64_t{r.schedule.pipeline} * r.schedule.chunks;
    for (size_t i = 0; i < p.layer_list.size(); ++i) layers = (i == 0 ? 0 : layers) + p.layer_list[i];
  }
  return parallel::make_layer_map(layers, parallel::placement_of(r.schedule), p.decoder_first_num_layers,
                                  p.decoder_last_num_layers, p.layer_list);
}

// With all of a model's dimensions the program is the trainer's, buckets and sums included: the hash is the same.
std::optional<parallel::ProgramOptions> program_of_trainer(const ProgramRequest& r) {
  io::RunOptions o = r.parsed.options;
  const model::ModelConfig& m = o.model;
  if (m.num_layers == 0 || m.hidden_size == 0 || m.num_attention_heads == 0 || m.vocab_size == 0) return std::nullopt;
  o.parallel.grid.pipeline = r.schedule.pipeline;
  o.parallel.grid.data = static_cast<int>(r.replicas);
  o.parallel.chunks = r.schedule.chunks;
  o.parallel.schedule = r.schedule.kind;
  o.parallel.schedule_file = r.words.schedule.substr(std::min<size_t>(4, r.words.schedule.size()));
  // No op depends on these two; one token of each tensor rank is enough for every rule.
  if (o.batch.micro_batch_size == 0) o.batch.micro_batch_size = 1;
  if (o.model.seq_length == 0) o.model.seq_length = o.parallel.grid.tensor;
  if (o.model.max_position_embeddings == 0) o.model.max_position_embeddings = o.model.seq_length;
  o.batch.global_batch_size = o.batch.micro_batch_size * r.replicas * r.schedule.num_micro_batches;
  io::resolve(o, o.parallel.grid.world(), io::Purpose::Plan);  // what train refuses is refused
  return train::program_options(o);
}

parallel::Program make_program(const ProgramRequest& r) {
  parallel::ProgramOptions options;
  const bool recompute_op = r.cost.find("R=") == 0 || r.cost.find(",R=") != std::string::npos;
  if (const auto of_trainer = program_of_trainer(r)) {
    options = *of_trainer;
    if (recompute_op) options.recompute = parallel::RecomputeOps::Separate;
    return parallel::make_training_program(options);
  }
  options.schedule = r.schedule;
  options.layers = layers_of(r);
  options.tied_embedding = r.parsed.options.model.num_layers > 0 && r.parsed.options.model.tie_embeddings;
  if (recompute_op) options.recompute = parallel::RecomputeOps::Separate;
  // Without a model the gradients of a chunk are one bucket; the last chunk's are complete first.
  if (r.replicas > 1) {
    std::vector<int> chunks;
    for (int c = r.schedule.chunks; c-- > 0;) chunks.push_back(c);
    options.bucket_chunks.assign(static_cast<size_t>(r.schedule.pipeline), chunks);
  }
  return parallel::make_training_program(options);
}

}  // namespace

std::string hash_text(const parallel::Program& program) { return fmt::format("{:016x}", parallel::hash_of(program)); }

std::vector<OptionEntry> program_entries(ProgramRequest& request) {
  std::vector<OptionEntry> all = program_layout_entries(request.words);
  append(all, output_entries(request));
  append(all, time_entries(request));
  return all;
}

void read_request(const std::vector<std::string>& args, ProgramRequest& r) {
  LayoutWords& words = r.words;
  const std::vector<OptionEntry> entries = program_entries(r);
  r.parsed = io::parse_options(args, entries);
  if (r.parsed.help || r.describe) return;
  r.time.jitter.seed = r.parsed.options.control.seed;
  const comm::GridShape& grid = r.parsed.options.parallel.grid;
  r.schedule = schedule_of(r, words);
  set_replicas(r, words, int64_t{grid.tensor} * r.schedule.pipeline);
  set_micro_batches(r.parsed.options.batch, r.replicas, words);
  if (r.schedule.kind != ScheduleKind::Csv) {
    if (words.num_micro_batches == 0) {
      throw ConfigError("--num-microbatches: is required (or --global-batch-size and --micro-batch-size)");
    }
    r.schedule.num_micro_batches = static_cast<int>(words.num_micro_batches);
  }
  if (const std::string fault = parallel::check_schedule(r.schedule); !fault.empty()) throw ConfigError(fault);
  if (r.replica >= r.replicas) {
    throw ConfigError(fmt::format("--replica {}: must be from 0 to {}", r.replica, r.replicas - 1));
  }
  r.program = make_program(r);
}

int terminal_width() {
  winsize size = {};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

void write_file(const std::string& path, const std::string& text) {
  io::AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

void write_result(const std::string& path, const std::string& text) {
  if (path.empty()) {
    fmt::print("{}", text);
  } else {
    write_file(path, text);
  }
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file || text.fail()) throw RunTimeError(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  return text.str();
}

}  // namespace triax::apps
