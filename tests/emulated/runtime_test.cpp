// The stand-in of the CUDA runtime finds what it is there to find: every check has a program with the fault planted,
// and a sound one beside it.
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <simt_device.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>

#include "kernels/cuda/global_memory.h"

namespace triax::emulated {
namespace {

constexpr size_t kBytes = 1024;

struct Stream {
  Stream() { cudaStreamCreateWithPriority(&raw, cudaStreamNonBlocking, 0); }
  ~Stream() { cudaStreamDestroy(raw); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t raw = nullptr;
};
struct Event {
  Event() { cudaEventCreateWithFlags(&raw, cudaEventDefault); }
  ~Event() { cudaEventDestroy(raw); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t raw = nullptr;
};
struct DeviceBytes {
  DeviceBytes() { cudaMalloc(&raw, kBytes); }
  ~DeviceBytes() { cudaFree(raw); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  void* raw = nullptr;
};

std::array<unsigned char, kBytes> fetched(const DeviceBytes& from, const Stream& stream) {
  std::array<unsigned char, kBytes> host{};
  cudaMemcpyAsync(host.data(), from.raw, kBytes, cudaMemcpyDeviceToHost, stream.raw);
  return host;
}

/// One stream writes 1, another copies it on; how often the copy came first.
int early_reads(bool with_event) {
  int early = 0;
  for (int i = 0; i < 100; ++i) {
    Stream writer, reader;
    Event written;
    DeviceBytes value, copy;
    cudaMemsetAsync(value.raw, 0, kBytes, writer.raw);
    cudaStreamSynchronize(writer.raw);
    cudaMemsetAsync(value.raw, 1, kBytes, writer.raw);
    cudaEventRecord(written.raw, writer.raw);
    if (with_event) cudaStreamWaitEvent(reader.raw, written.raw, 0);
    cudaMemcpyAsync(copy.raw, value.raw, kBytes, cudaMemcpyDeviceToDevice, reader.raw);
    cudaStreamSynchronize(reader.raw);
    if (fetched(copy, reader)[0] != 1) ++early;
    cudaStreamSynchronize(writer.raw);
  }
  return early;
}

TEST(EmulatedRuntime, AReadThatNoEventOrdersComesTooEarlyAtTimes) {
  EXPECT_EQ(early_reads(true), 0);
  EXPECT_GT(early_reads(false), 5);
}

TEST(EmulatedRuntime, AnEventIsWaitedForAsItWasLastRecorded) {
  Stream writer, reader;
  Event written;
  DeviceBytes value, copy;
  for (int i = 1; i < 50; ++i) {
    cudaMemsetAsync(value.raw, i, kBytes, writer.raw);
    cudaEventRecord(written.raw, writer.raw);
    cudaStreamWaitEvent(reader.raw, written.raw, 0);
    cudaMemcpyAsync(copy.raw, value.raw, kBytes, cudaMemcpyDeviceToDevice, reader.raw);
    EXPECT_EQ(fetched(copy, reader)[7], i);
    Event read;
    cudaEventRecord(read.raw, reader.raw);
    cudaStreamWaitEvent(writer.raw, read.raw, 0);
  }
  cudaStreamSynchronize(writer.raw);
}

TEST(EmulatedRuntime, PinnedMemoryThatIsReadTooEarlyHoldsNoNumbers) {
  Stream stream;
  DeviceBytes value;
  void* pinned = nullptr;
  cudaMallocHost(&pinned, kBytes);
  cudaMemsetAsync(value.raw, 0, kBytes, stream.raw);
  int early = 0;
  for (int i = 0; i < 100; ++i) {
    cudaMemcpyAsync(pinned, value.raw, kBytes, cudaMemcpyDeviceToHost, stream.raw);
    if (std::isnan(*static_cast<volatile float*>(pinned))) ++early;
    cudaStreamSynchronize(stream.raw);
    EXPECT_EQ(*static_cast<float*>(pinned), 0);
  }
  EXPECT_GT(early, 5);
  cudaFreeHost(pinned);
}

TEST(EmulatedRuntime, HostAndDeviceAddressesAreNotMixed) {
  Stream stream;
  DeviceBytes value;
  std::array<char, kBytes> host{};
  EXPECT_EQ(cudaMemcpyAsync(value.raw, host.data(), kBytes, cudaMemcpyHostToDevice, stream.raw), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(host.data(), host.data(), kBytes, cudaMemcpyHostToDevice, stream.raw),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(value.raw, value.raw, kBytes, cudaMemcpyDeviceToHost, stream.raw), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(value.raw, host.data(), kBytes + 1, cudaMemcpyHostToDevice, stream.raw),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(host.data(), 0, kBytes, stream.raw), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(host.data()), cudaErrorInvalidValue);
}

TEST(EmulatedRuntime, TimesAreOfRecordedEventsOnly) {
  Stream stream;
  Event begin, end;
  float ms = -1;
  EXPECT_EQ(cudaEventElapsedTime(&ms, begin.raw, end.raw), cudaErrorInvalidValue);
  cudaEventRecord(begin.raw, stream.raw);
  cudaEventRecord(end.raw, stream.raw);
  cudaStreamSynchronize(stream.raw);
  EXPECT_EQ(cudaEventElapsedTime(&ms, begin.raw, end.raw), cudaSuccess);
  EXPECT_GE(ms, 0);
}

TEST(EmulatedRuntime, AFaultOfAKernelIsThrownByTheNextWait) {
  EXPECT_EXIT(
      {
        Stream stream;
        const auto kernel = [](unsigned reached) {
          if (threadIdx.x < reached) __syncthreads();
        };
        TRIAX_LAUNCH(kernel, 1u, 64, 0, stream.raw, 40u);
        try {
          cudaStreamSynchronize(stream.raw);
        } catch (const simt::KernelFault&) {
          std::_Exit(7);
        }
      },
      ::testing::ExitedWithCode(7), "");
}

/// The words of the fault of a kernel whose thread 0 reads, or writes, one float.
std::string fault_at(float* p, bool store) {
  const auto kernel = [](float* at, bool write) {
    if (threadIdx.x != 0) return;
    if (write) {
      kernels::global_write(at, 1.0f);
    } else {
      static_cast<void>(kernels::global_read(at));
    }
  };
  try {
    simt::launch("planted", dim3(1), dim3(32), 0, kernel, p, store);
  } catch (const simt::KernelFault& e) {
    return e.what();
  }
  return "";
}

TEST(EmulatedRuntime, AccessesOutsideOfDeviceMemoryAreFound) {
  auto value = std::make_unique<DeviceBytes>();
  auto* const data = static_cast<float*>(value->raw);
  constexpr size_t kFloats = kBytes / sizeof(float);
  float of_host = 0;
  for (const bool store : {false, true}) {
    EXPECT_EQ(fault_at(data, store), "");
    EXPECT_EQ(fault_at(data + kFloats - 1, store), "");
    for (float* const outside : {data + kFloats, data - 1, &of_host}) {
      EXPECT_NE(fault_at(outside, store).find("4 bytes outside of device memory"), std::string::npos);
    }
  }
  value.reset();
  EXPECT_NE(fault_at(data, false).find("outside of device memory"), std::string::npos);
}

TEST(EmulatedRuntime, MemoryThatIsNeverFreedFailsTheProcess) {
  EXPECT_EXIT(
      {
        void* data = nullptr;
        cudaMalloc(&data, kBytes);
        std::exit(0);
      },
      ::testing::ExitedWithCode(99), "1 allocations of device memory, 1024 bytes, were never freed");
}

TEST(EmulatedRuntime, TheHostCannotReadDeviceMemory) {
#if !defined(__SANITIZE_ADDRESS__)
  EXPECT_EXIT(
      {
        setenv("TRIAX_EMULATED_PROTECT", "1", 1);
        Stream stream;
        DeviceBytes value;
        cudaMemsetAsync(value.raw, 0, kBytes, stream.raw);
        cudaStreamSynchronize(stream.raw);
        std::_Exit(*static_cast<volatile char*>(value.raw));
      },
      ::testing::KilledBySignal(SIGSEGV), "");
#endif
}

}  // namespace
}  // namespace triax::emulated

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";  // the GPU is a thread
  return RUN_ALL_TESTS();
}
