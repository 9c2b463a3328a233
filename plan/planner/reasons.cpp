#include "plan/planner/reasons.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"

namespace triax::plan {
namespace {

struct NamedPart {
  const char* name;
  double StepTime::*part;
};
constexpr std::array<NamedPart, 9> kNamedParts{{{"slower kernels", &StepTime::compute_s},
                                                {"recomputation", &StepTime::recompute_s},
                                                {"exposed tp communication", &StepTime::tensor_s},
                                                {"exposed ZeRO gathers and reductions", &StepTime::gather_s},
                                                {"waiting for the host", &StepTime::host_s},
                                                {"pipeline bubble", &StepTime::bubble_s},
                                                {"pipeline messages", &StepTime::message_s},
                                                {"exposed dp communication", &StepTime::data_s},
                                                {"optimizer", &StepTime::optimizer_s}}};

/// Two times of one magnitude in the unit that suits the larger: "0.31 of 4.2 s".
std::string part_of_whole(double part_s, double whole_s) {
  if (whole_s >= 10) return fmt::format("{:+.3g} of {:.4g} s", part_s, whole_s);
  return fmt::format("{:+.3g} of {:.4g} ms", part_s * 1e3, whole_s * 1e3);
}

std::string missing(double bytes, double limit) {
  return fmt::format("nothing fits: at least {:.1f} GiB, {:.1f} more than the {:.1f} that may be used", bytes / kGiB,
                     (bytes - limit) / kGiB, limit / kGiB);
}

/// The question on a changed machine or batch.
Sensitivity changed(const PlanQuestion& now, const SearchResult& result, const Candidate& best, std::string change,
                    const PlanQuestion& then) {
  Sensitivity s{std::move(change)};
  const std::optional<Candidate> other = fastest_of(then, result.pool);
  s.feasible = other.has_value();
  if (!other) return s;
  const double per_sample_now = best.time.step_s / static_cast<double>(now.base.batch.global_batch_size);
  const double per_sample_then = other->time.step_s / static_cast<double>(then.base.batch.global_batch_size);
  s.step_change = per_sample_then / per_sample_now - 1;
  if (!(other->layout == best.layout)) s.layout = other->layout;
  return s;
}

}  // namespace

std::string largest_loss(const StepTime& winner, const StepTime& other) {
  const NamedPart* worst = &kNamedParts[0];
  for (const NamedPart& part : kNamedParts) {
    if (other.*part.part - winner.*part.part > other.*worst->part - winner.*worst->part) worst = &part;
  }
  const double loss = other.*worst->part - winner.*worst->part;
  return loss <= 0 ? "as fast" : fmt::format("{} {}", worst->name, part_of_whole(loss, other.step_s));
}

std::vector<ValueNote> value_notes(const PlanQuestion& question, const SearchResult& result) {
  std::vector<ValueNote> notes;
  if (result.choices.empty()) return notes;
  const Layout& winner = result.choices.front().layout;
  const StepTime& winning = result.choices.front().closed_form;
  const double limit = question.limit_bytes();
  for (const auto& [key, summary] : result.values) {
    ValueNote note{key.first, key.second};
    note.chosen = value_of(winner, key.first) == key.second;
    note.layouts = summary.layouts;
    note.fitting = summary.fitting;
    if (!summary.best) {
      note.reason = missing(summary.smallest->bytes, limit);
    } else {
      note.layout = summary.best->layout;
      note.slower = summary.best->time.step_s / winning.step_s - 1;
      if (!note.chosen) note.reason = largest_loss(winning, summary.best->time);
    }
    notes.push_back(std::move(note));
  }
  for (const auto& [key, rule] : result.broken) {
    if (result.values.contains(key)) continue;
    ValueNote note{key.first, key.second};
    note.reason = rule;
    notes.push_back(std::move(note));
  }
  std::ranges::stable_sort(notes, [](const ValueNote& a, const ValueNote& b) {
    return std::pair(a.axis, a.value) < std::pair(b.axis, b.value);
  });
  return notes;
}

std::vector<Sensitivity> sensitivities(const PlanQuestion& question, const SearchResult& result) {
  std::vector<Sensitivity> all;
  const std::optional<Candidate> best = fastest_of(question, result.pool);
  if (!best) return all;
  const auto ask = [&](std::string change, const PlanQuestion& then) {
    all.push_back(changed(question, result, *best, std::move(change), then));
  };
  for (const double gib : {8.0, -8.0}) {
    PlanQuestion then = question;
    then.hardware.memory_bytes.value += gib * kGiB;
    if (then.hardware.memory_bytes.value > 0) ask(fmt::format("{:+.0f} GiB per device", gib), then);
  }
  for (size_t i = 0; i < question.hardware.links.size(); ++i) {
    PlanQuestion then = question;
    bench::Link& link = then.hardware.links[i];
    link.bytes_per_s.value *= 2;
    link.latency_s.value /= 2;
    // Measured times stand for the link as it is.
    std::erase_if(then.hardware.collectives, [&](const bench::CollectivePoint& p) { return (p.nodes > 1) == (i > 0); });
    ask(fmt::format("{} twice as fast", link.name), then);
  }
  PlanQuestion twice = question;
  twice.base.batch.global_batch_size *= 2;
  ask("global batch x2", twice);
  return all;
}

std::vector<std::string> infeasible_notes(const PlanQuestion& question, const SearchResult& result) {
  std::vector<std::string> notes;
  const double limit = question.limit_bytes();
  if (!result.smallest) {
    notes.push_back(fmt::format("no layout of {} devices divides the model and the batch", question.devices));
    for (const auto& [key, rule] : result.broken) {
      notes.push_back(fmt::format("{} {}: {}", name_of(key.first), text_of(key.first, key.second), rule));
    }
    return notes;
  }
  const double short_of = result.smallest->bytes - limit;
  if (short_of <= 0) {
    notes.push_back(fmt::format("{} fits by closed form, but counted stage by stage none of those simulated does",
                                text_of(result.smallest->layout)));
    return notes;
  }
  notes.push_back(
      fmt::format("the smallest layout, {}, needs {:.2f} GiB per device: {:.2f} GiB more than the {:.2f} "
                  "that may be used",
                  text_of(result.smallest->layout), result.smallest->bytes / kGiB, short_of / kGiB, limit / kGiB));
  // A suggestion counts only when it works.
  const auto works = [&](const PlanQuestion& other) -> std::optional<Candidate> {
    const SearchResult found = survey(other);
    return found.ranked.empty() ? std::nullopt : std::optional(found.ranked.front());
  };
  PlanQuestion more = question;
  for (int factor = 2; factor <= 1024; factor *= 2) {
    more.devices = question.devices * factor;
    more.base.batch.global_batch_size = std::max<int64_t>(question.base.batch.global_batch_size, more.devices);
    if (more.base.batch.global_batch_size % more.devices != 0) continue;
    if (const std::optional<Candidate> found = works(more)) {
      notes.push_back(
          fmt::format("{} devices hold it: {}, {:.1f} GiB", more.devices, text_of(found->layout), found->bytes / kGiB));
      break;
    }
  }
  PlanQuestion shorter = question;
  for (int factor = 2; factor <= 8 && shorter.base.model.seq_length % 2 == 0; factor *= 2) {
    shorter.base.model.seq_length /= 2;
    if (const std::optional<Candidate> found = works(shorter)) {
      notes.push_back(fmt::format("--seq-length {} fits on these {}: {}", shorter.base.model.seq_length,
                                  question.devices, text_of(found->layout)));
      break;
    }
  }
  PlanQuestion open = question;
  open.space = {};
  if (const std::optional<Candidate> found = works(open)) {
    notes.push_back(fmt::format("without the restrictions given, {} fits: {:.1f} GiB", text_of(found->layout),
                                found->bytes / kGiB));
  }
  return notes;
}

}  // namespace triax::plan
