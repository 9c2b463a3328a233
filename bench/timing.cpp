#include "bench/timing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/clock.h"
#include "base/philox.h"

namespace triax::bench {
namespace {

constexpr uint64_t kOrderSeed = 20260101;

double over_some(comm::Communicator* group, double mine, comm::ReduceOp op) {
  return group != nullptr && group->size() > 1 ? over_ranks(*group, mine, op) : mine;
}

/// Seconds of a call of this rank, while the others do the same.
double time_calls(const std::function<void()>& call, int64_t calls, const std::function<void()>& settle,
                  comm::Communicator* group) {
  if (group != nullptr && group->size() > 1) group->barrier();
  const Stopwatch watch;
  for (int64_t i = 0; i < calls; ++i) call();
  if (settle) settle();
  return watch.elapsed_s() / static_cast<double>(calls);
}

}  // namespace

double over_ranks(comm::Communicator& group, double mine, comm::ReduceOp op) {
  group.all_reduce(Tensor(&mine, DType::Float64, {1}), op).wait();
  return mine;
}

Statistics statistics(std::vector<double> seconds) {
  Statistics s;
  if (seconds.empty()) return s;
  std::sort(seconds.begin(), seconds.end());
  const size_t n = seconds.size();
  const auto nearest_rank = [&](double share) {
    const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(n) - 1e-9));
    return seconds[std::clamp<size_t>(rank, 1, n) - 1];
  };
  s.samples = static_cast<int64_t>(n);
  s.min_s = seconds.front();
  s.max_s = seconds.back();
  s.median_s = (seconds[(n - 1) / 2] + seconds[n / 2]) / 2;
  s.p95_s = nearest_rank(0.95);
  s.p99_s = nearest_rank(0.99);
  s.mean_s = std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(n);
  double squares = 0;
  for (const double t : seconds) squares += (t - s.mean_s) * (t - s.mean_s);
  if (s.mean_s > 0) s.cv = std::sqrt(squares / static_cast<double>(n)) / s.mean_s;
  return s;
}

double undisturbed_s(const Statistics& time) {
  constexpr double kScatter = 0.1;
  return time.cv > kScatter ? time.min_s : time.median_s;
}

std::vector<std::vector<size_t>> random_orders(size_t count, int rounds, uint64_t seed) {
  std::vector<std::vector<size_t>> orders;
  for (int round = 0; round < rounds; ++round) {
    std::vector<size_t> order(count);
    std::iota(order.begin(), order.end(), size_t{0});
    for (size_t i = count; i > 1; --i) {
      const PhiloxCounter draw = philox4x32({static_cast<uint32_t>(i), static_cast<uint32_t>(round), 0, 0},
                                            {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
      std::swap(order[i - 1], order[draw[0] % i]);
    }
    orders.push_back(std::move(order));
  }
  return orders;
}

std::vector<Statistics> time_cases(const std::vector<std::function<void()>>& calls, const TimingOptions& options,
                                   comm::Communicator* group) {
  std::vector<int64_t> repeats(calls.size(), 1);
  std::vector<std::vector<double>> samples(calls.size());
  bool first = true;
  for (const std::vector<size_t>& order : random_orders(calls.size(), options.rounds + 1, kOrderSeed)) {
    for (const size_t i : order) {
      if (first) calls[i]();  // loads, compiles, touches memory
      if (first && options.settle) options.settle();
      const double mine = time_calls(calls[i], repeats[i], options.settle, group);
      if (first) {
        const double slowest = std::max(over_some(group, mine, comm::ReduceOp::Max), 1e-9);
        const auto wanted = static_cast<int64_t>(std::ceil(options.sample_s / slowest));
        repeats[i] = std::clamp<int64_t>(wanted, 1, options.most_calls);
        continue;
      }
      const double ranks = group != nullptr ? group->size() : 1;
      samples[i].push_back(over_some(group, mine, comm::ReduceOp::Sum) / ranks);
    }
    first = false;
  }
  std::vector<Statistics> all;
  for (std::vector<double>& one : samples) all.push_back(statistics(std::move(one)));
  return all;
}

}  // namespace triax::bench
