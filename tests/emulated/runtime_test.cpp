// The stand-in of the CUDA runtime finds what it is there to find: every check has a program with the fault planted,
// and a sound one beside it.
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <simt_device.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/global_memory.h"
#include "tests/emulated/recorded.h"

namespace triax::emulated {
namespace {

constexpr size_t kBytes = 1024;

struct Stream {
  explicit Stream(unsigned flags = cudaStreamNonBlocking) { cudaStreamCreateWithPriority(&raw, flags, 0); }
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

TEST(EmulatedRuntime, WhoAsksForEagerLoadingAfterTheFirstCallIsFound) {
  const auto statuses = [](bool first) {
    int count = 0;
    unsetenv("CUDA_MODULE_LOADING");
    if (!first) cudaGetDeviceCount(&count);
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    std::_Exit(cudaGetDeviceCount(&count) == cudaSuccess && cudaSetDevice(0) == cudaSuccess ? 0 : 1);
  };
  EXPECT_EXIT(statuses(true), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(statuses(false), ::testing::ExitedWithCode(1), "");
}

/// A capture of `stream` that ends as it goes out of scope.
struct Capturing {
  explicit Capturing(const Stream& on, cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) : stream(&on) {
    EXPECT_EQ(cudaStreamBeginCapture(on.raw, mode), cudaSuccess);
  }
  ~Capturing() { end(); }
  Capturing(const Capturing&) = delete;
  Capturing& operator=(const Capturing&) = delete;
  cudaError_t end() {
    if (stream == nullptr) return cudaSuccess;
    const cudaError_t status = cudaStreamEndCapture(std::exchange(stream, nullptr)->raw, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    return status;
  }
  const Stream* stream;
  cudaGraph_t graph = nullptr;
};

TEST(EmulatedRuntime, CapturedWorkIsDoneWhenTheGraphIsLaunchedAndAsOftenAsItIs) {
  const HostCalls before = *triax_emulated_host_calls();
  Stream stream;
  DeviceBytes value;
  cudaMemsetAsync(value.raw, 1, kBytes, stream.raw);
  ASSERT_EQ(cudaStreamBeginCapture(stream.raw, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(cudaStreamBeginCapture(stream.raw, cudaStreamCaptureModeThreadLocal), cudaErrorIllegalState);
  cudaMemsetAsync(value.raw, 2, kBytes, stream.raw);
  simt::submit(stream.raw, [&value] { static_cast<unsigned char*>(value.raw)[1] += 5; });
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream.raw, &graph), cudaSuccess);
  EXPECT_EQ(fetched(value, stream)[0], 1) << "a capture did the work";
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  cudaGraphDestroy(graph);
  for (int i = 0; i < 3; ++i) {
    cudaMemsetAsync(value.raw, 3, kBytes, stream.raw);
    ASSERT_EQ(cudaGraphLaunch(exec, stream.raw), cudaSuccess);
    EXPECT_EQ(fetched(value, stream)[0], 2);
    EXPECT_EQ(fetched(value, stream)[1], 7);
  }
  const HostCalls& now = *triax_emulated_host_calls();
  EXPECT_EQ(now.kernels - before.kernels, 0);
  EXPECT_EQ(now.captured - before.captured, 1);
  EXPECT_EQ(now.graph_launches - before.graph_launches, 3);
  EXPECT_EQ(now.graph_kernels - before.graph_kernels, 3);
  EXPECT_EQ(now.graphs - before.graphs, 1);
  // A launch under way keeps what it does.
  cudaMemsetAsync(value.raw, 3, kBytes, stream.raw);
  cudaGraphLaunch(exec, stream.raw);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(fetched(value, stream)[1], 7);
  EXPECT_EQ(triax_emulated_host_calls()->graphs, before.graphs);
}

// Each of these ends the capture, which then says so and gives no graph.
TEST(EmulatedRuntime, WhatADriverRefusesWhileAStreamIsCaptured) {
  Stream stream, other;
  Event event, elsewhere;
  DeviceBytes value;
  std::array<unsigned char, kBytes> pageable{};
  void* taken = nullptr;
  cudaEventRecord(event.raw, stream.raw);
  cudaStreamSynchronize(stream.raw);
  const std::vector<std::pair<const char*, std::function<cudaError_t()>>> unsupported{
      {"synchronize", [&] { return cudaStreamSynchronize(stream.raw); }},
      {"query", [&] { return cudaStreamQuery(stream.raw); }},
      {"synchronize another stream", [&] { return cudaStreamSynchronize(other.raw); }},
      {"query an event", [&] { return cudaEventQuery(event.raw); }},
      {"synchronize an event", [&] { return cudaEventSynchronize(event.raw); }},
      {"take memory", [&] { return cudaMalloc(&taken, kBytes); }},
      {"free memory", [&] { return cudaFree(value.raw); }},
      {"pin memory", [&] { return cudaMallocHost(&taken, kBytes); }},
      {"pageable to device",
       [&] { return cudaMemcpyAsync(value.raw, pageable.data(), kBytes, cudaMemcpyHostToDevice, stream.raw); }},
      {"device to pageable",
       [&] { return cudaMemcpyAsync(pageable.data(), value.raw, kBytes, cudaMemcpyDeviceToHost, stream.raw); }}};
  for (const auto& [what, call] : unsupported) {
    Capturing capture(stream);
    EXPECT_EQ(cudaMemsetAsync(value.raw, 1, kBytes, stream.raw), cudaSuccess);
    EXPECT_EQ(call(), cudaErrorStreamCaptureUnsupported) << what;
    EXPECT_EQ(cudaMemsetAsync(value.raw, 1, kBytes, stream.raw), cudaErrorStreamCaptureInvalidated) << what;
    EXPECT_EQ(capture.end(), cudaErrorStreamCaptureInvalidated) << what;
    EXPECT_EQ(capture.graph, nullptr) << what;
  }
  EXPECT_EQ(taken, nullptr);
  {
    Capturing capture(stream);
    cudaEventRecord(elsewhere.raw, other.raw);
    EXPECT_EQ(cudaStreamWaitEvent(stream.raw, elsewhere.raw, 0), cudaErrorStreamCaptureIsolation);
    EXPECT_EQ(capture.end(), cudaErrorStreamCaptureInvalidated);
  }
  {
    Capturing capture(stream);
    EXPECT_EQ(cudaEventRecord(event.raw, stream.raw), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(stream.raw, event.raw, 0), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(other.raw, event.raw, 0), cudaErrorNotSupported) << "joining is not emulated";
    EXPECT_EQ(cudaEventQuery(event.raw), cudaErrorCapturedEvent);
    EXPECT_EQ(capture.end(), cudaErrorStreamCaptureInvalidated);
  }
  {
    Capturing first(stream), second(other);
    cudaEventRecord(event.raw, stream.raw);
    EXPECT_EQ(cudaStreamWaitEvent(other.raw, event.raw, 0), cudaErrorStreamCaptureMerge);
    EXPECT_EQ(second.end(), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(first.end(), cudaSuccess);
  }
  EXPECT_EQ(cudaStreamEndCapture(stream.raw, std::make_unique<cudaGraph_t>().get()), cudaErrorIllegalState);
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeThreadLocal), cudaErrorStreamCaptureUnsupported);
}

TEST(EmulatedRuntime, OtherThreadsMayGoOnUnlessTheCaptureIsGlobal) {
  Stream stream, other;
  const auto elsewhere = [&](auto call) { return std::async(std::launch::async, call).get(); };
  {
    Capturing capture(stream);
    EXPECT_EQ(elsewhere([&] { return cudaStreamSynchronize(other.raw); }), cudaSuccess);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(elsewhere([&] { return cudaStreamEndCapture(stream.raw, &graph); }), cudaErrorStreamCaptureWrongThread);
    EXPECT_EQ(capture.end(), cudaSuccess);
  }
  Capturing capture(stream, cudaStreamCaptureModeGlobal);
  EXPECT_EQ(elsewhere([&] { return cudaStreamSynchronize(other.raw); }), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(capture.end(), cudaErrorStreamCaptureInvalidated);
}

TEST(EmulatedRuntime, TheLegacyStreamDoesNotGoWithACapturedBlockingStream) {
  DeviceBytes from, to;
  const auto copy = [&] { return cudaMemcpyAsync(to.raw, from.raw, kBytes, cudaMemcpyDeviceToDevice, nullptr); };
  Stream beside;
  {
    Capturing capture(beside);
    EXPECT_EQ(copy(), cudaErrorInvalidResourceHandle) << "there is none here, but the capture goes on";
    EXPECT_EQ(capture.end(), cudaSuccess);
  }
  Stream blocking(cudaStreamDefault);
  Capturing capture(blocking);
  EXPECT_EQ(copy(), cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(capture.end(), cudaErrorStreamCaptureInvalidated);
}

// A graph keeps addresses: memory that is gone when it is launched is found, as in a launch of its own.
TEST(EmulatedRuntime, AGraphThatOutlivesItsMemoryIsFound) {
  Stream stream;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  void* freed = nullptr;
  ASSERT_EQ(cudaMalloc(&freed, kBytes), cudaSuccess);
  cudaStreamBeginCapture(stream.raw, cudaStreamCaptureModeThreadLocal);
  EXPECT_EQ(cudaMemsetAsync(freed, 1, kBytes, stream.raw), cudaSuccess);
  cudaStreamEndCapture(stream.raw, &graph);
  cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphDestroy(graph);
  cudaFree(freed);
  EXPECT_EQ(cudaGraphLaunch(exec, stream.raw), cudaErrorInvalidValue);
  cudaGraphExecDestroy(exec);
}

}  // namespace
}  // namespace triax::emulated

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";  // the GPU is a thread
  return RUN_ALL_TESTS();
}
