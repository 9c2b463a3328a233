// Runs the tests on one device, or says why it cannot and ends with 77.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/cuda/cuda_testing.h"

namespace triax::kernels::testing {
namespace {

std::unique_ptr<DiscreteDevice> device;
std::unique_ptr<MirroredDevice> mirror;

}  // namespace

bool is_emulated() {
  const char* const name = std::getenv("TRIAX_TEST_DEVICE");
  return name != nullptr && std::strcmp(name, "cuda-emulated") == 0;
}
uint64_t shapes_seed() {
  const char* const text = std::getenv("TRIAX_SHAPES_SEED");
  return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
}
DiscreteDevice& cuda_device() { return *device; }
MirroredDevice& mirrored() { return *mirror; }

}  // namespace triax::kernels::testing

int main(int argc, char** argv) {
  namespace kernels = triax::kernels;
  namespace tests = triax::kernels::testing;
  ::testing::InitGoogleTest(&argc, argv);
  try {
    const auto module = tests::is_emulated() ? kernels::CudaModule::Emulated : kernels::CudaModule::Cuda;
    tests::device = kernels::make_cuda_device({.local_rank = 0}, module);  // as a rank makes it
  } catch (const triax::ApiError& e) {  // a GPU that fails is no GPU that is missing
    std::printf("%s\n", e.what());
    return 1;
  } catch (const triax::ConfigError& e) {
    std::printf("SKIP: %s\n", e.what());
    return 77;
  } catch (const triax::RunTimeError& e) {
    std::printf("SKIP: %s\n", e.what());
    return 77;
  }
  std::printf("%s\n", tests::device->describe().c_str());
  tests::mirror = std::make_unique<tests::MirroredDevice>(*tests::device);
  const int status = RUN_ALL_TESTS();
  tests::mirror.reset();
  tests::device.reset();
  return status;
}
