#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "plan/planner/reasons.h"

namespace triax::plan {
namespace {

/// GB/s of bus bandwidth: there 4 (t-1) all-reduced elements of 2 bytes against 12 h flops a parameter make tp's ratio
/// (2/9) (t-1) F / (h B) 0.57 at t 8, h 8192 and F 150 TFLOP/s; on narrower models it is above 1.
constexpr double kTensorPays = 50;
/// 1-bit Adam sends one bit for sixteen (Tang 2021, arXiv 2102.02888).
constexpr double kOneBitSaves = 15.0 / 16;
/// Bytes of local memory that it moves for each parameter in fp32: momentum and the worker's error, read and written
/// (16), the sum read once for its scale and once for its signs (8).
constexpr double kOneBitBytes = 24;
/// Top-K over d ranks gathers 6 bytes (index and 16-bit value) of a share r of n elements from each, d r n 6; an
/// all-reduce of 16 bits moves 4 n: even at r = 2 / (3 d), d - 1 for what a rank has already.
constexpr double kTopKDensity = 2.0 / 3;

std::string duration(double seconds) {
  return seconds >= 1 ? fmt::format("{:.3g} s", seconds) : fmt::format("{:.3g} ms", seconds * 1e3);
}

/// The best layout that fits and meets a condition, by closed form.
template <typename Condition>
const Candidate* best_where(const SearchResult& result, Condition&& meets) {
  for (const Candidate& candidate : result.ranked) {
    if (meets(candidate.layout)) return &candidate;
  }
  return nullptr;
}

std::string against_winner(const Candidate& other, const StepTime& winner) {
  const double slower = other.time.step_s / winner.step_s - 1;
  return fmt::format("{} takes {:+.0f} %", text_of(other.layout), 100 * slower);
}

void about_tensor(const PlanQuestion& q, const SearchResult& result, const Ratios& r, std::vector<std::string>& out) {
  const Layout& winner = result.choices.front().layout;
  const StepTime& time = result.choices.front().closed_form;
  const double busbw = r.tensor_bytes_per_s / kGiga;
  if (winner.tensor == 1) {
    const Candidate* other = best_where(result, [](const Layout& l) { return l.tensor > 1; });
    if (other == nullptr || other->time.step_s <= time.step_s) return;
    out.push_back(
        fmt::format("Tensor parallelism does not pay: at tp {} an all-reduce reaches {:.3g} GB/s, which makes "
                    "its communication {:.0f} % of the computing{}; the best such layout, {}.",
                    r.tensor, busbw, 100 * r.tp,
                    busbw < kTensorPays ? fmt::format(" (it seldom pays below {:.0f} GB/s)", kTensorPays) : "",
                    against_winner(*other, time)));
    return;
  }
  const int per_node = q.hardware.devices_per_node;
  const auto wider = result.values.find({PlanAxis::Tensor, winner.tensor * 2});
  if (winner.tensor * 2 > per_node && q.devices > per_node) {
    out.push_back(
        fmt::format("Tensor parallelism stays inside a node of {} devices ({:.3g} GB/s, {:.0f} % of the "
                    "computing): {}.",
                    per_node, busbw, 100 * r.tp,
                    wider != result.values.end() && wider->second.best
                        ? against_winner(*wider->second.best, time)
                        : std::string("across nodes its all-reduces would share the nodes' ports")));
  }
}

void about_zero3(const PlanQuestion& q, const SearchResult& result, const Ratios& r, std::vector<std::string>& out) {
  const Layout& winner = result.choices.front().layout;
  const StepTime& time = result.choices.front().closed_form;
  const auto m = q.base.batch.global_batch_size / winner.data / winner.micro_batch;
  if (winner.zero == 3 && winner.tensor == 1 && winner.pipeline == 1) {
    const Candidate* grid = best_where(result, [](const Layout& l) { return l.tensor > 1 || l.pipeline > 1; });
    out.push_back(fmt::format(
        "ZeRO 3 with {} accumulated micro-batches: its gathers hide from {:.0f} tokens per device and micro-batch on "
        "({:.3g} GB/s), this layout has {:.0f}; {}.",
        m, r.zero3_tokens, r.data_bytes_per_s / kGiga, r.tokens,
        grid != nullptr ? "of tensor and pipeline layouts " + against_winner(*grid, time)
                        : std::string("no tensor or pipeline layout fits")));
    return;
  }
  const Candidate* other =
      best_where(result, [](const Layout& l) { return l.zero == 3 && l.tensor == 1 && l.pipeline == 1; });
  if (other == nullptr || winner.data == q.devices) return;
  const Ratios its = ratios_of(q, other->layout);
  out.push_back(
      fmt::format("ZeRO 3 alone would hide its gathers from {:.0f} tokens per device and micro-batch on ({:.3g} GB/s) "
                  "and has {:.0f}; "
                  "{}: {}.",
                  its.zero3_tokens, its.data_bytes_per_s / kGiga, its.tokens, against_winner(*other, time),
                  largest_loss(time, other->time)));
}

void about_two_devices(const PlanQuestion& q, const SearchResult& result, std::vector<std::string>& out) {
  if (q.devices != 2) return;
  const auto data_only = [](const Layout& l) { return l.tensor == 1 && l.pipeline == 1; };
  const Candidate* plain = best_where(result, [&](const Layout& l) { return data_only(l) && l.zero <= 1; });
  const Candidate* sharded = best_where(result, [&](const Layout& l) { return data_only(l) && l.zero == 3; });
  if (plain == nullptr && sharded != nullptr) {
    out.push_back("On 2 devices plain data parallelism does not fit: sharding (ZeRO 3, as FSDP) is what makes room.");
  } else if (plain != nullptr) {
    Layout all_cut = plain->layout;
    all_cut.zero = 3;
    all_cut.shard_group = all_cut.data;
    const Candidate same = price(q, all_cut);
    out.push_back(
        fmt::format("On 2 devices plain data parallelism fits; sharding everything (ZeRO 3, as FSDP) buys memory, "
                    "not speed: the same run in {:.2f} instead of {:.2f} GiB takes {:+.1f} %.",
                    same.bytes / kGiB, plain->bytes / kGiB, 100 * (same.time.step_s / plain->time.step_s - 1)));
  }
}

void about_gradients(const PlanQuestion& q, const SearchResult& result, std::vector<std::string>& out) {
  const Choice& choice = result.choices.front();
  const Layout& l = choice.layout;
  const StepTime& time = choice.closed_form;
  if (l.data == 1) return;
  const StepShape shape = shape_of(choice.options);
  const Pricing pricing(q.hardware, *find_software("triax"), shape.dtype);
  const ShapeParameters each = parameters_of(shape);
  const double parameters = each.layer * static_cast<double>(layers_of_position(shape, 0)) + each.embedding;
  const double bytes = parameters * static_cast<double>(shape.gradient_bytes);
  const GroupPlace place = data_place(pricing, shape);
  if (place.nodes > 1 && place.ranks > place.nodes) {
    const int inside = place.ranks / place.nodes;
    const int world = shape.ranks();
    const int stride = l.order == comm::RankOrder::TpCpDpPp ? l.tensor : l.tensor * l.pipeline;
    const GroupPlace in = place_of(inside, stride, q.hardware.devices_per_node, world);
    const GroupPlace across = place_of(place.nodes, stride * inside, q.hardware.devices_per_node, world);
    const auto& c = pricing.collectives;
    const double flat = c.time_s(comm::Operation::AllReduce, place, bytes);
    const double nested = c.time_s(comm::Operation::ReduceScatter, in, bytes) +
                          c.time_s(comm::Operation::AllReduce, across, bytes / inside) +
                          c.time_s(comm::Operation::AllGather, in, bytes);
    if (nested < 0.95 * flat) {
      out.push_back(
          fmt::format("A hierarchical all-reduce of the gradients takes {} instead of {} "
                      "(--collective-algorithm dp=hierarchical).",
                      duration(nested), duration(flat)));
    }
  }
  const double cost = kOneBitBytes * parameters / q.hardware.memory_bytes_per_s.value;
  const double saved = time.data_s * kOneBitSaves;
  if (l.zero <= 1 && saved > 2 * cost && time.data_s > 0.05 * time.step_s) {
    out.push_back(
        fmt::format("The gradients' reduction is exposed for {} of {}: 1-bit Adam would save up to "
                    "{} and cost {} (--grad-compression onebit-adam); Top-K pays below a "
                    "density of {:.2g} % over {} replicas.",
                    duration(time.data_s), duration(time.step_s), duration(saved), duration(cost),
                    100 * kTopKDensity / std::max(1, l.data - 1), l.data));
  } else if (time.data_s <= 0.02 * time.step_s) {
    out.push_back(fmt::format("Compressed gradients would gain nothing: {:.1f} % of the step is exposed reduction.",
                              100 * time.data_s / time.step_s));
  }
}

void about_bubble(const PlanQuestion& q, const SearchResult& result, std::vector<std::string>& out) {
  const Choice& choice = result.choices.front();
  if (choice.layout.pipeline == 1) return;
  const double bubble = choice.prediction.bubble_of_total;
  if (bubble < 0.1) return;
  const int p = choice.layout.pipeline;
  const auto m = q.base.batch.global_batch_size / choice.layout.data / choice.layout.micro_batch;
  // m >= (p-1)(1-e)/(e v) brings the share of the total to e.
  const double needed = std::ceil((p - 1) * 0.95 / (0.05 * choice.layout.chunks));
  out.push_back(
      fmt::format("The bubble is {:.1f} % of the step with {} micro-batches on {} stages; even stages need {:.0f} "
                  "for 5 %.",
                  100 * bubble, m, p, needed));
}

}  // namespace

std::vector<std::string> advice(const PlanQuestion& question, const SearchResult& result, const Ratios& ratios) {
  std::vector<std::string> out;
  if (result.choices.empty()) return out;
  about_two_devices(question, result, out);
  about_zero3(question, result, ratios, out);
  about_tensor(question, result, ratios, out);
  about_gradients(question, result, out);
  about_bubble(question, result, out);
  return out;
}

}  // namespace triax::plan
