#include "io/report/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/median.h"

namespace triax::io {
RunSummary::Medians RunSummary::medians() const {
  const auto total = static_cast<int64_t>(records_.size());
  const int64_t skip = total >= 2 * warmup_ ? warmup_ : 0;
  const auto over = [&](auto field) {
    std::vector<double> values;
    for (auto record = records_.begin() + skip; record != records_.end(); ++record) values.push_back(field(*record));
    return median(std::move(values));
  };
  Medians m;
  m.counted = total - skip;
  m.step_ms = over([](const IterationRecord& r) { return r.step_ms; });
  m.tokens_per_s = over([](const IterationRecord& r) { return r.tokens_per_s; });
  m.model_tflops = over([](const IterationRecord& r) { return r.model_tflops; });
  m.mfu = over([](const IterationRecord& r) { return r.mfu; });
  m.bubble = over([](const IterationRecord& r) { return r.bubble_fraction; });
  m.exposed_ms = over([](const IterationRecord& r) { return r.exposed_comm_ms; });
  m.data_wait_ms = over([](const IterationRecord& r) { return r.data_wait_ms; });
  for (const IterationRecord& record : records_) m.peak_memory = std::max(m.peak_memory, record.peak_memory_bytes);
  return m;
}

std::string RunSummary::text(EndReason reason) const {
  if (records_.empty()) return fmt::format(" run ended: {}, no iteration made\n", text_of(reason));
  const Medians m = medians();
  const auto skipped = std::count_if(records_.begin(), records_.end(), [](const auto& r) { return r.skipped; });
  std::string text =
      fmt::format(" run ended: {} at iteration {} | iterations made: {} | skipped: {} | last lm loss: {:.6E}\n",
                  text_of(reason), records_.back().iteration, records_.size(), skipped, records_.back().lm_loss);
  text += fmt::format(" median step: {:.1f} ms (last {} iterations) | tokens/s: {:.1f} | TFLOP/s per rank: {:.4f} |",
                      m.step_ms, m.counted, m.tokens_per_s, m.model_tflops);
  text += m.mfu > 0 ? fmt::format(" MFU: {:.1f}%\n", 100 * m.mfu) : " MFU: peak unknown\n";
  text += fmt::format(
      " bubble: {:.1f}% | exposed communication: {:.1f} ms | waited for data: {:.1f} ms | peak memory per rank: {:.1f} "
      "MiB\n",
      100 * m.bubble, m.exposed_ms, m.data_wait_ms, static_cast<double>(m.peak_memory) / 1048576);
  return text;
}

std::string RunSummary::json(EndReason reason) const {
  nlohmann::ordered_json json = {{"ended", text_of(reason)}, {"iterations", records_.size()}};
  if (!records_.empty()) {
    const Medians m = medians();
    json["last_iteration"] = records_.back().iteration;
    json["last_lm_loss"] = records_.back().lm_loss;
    json["counted_iterations"] = m.counted;
    json["step_ms"] = m.step_ms;
    json["tokens_per_s"] = m.tokens_per_s;
    json["model_tflops"] = m.model_tflops;
    json["mfu"] = m.mfu;
    json["bubble_fraction"] = m.bubble;
    json["exposed_comm_ms"] = m.exposed_ms;
    json["data_wait_ms"] = m.data_wait_ms;
    json["peak_memory_bytes"] = m.peak_memory;
  }
  return json.dump(2) + "\n";
}

}  // namespace triax::io
