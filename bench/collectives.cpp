#include "bench/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/clock.h"
#include "base/error.h"

namespace triax::bench {
namespace {

using comm::Operation;

constexpr int64_t kTurnBytes = int64_t{16} << 20;

/// One algorithm: a grid of its own, and tensors from its memory.
class Contender {
 public:
  Contender(comm::MpiSession& session, const CollectiveBench& bench, comm::Algorithm algorithm)
      : algorithm_(algorithm), bench_(&bench) {
    comm::GridOptions options;
    options.shape.tensor = session.size();
    options.timeout_s = bench.timeout_s;
    options.fake_nodes = bench.fake_nodes;
    options.collectives.rules = {{"tp", algorithm}};
    options.collectives.order = bench.order;
    grid_ = std::make_unique<comm::ProcessGrid>(session, options);
    MemoryProvider& provider = bench.place == BufferPlace::Window ? grid_->memory() : heap_;
    arena_ = std::make_unique<Arena>(provider);
  }
  comm::Algorithm algorithm() const { return algorithm_; }
  comm::ProcessGrid& grid() { return *grid_; }
  comm::Communicator& group() { return grid_->tensor(); }

  void allocate(Operation op, int64_t elements) {
    op_ = op;
    whole_.reset();
    piece_.reset();
    whole_ = arena_->allocate(bench_->dtype, elements, MemoryCategory::Workspace);
    piece_ = arena_->allocate(bench_->dtype, elements / group().size(), MemoryCategory::Workspace);
    elements_ = elements;
  }
  Tensor whole() const { return whole_.view(bench_->dtype, {elements_}); }
  Tensor piece() { return piece_.view(bench_->dtype, {elements_ / group().size()}); }

  void call() {
    if (op_ == Operation::AllReduce) group().all_reduce(whole(), comm::ReduceOp::Sum).wait();
    if (op_ == Operation::ReduceScatter) group().reduce_scatter(whole(), piece(), comm::ReduceOp::Sum).wait();
    if (op_ == Operation::AllGather) group().all_gather(piece(), whole()).wait();
  }

 private:
  comm::Algorithm algorithm_;
  const CollectiveBench* bench_;
  HeapProvider heap_;
  std::unique_ptr<comm::ProcessGrid> grid_;
  std::unique_ptr<Arena> arena_;
  Buffer whole_, piece_;
  int64_t elements_ = 0;
  Operation op_ = Operation::AllReduce;
};

/// Calls f with the tensor's elements as a typed pointer.
template <class F>
void with_data(const Tensor& t, F f) {
  switch (t.dtype()) {
    case DType::Float64:
      return f(t.as<double>());
    case DType::Float32:
      return f(t.as<float>());
    case DType::BFloat16:
      return f(t.as<bf16>());
    case DType::Float16:
      return f(t.as<fp16>());
    default:
      throw ConfigError("triax bench coll: --dtype must be fp64, fp32, bf16 or fp16");
  }
}

/// Small whole numbers, whose sums are exact in every dtype.
float value(int rank, int64_t i) { return static_cast<float>((i + rank) % 5); }

void fill(const Tensor& t, int rank, int64_t first) {
  with_data(t, [&]<class T>(T* data) {
    for (int64_t i = 0; i < t.numel(); ++i) data[i] = T(value(rank, first + i));
  });
}

template <class Expected>
int64_t count_wrong(const Tensor& t, Expected expected) {
  int64_t wrong = 0;
  with_data(t, [&](const auto* data) {
    for (int64_t i = 0; i < t.numel(); ++i) wrong += static_cast<float>(data[i]) == expected(i) ? 0 : 1;
  });
  return wrong;
}

/// One call with known values; elements of this rank that are not as they must be.
int64_t check(Contender& one, Operation op) {
  const int n = one.group().size();
  const int rank = one.group().rank();
  const int64_t each = one.piece().numel();
  const auto sum = [n](int64_t i) {
    float total = 0;
    for (int r = 0; r < n; ++r) total += value(r, i);
    return total;
  };
  fill(one.whole(), rank, 0);
  if (op == Operation::AllGather) fill(one.piece(), rank, rank * each);
  one.call();
  if (op == Operation::ReduceScatter) return count_wrong(one.piece(), [&](int64_t i) { return sum(rank * each + i); });
  if (op == Operation::AllReduce) return count_wrong(one.whole(), sum);
  return count_wrong(one.whole(), [&](int64_t i) { return value(static_cast<int>(i / each), i); });
}

double over_ranks(comm::ProcessGrid& grid, double mine, comm::ReduceOp op) {
  grid.world().all_reduce(Tensor(&mine, DType::Float64, {1}), op).wait();
  return mine;
}

/// Correctness and bytes of one call.
void check_row(Contender& one, CollectiveRow& row) {
  one.grid().ledger().reset();
  const int64_t wrong = check(one, row.op);
  const auto entries = one.grid().ledger().snapshot();
  const comm::LedgerEntry entry = entries.at({"tp", row.op});
  row.converted = entry.converted_calls > 0;
  row.wrong = std::llround(over_ranks(one.grid(), static_cast<double>(wrong), comm::ReduceOp::Sum));
  row.inside_bytes = over_ranks(one.grid(), static_cast<double>(entry.counted.inside), comm::ReduceOp::Sum);
  row.across_bytes = over_ranks(one.grid(), static_cast<double>(entry.counted.across), comm::ReduceOp::Sum);
  // Values for the calls that are timed: sums of zeros stay finite however often they are taken.
  with_data(one.whole(), [&]<class T>(T* data) { std::fill_n(data, one.whole().numel(), T(0)); });
  one.call();
}

/// Seconds of one call on the slowest rank.
double time_turn(Contender& one, int64_t calls) {
  one.group().barrier();
  const Stopwatch watch;
  for (int64_t i = 0; i < calls; ++i) one.call();
  return over_ranks(one.grid(), watch.elapsed_s() / static_cast<double>(calls), comm::ReduceOp::Max);
}

std::vector<CollectiveRow> measure_size(std::vector<std::unique_ptr<Contender>>& contenders,
                                        const CollectiveBench& bench, Operation op, int64_t bytes) {
  const int n = contenders[0]->group().size();
  const auto width = static_cast<int64_t>(size_of(bench.dtype));
  const int64_t elements = bytes / width / n * n;
  if (elements == 0) {
    throw ConfigError(fmt::format("triax bench coll: --min-bytes {}: {} ranks need at least one element each; use {}",
                                  bytes, n, width * n));
  }
  const int64_t calls = bench.calls > 0 ? bench.calls : std::clamp<int64_t>(kTurnBytes / bytes, 2, 200);
  std::vector<CollectiveRow> rows;
  std::vector<std::vector<double>> times(contenders.size());
  for (const auto& one : contenders) {
    one->allocate(op, elements);
    rows.push_back({.op = op, .algorithm = one->algorithm(), .size_bytes = elements * width, .elements = elements});
    check_row(*one, rows.back());
  }
  for (int turn = 0; turn < bench.turns; ++turn) {
    for (size_t i = 0; i < contenders.size(); ++i) times[i].push_back(time_turn(*contenders[i], calls));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    CollectiveRow& row = rows[i];
    std::sort(times[i].begin(), times[i].end());
    const double median_s = times[i][times[i].size() / 2];
    row.time_us = 1e6 * median_s;
    row.best_us = 1e6 * times[i][0];
    row.algbw_gbps = static_cast<double>(row.size_bytes) / median_s / 1e9;
    row.busbw_gbps = comm::sent_bytes(op, row.size_bytes, n) / median_s / 1e9;
  }
  return rows;
}

}  // namespace

std::vector<CollectiveRow> measure_collectives(comm::MpiSession& session, const CollectiveBench& bench) {
  std::vector<std::unique_ptr<Contender>> contenders;
  for (const comm::Algorithm algorithm : bench.algorithms) {
    contenders.push_back(std::make_unique<Contender>(session, bench, algorithm));
  }
  std::vector<CollectiveRow> rows;
  for (const Operation op : bench.ops) {
    for (int64_t bytes = bench.least_bytes; bytes <= bench.most_bytes; bytes *= bench.factor) {
      for (CollectiveRow& row : measure_size(contenders, bench, op, bytes)) rows.push_back(row);
    }
  }
  contenders[0]->grid().world().barrier();
  return rows;
}

}  // namespace triax::bench
