#include "io/trace/hta.h"

#include <fmt/format.h>
#include <zlib.h>

#include "base/error.h"
#include "io/report/run_directory.h"
#include "io/trace/timeline.h"

namespace triax::io {
namespace {

const char* category_of(const DeviceKernel& kernel) {
  return kernel.name.rfind("Memcpy", 0) == 0 ? "gpu_memcpy" : "kernel";
}

std::string complete(const char* category, const std::string& name, int64_t pid, int64_t tid, int64_t start_ps,
                     int64_t duration_ps, const std::string& args) {
  return fmt::format(
      R"({{"ph": "X", "cat": "{}", "name": "{}", "pid": {}, "tid": {}, "ts": {}, "dur": {}, "args": {{{}}}}})",
      category, name, pid, tid, microseconds(start_ps), microseconds(duration_ps), args);
}

}  // namespace

std::string hta_json(const RankTrace& trace) {
  constexpr int64_t kThread = 1;
  const int64_t process = 1000 + trace.rank;  // of the host; device events have the device's number
  std::string text = fmt::format(
      "{{\n\"schemaVersion\": 1,\n\"distributedInfo\": {{\"backend\": \"nccl\", \"rank\": {}, \"world_size\": {}}},\n"
      "\"displayTimeUnit\": \"ms\",\n\"traceEvents\": [\n",
      trace.rank, trace.world_size);
  text += complete("user_annotation", "ProfilerStep#1", process, kThread, 0, trace.step_ps, "");
  int64_t correlation = 0;
  for (const DeviceKernel& kernel : trace.kernels) {
    ++correlation;
    const bool copy = category_of(kernel) != std::string("kernel");
    text += ",\n" + complete("cuda_runtime", copy ? "cudaMemcpyAsync" : "cudaLaunchKernel", process, kThread,
                             kernel.start_ps, 0, fmt::format(R"("correlation": {})", correlation));
    text += ",\n" + complete(category_of(kernel), kernel.name, trace.device, static_cast<int64_t>(kernel.stream),
                             kernel.start_ps, kernel.stop_ps - kernel.start_ps,
                             fmt::format(R"("device": {}, "stream": {}, "correlation": {})", trace.device,
                                         static_cast<int>(kernel.stream), correlation));
  }
  return text + "\n]}\n";
}

void write_gzip_file(const std::string& path, const std::string& text) {
  z_stream stream{};
  constexpr int kGzip = 15 + 16;
  ensure(deflateInit2(&stream, 6, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) == Z_OK, "zlib cannot start");
  std::string packed(deflateBound(&stream, static_cast<uLong>(text.size())) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const int code = deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  if (code != Z_STREAM_END) throw RunTimeError(path + ": cannot be packed: more than 4 GB");
  write_text_file(path, packed);
}

}  // namespace triax::io
