// The timed choice of an algorithm (kernels/cuda/gemm_choices.h), on emulated GPUs, whose algorithms pretend to take
// times that the test says and differ in their bits.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/cuda/cuda_testing.h"

namespace triax::kernels::testing {
namespace {

class CudaGemmTuning : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!is_emulated()) GTEST_SKIP() << "times of algorithms are pretended on emulated GPUs only";
    path_ = std::filesystem::temp_directory_path() / ("triax-gemm-" + std::to_string(::getpid()));
    std::filesystem::remove(path_);
    algorithms("30,10,20");
  }
  void TearDown() override {
    ::unsetenv("TRIAX_EMULATED_ALGORITHMS");
    ::unsetenv("TRIAX_EMULATED_CUBLASLT");
    std::filesystem::remove(path_);
  }
  static void algorithms(const char* milliseconds) { ::setenv("TRIAX_EMULATED_ALGORITHMS", milliseconds, 1); }

  struct Result {
    Matrix plain, accumulated, u, y;
    int64_t timed;
    bool operator==(const Result& other) const {
      return plain.bytes() == other.plain.bytes() && accumulated.bytes() == other.accumulated.bytes() &&
             u.bytes() == other.u.bytes() && y.bytes() == other.y.bytes();
    }
  };
  /// Three products on a new device: one that overwrites, one that accumulates, one with GELU.
  Result products(GemmTuning tuning, const std::string& cache) {
    said_.clear();
    const auto device = make_cuda_device({.gemm_search = {tuning, cache, patience_s_},
                                          .log = [this](const std::string& text) { said_.push_back(text); }},
                                         CudaModule::Emulated);
    // In memory of the device itself: the alignment of a tensor is part of the choice.
    Arena arena(device->memory());
    std::deque<Buffer> buffers;
    const auto on = [&](const Matrix& m) {
      buffers.push_back(arena.allocate(m.t.dtype(), m.t.numel(), MemoryCategory::Workspace));
      const Tensor there = buffers.back().view(m.t.dtype(), {m.t.rows(), m.t.cols()});
      device->upload(m.t, there);
      return there;
    };
    Result r{Matrix(DType::Float32, 24, 16), random_matrix(DType::Float32, 24, 16, 6), Matrix(DType::BFloat16, 24, 16),
             Matrix(DType::BFloat16, 24, 16), 0};
    const Tensor a = on(a_), b = on(b_), x = on(x_), w = on(w_), bias = on(bias_).flat();
    const Tensor plain = on(r.plain), accumulated = on(r.accumulated), u = on(r.u), y = on(r.y);
    for (int call = 0; call < 2; ++call) {
      device->gemm({a, b, plain});
      if (call == 0) device->gemm({x, w, accumulated, Transpose::No, Transpose::Yes, Accumulate::Yes});
      device->gemm_gelu({x, w, u, Transpose::No, Transpose::Yes, Accumulate::No, bias}, y);
    }
    for (const auto& [there, here] : {std::pair(plain, r.plain.t), std::pair(accumulated, r.accumulated.t),
                                      std::pair(u, r.u.t), std::pair(y, r.y.t)}) {
      device->download(there, here);
    }
    r.timed = device->timed_products();
    return r;
  }
  std::vector<std::string> lines() const {
    std::ifstream file(path_);
    std::vector<std::string> all;
    for (std::string line; std::getline(file, line);) all.push_back(line);
    return all;
  }
  void write(const std::string& text) const { std::ofstream(path_) << text; }
  std::string fault(GemmTuning tuning = GemmTuning::Measure) {
    try {
      products(tuning, path_);
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "accepted";
  }

  const Matrix a_ = random_matrix(DType::Float32, 24, 100, 1), b_ = random_matrix(DType::Float32, 100, 16, 2);
  const Matrix x_ = random_matrix(DType::BFloat16, 24, 96, 3), w_ = random_matrix(DType::BFloat16, 16, 96, 4);
  const Matrix bias_ = random_matrix(DType::BFloat16, 1, 16, 5), sums_ = random_matrix(DType::Float32, 24, 16, 6);
  std::filesystem::path path_;
  double patience_s_ = 60;
  std::vector<std::string> said_;
};

TEST_F(CudaGemmTuning, TakesTheFastestAndHarmsNothing) {
  algorithms("0");
  const Result first = products(GemmTuning::Off, "");
  algorithms("0,0");
  EXPECT_TRUE(products(GemmTuning::Off, "") == first) << "the heuristic's first is the first";
  algorithms("30,10,20");
  const Result chosen = products(GemmTuning::Measure, path_);
  EXPECT_EQ(chosen.timed, 3);
  EXPECT_FALSE(chosen == first);
  std::vector<double> want;
  for (int64_t i = 0; i < 24; ++i) {
    for (int64_t j = 0; j < 16; ++j) {
      double sum = sums_.at(i, j);
      for (int64_t k = 0; k < 96; ++k) sum += x_.at(i, k) * w_.at(j, k);
      want.push_back(sum);
    }
  }
  expect_close(chosen.accumulated, want, 1e-5, "what was accumulated into");
  const std::vector<std::string> file = lines();
  ASSERT_EQ(file.size(), 4u);
  EXPECT_EQ(file[0], "triax gemm choices 1");
  EXPECT_EQ(
      file[1].substr(0, 145),
      "emulated GPU | 120205 | fp32 fp32 fp32, 24 x 16 x 100, NN, strides 100 16 16 0, no epilogue, aligned 8 8 8 0 0 "
      "| 00000074726961780000000000000001");
  EXPECT_NE(file[3].find("GELU epilogue with a vector"), std::string::npos) << file[3];
}

TEST_F(CudaGemmTuning, LaterRunsTakeWhatTheFileSays) {
  const Result chosen = products(GemmTuning::Measure, path_);
  const std::vector<std::string> file = lines();
  algorithms("1,10,20");
  for (const GemmTuning tuning : {GemmTuning::Measure, GemmTuning::Off}) {
    const Result again = products(tuning, path_);
    EXPECT_EQ(again.timed, 0);
    EXPECT_TRUE(again == chosen);
  }
  EXPECT_EQ(lines(), file);
  // What the file does not hold is the heuristic's first, or timed.
  write(file[0] + "\n" + file[1] + "\n");
  EXPECT_EQ(products(GemmTuning::Off, path_).timed, 0);
  EXPECT_EQ(products(GemmTuning::Measure, path_).timed, 2);
  EXPECT_EQ(lines().size(), 4u);
}

TEST_F(CudaGemmTuning, ChoicesForOtherGpusAndLibrariesAreNotUsed) {
  products(GemmTuning::Measure, path_);
  ::setenv("TRIAX_EMULATED_CUBLASLT", "130100", 1);
  EXPECT_EQ(products(GemmTuning::Measure, path_).timed, 3);
  EXPECT_EQ(said_, std::vector<std::string>{"--gemm-cache " + path_.string() +
                                            ": 3 choices are for emulated GPU, cuBLASLt 120205 and not used"});
  EXPECT_EQ(lines().size(), 7u);
  EXPECT_EQ(products(GemmTuning::Measure, path_).timed, 0);
}

// Who times a product may be stopped while all others wait for the file.
TEST_F(CudaGemmTuning, AFileThatAnotherHoldsIsWaitedForNoLongerThanTheDeadline) {
  products(GemmTuning::Measure, path_);
  const int other = ::open(path_.c_str(), O_RDONLY);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);
  patience_s_ = 0.02;
  for (const GemmTuning tuning : {GemmTuning::Measure, GemmTuning::Off}) {
    try {
      products(tuning, path_);
      ADD_FAILURE() << "the file was held";
    } catch (const RunTimeError& e) {
      const std::string words = e.what();
      EXPECT_NE(words.find("--gemm-cache " + path_.string() + ": another process has held the file for 0.0"),
                std::string::npos)
          << words;
    }
  }
  ::close(other);
  EXPECT_EQ(products(GemmTuning::Measure, path_).timed, 0);
}

TEST_F(CudaGemmTuning, BadFilesAreRefusedWithTheLine) {
  const std::string where = "--gemm-cache " + path_.string() + ": ";
  EXPECT_EQ(fault(GemmTuning::Off), where +
                                        "cannot be opened: No such file or directory; name a file that --gemm-tuning "
                                        "measure made, or leave it out");
  write("a shopping list\n");
  EXPECT_EQ(fault(), where + "is no file of choices: it begins with \"a shopping list\"");
  write("triax gemm choices 1\nemulated GPU | 120205 | x | 12 | 0 | 1 | 1\n");
  EXPECT_EQ(fault(), where +
                         "line 2 is no choice of an algorithm: \"emulated GPU | 120205 | x | 12 | 0 | 1 | 1\"; remove "
                         "the file to have products timed again");
  write("triax gemm choices 1\nemulated GPU | 12");
  EXPECT_EQ(fault(), where + "line 2 has no end: a run was killed while it wrote; remove that line");
  write("");
  EXPECT_EQ(fault(GemmTuning::Off), where + "is empty; a file of choices begins with \"triax gemm choices 1\"");
  std::filesystem::remove(path_);
  products(GemmTuning::Measure, path_);
  std::string text;
  for (const std::string& line : lines()) text += line + "\n";
  text.replace(text.find("0000007472696178"), 16, "0000007472696179");
  write(text);
  EXPECT_NE(fault().find("cuBLASLt cannot use the algorithm for \"fp32 fp32 fp32, 24 x 16 x 100"), std::string::npos);
  for (const char* device : {"/dev/null", "/dev/zero"}) {  // keeps nothing; never ends
    path_ = device;
    EXPECT_EQ(fault(), std::string("--gemm-cache ") + device +
                           ": is no regular file, which keeps what ranks write; name one that every rank sees");
  }
  path_ = "/nonexistent/choices";
  EXPECT_NE(fault().find("name a file that every rank may write"), std::string::npos);
}

}  // namespace
}  // namespace triax::kernels::testing
