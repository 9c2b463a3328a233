// The weights file: written from any layout it holds the same bits, read into any layout it gives them back; what is
// missing or of another shape is named. Text generation is the same on one rank and on many.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "io/weights/transfer.h"
#include "tests/mpi/mpi_world.h"
#include "tests/mpi/train_harness.h"
#include "train/text_generator.h"

namespace triax::test {
namespace {

using io::Precision;

/// Of all ranks together; removed by rank 0.
class SharedDirectory {
 public:
  SharedDirectory() : path_(std::filesystem::temp_directory_path() / fmt::format("triax-weights-{}", ::getppid())) {
    if (session().rank() == 0) std::filesystem::create_directories(path_);
  }
  ~SharedDirectory() {
    if (session().rank() == 0) std::filesystem::remove_all(path_);
  }
  SharedDirectory(const SharedDirectory&) = delete;
  SharedDirectory& operator=(const SharedDirectory&) = delete;
  std::string file(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

io::WeightsHeader header_of(const io::RunOptions& options) {
  io::WeightsHeader header;
  header.model = options.model;
  header.dtype = io::compute_dtype(options.control.precision);
  header.iteration = 7;
  header.consumed_samples = int64_t{1} << 40;
  header.tokenizer_hash = "0123456789abcdef";
  header.tokenizer.type = "GPT2BPETokenizer";
  header.tokenizer.vocab_file = "/somewhere/vocab.json";
  return header;
}

std::vector<Layout> layouts() {
  const int n = session().size();
  std::vector<Layout> all{{.dp = n}, {.model = TinyModel::T1, .tp = 2, .pp = n / 2}, {.pp = 2, .vpp = 2, .dp = n / 2}};
  if (n >= 4) all.push_back({.model = TinyModel::T1, .head = Head::Untied, .tp = 4, .dp = n / 4});
  return all;
}

io::RunOptions options_of(const Layout& layout, Precision precision) {
  io::RunOptions options = tiny_options(layout);
  options.control.precision = precision;
  return options;
}

/// Every tensor of a one-rank store equals the file to the last bit.
void expect_file_equals(const std::string& path, TinyRun& serial) {
  const io::WeightsReader file(path);
  for (const parallel::Parameter& p : serial.trainer().store().parameters()) {
    std::vector<std::byte> stored(static_cast<size_t>(p.true_numel()) * size_of(p.weight.dtype()));
    file.read(p, Tensor(stored.data(), p.weight.dtype(), {p.true_numel()}));
    EXPECT_EQ(std::memcmp(stored.data(), p.weight.data(), stored.size()), 0) << p.name;
  }
}

TEST(WeightsFile, holds_the_same_bits_from_every_layout_and_precision) {
  const SharedDirectory directory;
  for (const Precision precision : {Precision::Fp64, Precision::Fp32, Precision::Bf16, Precision::Fp16}) {
    for (const Layout& layout : layouts()) {
      SCOPED_TRACE(layout.text());
      TinyRun run(session(), options_of(layout, precision));
      const std::string path = directory.file("weights.h5");
      io::save_weights(path, header_of(run.options()), run.trainer().store(), run.grid());
      EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
      Layout one{.model = layout.model, .head = layout.head};
      TinyRun serial(options_of(one, precision));
      expect_file_equals(path, serial);
      run.grid().world().barrier();
    }
  }
}

TEST(WeightsFile, gives_every_layout_its_part_back) {
  const SharedDirectory directory;
  for (const Precision precision : {Precision::Fp64, Precision::Bf16}) {
    for (const Layout& layout : layouts()) {
      SCOPED_TRACE(layout.text());
      io::RunOptions options = options_of(layout, precision);
      TinyRun saved(session(), options);
      saved.step();
      const std::string path = directory.file("weights.h5");
      io::save_weights(path, header_of(saved.options()), saved.trainer().store(), saved.grid());
      options.control.seed = 99;  // other initial weights, which the load must overwrite
      TinyRun loaded(session(), options, train::Use::Evaluate);
      io::load_weights(io::WeightsReader(path), loaded.trainer().store(), loaded.trainer().weight_source());
      loaded.trainer().weights_changed();
      const Tensor expected = saved.trainer().store().flat_weight();
      const Tensor actual = loaded.trainer().store().flat_weight();
      EXPECT_EQ(std::memcmp(actual.data(), expected.data(), static_cast<size_t>(expected.bytes())), 0);
      saved.grid().world().barrier();
    }
  }
}

TEST(WeightsFile, header_reads_back) {
  const SharedDirectory directory;
  TinyRun run(session(), tiny_options({.model = TinyModel::T1, .dp = session().size()}));
  const io::WeightsHeader written = header_of(run.options());
  io::save_weights(directory.file("weights.h5"), written, run.trainer().store(), run.grid());
  const io::WeightsReader file(directory.file("weights.h5"));
  EXPECT_EQ(file.header().model, written.model);
  EXPECT_EQ(file.header().dtype, DType::Float64);
  EXPECT_EQ(file.header().iteration, 7);
  EXPECT_EQ(file.header().consumed_samples, int64_t{1} << 40);
  EXPECT_EQ(file.header().tokenizer_hash, written.tokenizer_hash);
  EXPECT_EQ(file.header().tokenizer.type, written.tokenizer.type);
  EXPECT_EQ(file.header().tokenizer.vocab_file, written.tokenizer.vocab_file);
  run.grid().world().barrier();
}

TEST(WeightsFile, faults_are_named) {
  const SharedDirectory directory;
  TinyRun run(session(), tiny_options({.dp = session().size()}));
  const std::string path = directory.file("weights.h5");
  io::save_weights(path, header_of(run.options()), run.trainer().store(), run.grid());
  std::vector<double> values(1 << 20);
  const auto message = [&](const std::string& file, parallel::Parameter p) -> std::string {
    try {
      io::WeightsReader(file).read(p, Tensor(values.data(), DType::Float64, {p.true_numel()}));
    } catch (const RunTimeError& error) {
      return error.what();
    }
    return "read";
  };
  parallel::Parameter p = run.trainer().store().at(0);
  EXPECT_EQ(message(path, p), "read");
  p.spec.global_shape[0] += 1;
  EXPECT_THAT(message(path, p), testing::HasSubstr("has shape [101, 64], the model wants [102, 64]"));
  p.name = "model.nothing";
  EXPECT_THAT(message(path, p), testing::HasSubstr("tensor model.nothing is missing"));
  EXPECT_THAT(message(directory.file("absent.h5"), p), testing::HasSubstr("there is no weights file"));
  run.grid().world().barrier();
  if (session().rank() == 0) {
    std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
    std::ofstream(directory.file("text.h5")) << "no HDF5";
    EXPECT_THAT(message(path, run.trainer().store().at(0)), testing::HasSubstr("HDF5 cannot open"));
    EXPECT_THAT(message(directory.file("text.h5"), p), testing::HasSubstr("HDF5_USE_FILE_LOCKING"));
  }
  run.grid().world().barrier();
}

std::vector<int32_t> generated(comm::ProcessGrid& grid, const io::RunOptions& options, const std::string& path,
                               const train::SamplingOptions& sampling) {
  const std::unique_ptr<kernels::Device> device = kernels::make_cpu_device({1});
  Arena arena(grid.memory());
  train::TextGenerator generator(grid, *device, arena, options, io::WeightsReader(path));
  std::vector<int32_t> tokens{3, 50, 7};
  generator.generate(tokens, 40, sampling, -1);  // beyond the context of 32: the window slides
  return tokens;
}

TEST(Generation, same_text_on_one_rank_and_on_many) {
  const SharedDirectory directory;
  const int n = session().size();
  for (const TinyModel model : {TinyModel::T0, TinyModel::T1}) {
    TinyRun run(session(), tiny_options({.model = model, .dp = n}));
    const std::string path = directory.file("weights.h5");
    io::save_weights(path, header_of(run.options()), run.trainer().store(), run.grid());
    const io::WeightsHeader header = io::WeightsReader(path).header();
    io::RunOptions one = train::generation_options(header, 1, 1, 43);
    io::RunOptions many = train::generation_options(header, 2, n / 2, 43);
    io::resolve(one, 1, io::Purpose::Plan);
    io::resolve(many, n, io::Purpose::Plan);
    comm::ProcessGrid alone(comm::PhantomRank{}, train::grid_options(one));
    comm::ProcessGrid grid(session(), train::grid_options(many));
    const train::SamplingOptions sampling{.temperature = 0.8, .top_k = 20, .top_p = 0.9, .seed = 5};
    const std::vector<int32_t> expected = generated(alone, one, path, sampling);
    EXPECT_EQ(expected.size(), 43u);
    EXPECT_EQ(generated(grid, many, path, sampling), expected);
    EXPECT_NE(generated(alone, one, path, {.temperature = 0.8, .top_k = 20, .top_p = 0.9, .seed = 6}), expected);
    grid.world().barrier();
  }
}

}  // namespace
}  // namespace triax::test
