#include "plan/shrink.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "io/options/validate.h"
#include "model/counts.h"
#include "plan/memory_report.h"

namespace triax::plan {
namespace {

using Entries = train::StepCommunication::Entries;

int64_t divided_up(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

bool divides_widths(const io::RunOptions& options, int64_t k) {
  const model::ModelConfig& m = options.model;
  const int64_t vocabulary = m.padded_vocab_size(options.parallel.grid.tensor);
  for (const int64_t width : {m.hidden_size, m.ffn_hidden_size, m.kv_channels, vocabulary}) {
    if (width % k != 0) return false;
  }
  return vocabulary / k % options.parallel.grid.tensor == 0;
}

/// Tokens are cut over tp by sequence parallelism and by sliced messages.
int64_t sequence_divisor(const io::RunOptions& options) {
  const model::ModelConfig& m = options.model;
  constexpr int64_t kFewest = 16;
  for (int64_t k = m.seq_length; k > 1; --k) {
    if (m.seq_length % k != 0 || m.max_position_embeddings % k != 0) continue;
    const int64_t tokens = m.seq_length / k;
    if (tokens >= kFewest && tokens % options.parallel.grid.tensor == 0) return k;
  }
  return 1;
}

/// What one rank computes and holds in a step of the shrunken run stays within seconds.
bool is_cheap(const io::RunOptions& small) {
  constexpr double kMostOperations = 5e10;
  constexpr int64_t kMostParameters = 20'000'000;
  const comm::GridShape& grid = small.parallel.grid;
  const model::StepFlops flops =
      model::step_flops(small.model, small.batch.global_batch_size, small.model.padded_vocab_size(grid.tensor),
                        model::AttentionCount::CausalHalf);
  return flops.model / grid.world() <= kMostOperations &&
         model::parameter_count(small.model) / (int64_t{grid.tensor} * grid.pipeline) <= kMostParameters;
}

/// Through (1, y1), (2, y2), (3, y3) at x; whole numbers, since (x-2)(x-3) and (x-1)(x-2) are even.
int64_t quadratic(const std::array<int64_t, 3>& y, int64_t x) {
  return y[0] * ((x - 2) * (x - 3) / 2) - y[1] * ((x - 1) * (x - 3)) + y[2] * ((x - 1) * (x - 2) / 2);
}

}  // namespace

io::RunOptions shrink(const io::RunOptions& options, const Divisors& divisors, int64_t width_times,
                      int64_t sequence_times) {
  io::RunOptions small = options;
  model::ModelConfig& m = small.model;
  const auto width = [&](int64_t& value) { value = value / divisors.width * width_times; };
  width(m.hidden_size);
  width(m.ffn_hidden_size);
  width(m.kv_channels);
  // Every padded row a token: the arrays hold the padded vocabulary.
  m.vocab_size = m.padded_vocab_size(options.parallel.grid.tensor);
  width(m.vocab_size);
  m.make_vocab_size_divisible_by = 1;
  m.seq_length = m.seq_length / divisors.sequence * sequence_times;
  m.max_position_embeddings = m.max_position_embeddings / divisors.sequence * sequence_times;
  const double ratio = static_cast<double>(width_times) / static_cast<double>(divisors.width);
  const auto squared = [&](int64_t value) {
    return std::max<int64_t>(1, static_cast<int64_t>(std::llround(static_cast<double>(value) * ratio * ratio)));
  };
  io::ParallelOptions& p = small.parallel;
  p.ddp_bucket_size = squared(p.ddp_bucket_size);
  p.compression.min_elements = squared(p.compression.min_elements);
  return small;
}

Shrinking find_shrinking(const io::RunOptions& options, const Simulate& simulate) {
  const int64_t sequence = sequence_divisor(options);
  // The arrays are the same in a shorter step.
  io::RunOptions shorter = options;
  shorter.batch.num_micro_batches = equivalent_micro_batches(options);
  shorter.batch.global_batch_size =
      shorter.batch.num_micro_batches * options.batch.micro_batch_size * options.parallel.grid.data;
  const uint64_t program = simulate(shorter).program;
  std::optional<Shrinking> largest;
  for (int64_t k = options.model.kv_channels; k >= 1; --k) {
    if (!divides_widths(options, k)) continue;
    const Divisors divisors{k, sequence};
    const io::RunOptions small = shrink(options, divisors, 1, 1);
    if (!io::faults(small, options.parallel.grid.world(), io::Purpose::Plan).empty()) continue;
    if (largest && !is_cheap(small)) break;
    int64_t padding = 0;
    bool same = true;
    for (int64_t times = 1; times <= 3 && same; ++times) {
      const train::RehearsedStep step = simulate(shrink_to_program(shorter, divisors, times, 1, program, simulate));
      padding += step.alignment;
      same = step.program == program;
    }
    if (!same) continue;
    if (padding == 0) return {divisors, 0};
    if (!largest) largest = {divisors, padding};
  }
  return largest.value_or(Shrinking{});
}

io::RunOptions shrink_to_program(const io::RunOptions& options, const Divisors& divisors, int64_t width_times,
                                 int64_t sequence_times, uint64_t program, const Simulate& simulate) {
  const io::RunOptions small = shrink(options, divisors, width_times, sequence_times);
  if (simulate(small).program == program) return small;
  // Vectors shrink with w, matrices with w^2, and so do the sums that fill a bucket: the first bucket size near the
  // square, and the first threshold between the two powers, that make the same program.
  const io::ParallelOptions& full = options.parallel;
  for (const double factor : {1.0, 0.97, 1.03, 0.9, 1.1, 0.8, 1.25, 0.6, 1.6}) {
    for (int64_t cut = divisors.width * divisors.width; cut >= 1; cut /= 2) {
      io::RunOptions candidate = small;
      candidate.parallel.ddp_bucket_size = std::max<int64_t>(1, std::llround(factor * small.parallel.ddp_bucket_size));
      candidate.parallel.zero_persistence_threshold = divided_up(full.zero_persistence_threshold, cut);
      if (simulate(candidate).program == program) return candidate;
      if (full.zero_stage < 3) break;
    }
  }
  return small;
}

Scaled scale_traffic(const io::RunOptions& options, const Divisors& divisors, const train::RehearsedStep& executed,
                     const Simulate& simulate) {
  const auto at = [&](int64_t w, int64_t s) {
    return simulate(shrink_to_program(options, divisors, w, s, executed.program, simulate));
  };
  const std::array<train::RehearsedStep, 4> others{at(2, 1), at(3, 1), at(1, 2), at(2, 2)};
  for (const train::RehearsedStep& other : others) {
    if (other.program != executed.program) return {{}, "the program changes with the widths"};
  }
  Scaled scaled;
  for (const auto& [key, entry] : executed.traffic) {
    std::array<int64_t, 4> payload{};
    bool alike = true;
    for (size_t i = 0; i < others.size(); ++i) {
      const auto found = others[i].traffic.find(key);
      alike = alike && found != others[i].traffic.end() && found->second.calls == entry.calls;
      if (alike) payload[i] = found->second.payload_bytes;
    }
    if (!alike) continue;
    const auto& [w2, w3, s2, w2s2] = payload;
    const int64_t slope1 = s2 - entry.payload_bytes, slope2 = w2s2 - w2;
    const int64_t slope = slope1 + (divisors.width - 1) * (slope2 - slope1);
    comm::LedgerEntry& full = scaled.entries[key];
    full.calls = entry.calls;
    full.payload_bytes = quadratic({entry.payload_bytes, w2, w3}, divisors.width) + (divisors.sequence - 1) * slope;
  }
  return scaled;
}

}  // namespace triax::plan
