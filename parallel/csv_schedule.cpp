#include "parallel/csv_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "parallel/program_print.h"

namespace triax::parallel {
namespace {

struct Action {
  int stage = 0;
  int micro_batch = 0;
  std::optional<OpKind> kind;  // nothing: an action that the passes insert again
};

struct Cell {
  std::string_view text;
  std::string where;  // "FILE: row 2, column 3"
};

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\"'";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

[[noreturn]] void fail(const Cell& cell, const std::string& why) {
  throw ConfigError(fmt::format("{}: \"{}\" {}", cell.where, cell.text, why));
}

// The number that `text` begins with, which is cut off.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data() || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

Action parse_action(const Cell& cell) {
  constexpr const char* kForm =
      "is no action: it must be <stage><op><microbatch> with op F, I, W or B (0F3, 2I0), or SEND_F, RECV_F, SEND_B, "
      "RECV_B, UNSHARD, RESHARD, REDUCE_GRAD";
  constexpr std::array<std::pair<std::string_view, OpKind>, 4> kCompute{
      {{"F", OpKind::Forward}, {"I", OpKind::BackwardInput}, {"W", OpKind::BackwardWeight}, {"B", OpKind::Backward}}};
  constexpr std::array<std::string_view, 4> kMessages{"SEND_F", "RECV_F", "SEND_B", "RECV_B"};
  constexpr std::array<std::string_view, 3> kStageActions{"UNSHARD", "RESHARD", "REDUCE_GRAD"};
  std::string_view rest = cell.text;
  if (rest.find("OVERLAP") != std::string_view::npos) {
    fail(cell, "runs two actions at once, which this version does not; write them one after the other");
  }
  const std::optional<int> stage = take_number(rest);
  if (!stage) fail(cell, kForm);
  Action action;
  action.stage = *stage;
  const std::string_view op = rest.substr(0, rest.find_first_of("0123456789."));
  std::string_view number = rest.substr(op.size());
  if (std::find(kStageActions.begin(), kStageActions.end(), op) != kStageActions.end()) return action;
  const auto compute = std::find_if(kCompute.begin(), kCompute.end(), [&](const auto& c) { return c.first == op; });
  const bool message = std::find(kMessages.begin(), kMessages.end(), op) != kMessages.end();
  if (compute == kCompute.end() && !message) fail(cell, kForm);
  const std::optional<int> micro_batch = take_number(number);
  if (!micro_batch || !number.empty()) fail(cell, kForm);
  action.micro_batch = *micro_batch;
  if (!message) action.kind = compute->second;
  return action;
}

// Parses the rows and remembers which row names which stage.
class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}

  void read(std::string_view text) {
    int line_number = 0;
    while (!text.empty()) {
      const size_t end = text.find('\n');
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      ++line_number;
      if (trimmed(line).empty() || trimmed(line).front() == '#') continue;
      row(line, line_number);
    }
  }

  ScheduleOptions finish() {
    if (rows_.empty()) throw ConfigError(name_ + ": the schedule is empty; give one row of actions per pipeline rank");
    check_stages();
    ScheduleOptions options;
    options.kind = ScheduleKind::Csv;
    options.pipeline = static_cast<int>(rows_.size());
    options.chunks = static_cast<int>(stages_[0].size());
    options.num_micro_batches = 1 + *micro_batches_.rbegin();
    for (size_t i = 0; i < rows_.size(); ++i) {
      std::map<int, int> chunk_of;
      for (const int stage : stages_[i]) {
        const int chunk = static_cast<int>(chunk_of.size());
        chunk_of.emplace(stage, chunk);
        options.listed_stages.push_back(stage);
      }
      for (Op& op : rows_[i]) op.chunk = chunk_of[op.chunk];
    }
    options.listed = std::move(rows_);
    return options;
  }

 private:
  void row(std::string_view line, int line_number) {
    const int rank = static_cast<int>(rows_.size());
    rows_.emplace_back();
    stages_.emplace_back();
    lines_.push_back(line_number);
    int column = 0;
    while (true) {
      const size_t end = line.find(',');
      const Cell cell{trimmed(line.substr(0, end)), fmt::format("{}: row {}, column {}", name_, line_number, ++column)};
      if (!cell.text.empty()) add(parse_action(cell), cell, rank);
      if (end == std::string_view::npos) return;
      line.remove_prefix(end + 1);
    }
  }

  void add(const Action& action, const Cell& cell, int rank) {
    if (!action.kind) return;
    const auto [owner, fresh] = owners_.emplace(action.stage, rank);
    if (!fresh && owner->second != rank) {
      fail(cell, fmt::format("runs stage {}, which row {} runs already: a stage belongs to one rank", action.stage,
                             lines_[static_cast<size_t>(owner->second)]));
    }
    stages_.back().insert(action.stage);
    micro_batches_.insert(action.micro_batch);
    Op op;
    op.kind = *action.kind;
    op.chunk = action.stage;  // becomes the chunk in finish()
    op.micro_batch = action.micro_batch;
    rows_.back().push_back(op);
  }

  void check_stages() const {
    for (size_t i = 0; i < stages_.size(); ++i) {
      if (stages_[i].size() == stages_[0].size() && !stages_[i].empty()) continue;
      throw ConfigError(
          fmt::format("{}: row {} runs {} stages, row {} runs {}: all ranks must run equally many, at "
                      "least one",
                      name_, lines_[i], stages_[i].size(), lines_[0], stages_[0].size()));
    }
    int expected = 0;
    for (const auto& [stage, rank] : owners_) {
      if (stage != expected) {
        throw ConfigError(
            fmt::format("{}: row {}: stage {} appears, but no row runs stage {}: stages are numbered 0, 1, "
                        "2, ...",
                        name_, lines_[static_cast<size_t>(rank)], stage, expected));
      }
      ++expected;
    }
    expected = 0;
    for (const int micro_batch : micro_batches_) {
      if (micro_batch != expected++) {
        throw ConfigError(
            fmt::format("{}: micro-batch {} appears, but micro-batch {} is on no row: micro-batches are "
                        "numbered 0, 1, 2, ...",
                        name_, micro_batch, expected - 1));
      }
    }
  }

  std::string name_;
  std::vector<std::vector<Op>> rows_;
  std::vector<std::set<int>> stages_;  // of each row
  std::vector<int> lines_;             // of each row
  std::map<int, int> owners_;          // row of each stage
  std::set<int> micro_batches_;
};

bool is_exported(const Op& op, CsvActions actions) {
  if (op.kind == OpKind::Recompute) return false;  // PyTorch has no such action: recomputation is part of B or I
  if (is_compute(op.kind)) return true;
  return actions == CsvActions::All && (is_send(op.kind) || is_receive(op.kind) || op.kind == OpKind::ReduceGradients);
}

}  // namespace

ScheduleOptions parse_csv_schedule(std::string_view text, const std::string& name) {
  Reader reader(name);
  reader.read(text);
  return reader.finish();
}

std::string csv_of(const Program& program, CsvActions actions) {
  std::string text;
  for (int i = 0; i < program.pipeline; ++i) {
    const char* separator = "";
    for (const Op& op : program.positions[static_cast<size_t>(i)]) {
      if (!is_exported(op, actions)) continue;
      // Several buckets of a stage are one REDUCE_GRAD action each, without their number.
      const bool reduce = op.kind == OpKind::ReduceGradients;
      const std::string action = reduce ? fmt::format("{}REDUCE_GRAD", program.layers.virtual_stage(i, op.chunk))
                                        : text_of(program.layers, i, op);
      text += fmt::format("{}{}", separator, action);
      separator = ",";
    }
    text += '\n';
  }
  return text;
}

}  // namespace triax::parallel
