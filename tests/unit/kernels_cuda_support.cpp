// Which drivers and GPUs are refused, and what the refusal says to do; the loader of a module that is not there.
#include <gtest/gtest.h>

#include "kernels/cuda_loader.h"
#include "kernels/cuda_support.h"

namespace triax::kernels {
namespace {

TEST(CudaSupport, DriversOfTheSameMajorVersionOrANewerOneServe) {
  EXPECT_EQ(driver_refusal(12020, 12020), "");
  EXPECT_EQ(driver_refusal(12020, 12090), "");
  EXPECT_EQ(driver_refusal(13000, 12020), "");
}

TEST(CudaSupport, NoDriverAndAnOldOneAreToldApart) {
  EXPECT_NE(driver_refusal(0, 13000).find("no NVIDIA driver"), std::string::npos);
  const std::string old = driver_refusal(12020, 13000);
  EXPECT_NE(old.find("serves CUDA 12.2 and older"), std::string::npos) << old;
  EXPECT_NE(old.find("built with CUDA 13.0"), std::string::npos) << old;
  EXPECT_NE(old.find("build with a CUDA 12.x toolkit"), std::string::npos) << old;
}

TEST(CudaSupport, GpusBelow80AreRefusedWithTheRemedy) {
  EXPECT_EQ(gpu_refusal("A100", 8, 0), "");
  EXPECT_EQ(gpu_refusal("H200", 9, 0), "");
  const std::string v100 = gpu_refusal("Tesla V100", 7, 0);
  EXPECT_NE(v100.find("Tesla V100 has compute capability 7.0"), std::string::npos) << v100;
  EXPECT_NE(v100.find("CUDA 12.9"), std::string::npos) << v100;
  EXPECT_NE(v100.find("--device cpu"), std::string::npos) << v100;
}

TEST(CudaLoader, TheModuleStandsBesideTheProgram) {
  const std::string path = cuda_module_path(CudaModule::Cuda);
  EXPECT_NE(path.find("/lib/triax/libtriax_cuda.so"), std::string::npos) << path;
}

}  // namespace
}  // namespace triax::kernels
