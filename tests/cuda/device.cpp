// The device itself: memory, ways in and out, what it says of itself, and what it refuses.
#include "tests/cuda/cuda_testing.h"

namespace triax::kernels::testing {
namespace {

TEST(CudaDevice, UploadAndDownloadKeepValuesAndStrides) {
  const Matrix from = random_matrix(DType::BFloat16, 5, 7, 1, 1, 3);
  Matrix to(DType::BFloat16, 5, 7, 2);
  Arena arena(cuda_device().memory());
  const Buffer memory = arena.allocate(DType::BFloat16, 5 * 16, MemoryCategory::Staging);
  const Tensor there = memory.view(DType::BFloat16, {5, 16}).col_slice(2, 9);
  cuda_device().upload(from.t, there);
  cuda_device().download(there, to.t);
  EXPECT_EQ(to.values(), from.values());
  EXPECT_TRUE(to.gaps_intact());
}

TEST(CudaDevice, DescribesItself) {
  EXPECT_EQ(cuda_device().name(), "cuda");
  EXPECT_NE(cuda_device().describe().find("compute capability"), std::string::npos) << cuda_device().describe();
}

TEST(CudaDevice, OutOfMemorySaysHowMuchIsFreeAndTheDeviceGoesOn) {
  try {
    cuda_device().memory().allocate(size_t{1} << 44);
    ADD_FAILURE() << "16 TiB were found";
  } catch (const std::bad_alloc& e) {
    EXPECT_NE(std::string(e.what()).find("16777216.0 MiB asked for"), std::string::npos) << e.what();
  }
  Matrix x(DType::Float32, 1, 100);
  mirrored().fill(x.t, 2);
  EXPECT_EQ(x.at(99), 2);
}

TEST(CudaDevice, AGpuThatIsNotThereIsRefused) {
  try {
    make_cuda_device({.ordinal = 99}, is_emulated() ? CudaModule::Emulated : CudaModule::Cuda);
    ADD_FAILURE() << "GPU 99 was found";
  } catch (const RunTimeError& e) {
    EXPECT_NE(std::string(e.what()).find("GPU 99 was asked for"), std::string::npos) << e.what();
  }
}

TEST(CudaDevice, WrongShapesAreBugs) {
  Matrix x(DType::Float32, 4, 8), y(DType::Float32, 4, 9), half(DType::Float16, 4, 8);
  EXPECT_THROW(mirrored().gelu_forward(x.t, y.t), std::logic_error);
  EXPECT_THROW(mirrored().gelu_forward(x.t, half.t), std::logic_error);
}

}  // namespace
}  // namespace triax::kernels::testing
