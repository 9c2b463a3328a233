// Narayanan et al. 2021 (arXiv 2104.04473) on 2 or 4 ranks of one host. What is kept: micro-batches per stage (m/p),
// hence the bubble; the order of degrees; widths in proportion. What is cut: width, layers, sequence, ranks.
#include <fmt/format.h>

#include "plan/scaled/scaled.h"

namespace triax::plan {
namespace {

using Words = std::vector<std::string>;

/// Where a micro-batch has to outweigh its messages.
Words wide(int layers) { return scaled_gpt({layers, 256, 8, 128, 512}); }
/// Where many samples have to be short.
Words narrow() { return scaled_gpt({4, 128, 4, 64, 512}); }

Setting number_setting(const char* option, int value) { return {option, std::to_string(value)}; }
Setting tensor(int t) { return number_setting("tensor-model-parallel-size", t); }
Setting pipeline(int p) { return number_setting("pipeline-model-parallel-size", p); }
Setting micro_batch(int b) { return number_setting("micro-batch-size", b); }
Setting batch(int samples) { return number_setting("global-batch-size", samples); }

PointRequest request(Words model, std::vector<Setting> settings, const Words& more = {}) {
  model.insert(model.end(), more.begin(), more.end());
  return {SweepMode::Real, std::move(model), std::move(settings), 1};
}

ScaledExperiment speeds(std::string cut) {
  ScaledExperiment e;
  e.cut = std::move(cut);
  e.metric = "model_tflops";
  e.unit = "GFLOP/s";  // per rank, causal half, without recomputation
  e.factor = 1e3;
  return e;
}

constexpr const char* kOneHost =
    "ranks of one host: no link is slower than another, so that tensor parallelism costs nothing more across nodes";

/// Table 1: the model grows with the ranks.
ScaledExperiment table1(int ranks) {
  ScaledExperiment e = speeds("widths / 16, 4 layers, s 64; model-parallel ranks as published up to this machine's");
  const auto add = [&](const char* id, const char* x, int hidden, int heads, std::vector<Setting> layout, int b) {
    layout.insert(layout.end(), {number_setting("hidden-size", hidden), micro_batch(b)});
    e.points.push_back(
        {"", x, {id}, request(scaled_gpt({4, hidden, heads, 64, 512}), layout, {"--global-batch-size", "16"})});
  };
  add("m21t1_1.7", "1.7B", 144, 6, {tensor(1), pipeline(1)}, 8);
  add("m21t1_7.5", "7.5B", 256, 8, {tensor(2), pipeline(1)}, 8);
  if (ranks >= 4) add("m21t1_145.6", "145.6B", 768, 24, {tensor(2), pipeline(2)}, 2);
  e.missing = "what a wider model gains on a GPU: a core is busy from hidden 144 on";
  return e;
}

/// Table 2: ZeRO 3 against tensor (and pipeline) parallelism, then with half the samples per device.
ScaledExperiment table2() {
  ScaledExperiment e =
      speeds("widths / 64, 4 layers, s 64, 2 ranks: zero 3 over both against tensor 2; samples per rank as published");
  const auto add = [&](const char* id, const char* series, const char* x, int hidden, bool zero, int b, int samples) {
    std::vector<Setting> layout{number_setting("zero-stage", zero ? 3 : 0), number_setting("hidden-size", hidden),
                                micro_batch(b), tensor(zero ? 1 : 2)};
    e.points.push_back({series,
                        x,
                        {id},
                        request(scaled_gpt({4, hidden, 8, 64, 512}), layout,
                                {"--global-batch-size", std::to_string(samples), "--world-size", "2",
                                 "--zero-param-persistence-threshold", "0"})});
  };
  add("m21t2_zero3_174.6_384", "zero3", "174.6B on 384", 192, true, 4, 8);
  add("m21t2_zero3_529.6_1120", "zero3", "529.6B on 1120", 320, true, 2, 4);
  add("m21t2_ptdp_174.6_384", "ptdp", "174.6B on 384", 192, false, 4, 8);
  add("m21t2_ptdp_529.6_560", "ptdp", "529.6B on 560", 320, false, 4, 8);
  e.missing = "gathers over 1120 devices: here the two ranks share memory";
  return e;
}

/// Figure 7: one device over b. Figure 8: a pipeline at a fixed batch over b.
ScaledExperiment fig7() {
  ScaledExperiment e = speeds("hidden 128 for 4096, s 64, one rank");
  for (int b = 1; b <= 16; b *= 2) {
    e.points.push_back({"single",
                        fmt::format("micro_batch {}", b),
                        {fmt::format("m21f7_single_{}", b)},
                        request(narrow(), {micro_batch(b)}, {"--num-microbatches", "4"})});
  }
  return e;
}

ScaledExperiment fig8() {
  ScaledExperiment e = speeds("p 2 for 8, batch / 4 so that m/p is as published, hidden 128 for 4096, s 64");
  for (const int samples : {32, 128}) {
    for (int b = 1; b <= 16; b *= 2) {
      const std::string series = fmt::format("bs{}", 4 * samples);
      e.points.push_back(
          {series,
           fmt::format("micro_batch {}", b),
           {fmt::format("m21f8_{}_{}", series, b)},
           request(narrow(), {batch(samples), micro_batch(b)}, {"--pipeline-model-parallel-size", "2"})});
    }
  }
  return e;
}

/// Figure 11: 3 layers per stage, weak scaling over p.
ScaledExperiment fig11(int ranks) {
  ScaledExperiment e = speeds(fmt::format(
      "p 1 to {} for 1 to 8, 3 p layers, batches {} and {} for 8 and 128 (m/p of the longest pipeline as published), "
      "hidden 256 for 20480, s 128",
      ranks, ranks, 16 * ranks));
  for (const int samples : {ranks, 16 * ranks}) {
    for (int p = 1; p <= ranks; p *= 2) {
      const int published = p == 1 ? 1 : 8 * p / ranks;
      const std::string series = samples == ranks ? "bs8" : "bs128";
      e.points.push_back({series,
                          fmt::format("pp {}", published),
                          {fmt::format("m21f11_{}_{}", series, published)},
                          request(wide(3 * p), {pipeline(p), batch(samples)}, {"--micro-batch-size", "1"})});
    }
  }
  return e;
}

/// Figure 12: interleaved or not over the batch.
ScaledExperiment fig12() {
  ScaledExperiment e =
      speeds("p 2 for 12, 8 layers, v 2 for 4, batches 2 to 10 for 12 to 60 (m/p as published), hidden 256, s 128");
  for (const bool interleaved : {false, true}) {
    for (int m = 2; m <= 10; m += 4) {
      const std::string series = interleaved ? "interleaved" : "non-interleaved";
      e.points.push_back(
          {series,
           fmt::format("batch {}", 6 * m),
           {fmt::format("m21f12_{}_{}", series, 6 * m)},
           request(wide(8), {{"num-virtual-stages-per-pipeline-rank", interleaved ? "2" : "-"}, batch(m)},
                   {"--micro-batch-size", "1", "--pipeline-model-parallel-size", "2"})});
    }
  }
  return e;
}

/// Figures 13 to 15: all splits of the ranks over two axes, at batches of `samples_per_rank`.
ScaledExperiment splits(int figure, int ranks) {
  const bool has_pipeline = figure != 15;
  ScaledExperiment e = speeds(fmt::format("{} ranks for 64, {} layers, hidden 256, s 128, samples per {} as published",
                                          ranks, 4, has_pipeline ? "stage" : "rank"));
  struct Series {
    const char* name;
    int per_rank;
  };
  const std::vector<Series> series = figure == 13   ? std::vector<Series>{{"bs32", 1}, {"bs128", 4}}
                                     : figure == 14 ? std::vector<Series>{{"bs32", 1}, {"bs512", 8}}
                                                    : std::vector<Series>{{"bs32", 1}, {"bs128", 2}, {"bs512", 8}};
  const char* axes = figure == 13 ? "pp,tp" : figure == 14 ? "pp,dp" : "tp,dp";
  for (const Series& one : series) {
    for (int first = 1; first <= ranks; first *= 2) {
      // Of Figure 13 the side on which tensor parallelism stays in a node.
      const int least = figure == 13 ? 8 : 2;
      const int published = ranks == 2 ? (first == 1 ? least : 32)
                                       : (first == 1   ? least
                                          : first == 2 ? (figure == 13 ? 16 : 8)
                                                       : 32);
      const int second = ranks / first;
      const std::vector<Setting> layout = figure == 13   ? std::vector<Setting>{pipeline(first), tensor(second)}
                                          : figure == 14 ? std::vector<Setting>{pipeline(first)}
                                                         : std::vector<Setting>{tensor(first)};
      std::vector<Setting> settings = layout;
      settings.push_back(batch(one.per_rank * ranks));
      e.points.push_back(
          {one.name,
           fmt::format("{} {},{}", axes, published, 64 / published),
           {fmt::format("m21f{}_{}_{},{}", figure, one.name, published, 64 / published)},
           request(wide(4), settings, {"--micro-batch-size", "1", "--world-size", std::to_string(ranks)})});
    }
  }
  e.missing = figure == 14 ? "" : kOneHost;
  return e;
}

/// Figure 16: micro-batch size on a pipeline.
ScaledExperiment fig16() {
  ScaledExperiment e = speeds("p 2 for 8, batches 32 and 128 for 128 and 512 (m/p as published), hidden 128, s 64");
  for (const int samples : {32, 128}) {
    for (int b = 1; b <= 8; b *= 2) {
      const std::string series = fmt::format("bs{}", 4 * samples);
      e.points.push_back(
          {series,
           fmt::format("micro_batch {}", b),
           {fmt::format("m21f16_{}_{}", series, b)},
           request(narrow(), {batch(samples), micro_batch(b)}, {"--pipeline-model-parallel-size", "2"})});
    }
  }
  return e;
}

/// Figure 17: recomputation over the batch.
ScaledExperiment fig17() {
  ScaledExperiment e =
      speeds("p 2 for 16, batches 1 to 32 for 8 to 256 (m/p as published), 4 layers, hidden 256, s 128");
  e.metric = "tokens_per_s";
  e.unit = "sequences/s";
  e.factor = 1.0 / 128;
  for (const bool on : {true, false}) {
    for (const int m : {1, 2, 8, 32}) {
      Words more = {"--micro-batch-size", "1", "--pipeline-model-parallel-size", "2"};
      if (on) more.insert(more.end(), {"--recompute-method", "uniform", "--recompute-num-layers", "1"});
      e.points.push_back({on ? "recompute" : "no recompute",
                          fmt::format("batch {}", 8 * m),
                          {fmt::format("m21f17_{}_{}", on ? "on" : "off", 8 * m)},
                          request(wide(4), {{"recompute-granularity", on ? "full" : "none"}, batch(m)}, more)});
    }
  }
  e.missing = "that the larger batches do not fit without recomputation";
  return e;
}

/// Figure 18: messages between stages, cut over the tensor ranks or whole. Bytes hold however few the cores are.
ScaledExperiment fig18() {
  ScaledExperiment e;
  e.cut =
      "t 2 x p 2 x v 2 for 8 x 12 x 2, batch 2 for 12, hidden 128, s 64; bytes are counted, since the links that they "
      "fill are not here";
  e.metric = "pp_sent_bytes";
  e.unit = "MB sent";
  e.factor = 1e-6;
  e.sense = Sense::Inverse;
  for (const bool on : {true, false}) {
    e.points.push_back({on ? "scatter/gather" : "unoptimized",
                        "batch 12",
                        {fmt::format("m21f18_{}_12", on ? "on" : "off")},
                        request(narrow(), {{"scatter-gather-tensors-in-pipeline", on ? "true" : "false"}},
                                {"--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2",
                                 "--num-virtual-stages-per-pipeline-rank", "2", "--micro-batch-size", "1",
                                 "--global-batch-size", "2"})});
  }
  return e;
}

}  // namespace

ScaledExperiment scaled_figure(const std::string& preset, int ranks) {
  if (preset == "megatron21-table1") return table1(ranks);
  if (preset == "megatron21-table2") return table2();
  if (preset == "megatron21-fig7") return fig7();
  if (preset == "megatron21-fig8") return fig8();
  if (preset == "megatron21-fig11") return fig11(ranks);
  if (preset == "megatron21-fig12") return fig12();
  for (const int figure : {13, 14, 15}) {
    if (preset == fmt::format("megatron21-fig{}", figure)) return splits(figure, ranks);
  }
  if (preset == "megatron21-fig16") return fig16();
  if (preset == "megatron21-fig17") return fig17();
  if (preset == "megatron21-fig18") return fig18();
  return {};
}

}  // namespace triax::plan
