#include "bench/gpu_links.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <sstream>

#include "base/handle.h"

namespace triax::bench {
namespace {

struct PipePolicy {
  using type = FILE*;
  static type null() noexcept { return nullptr; }
  static void destroy(type pipe) noexcept { pclose(pipe); }
};

/// What the command prints; empty where it cannot be run or fails.
std::string output_of(const std::string& command) {
  Handle<PipePolicy> pipe(popen((command + " 2>/dev/null").c_str(), "r"));
  if (!pipe) return "";
  std::string text;
  std::array<char, 4096> part{};
  while (const size_t got = fread(part.data(), 1, part.size(), pipe.get())) text.append(part.data(), got);
  return pclose(pipe.release()) == 0 ? text : "";
}

}  // namespace

double nvlink_bytes_per_s(const std::string& text) {
  double sum = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    int link = 0;
    double speed = 0;
    if (std::sscanf(line.c_str(), " Link %d: %lf GB/s", &link, &speed) == 2) sum += 1e9 * speed;
  }
  return sum;
}

double pcie_bytes_per_s(const std::string& text) {
  // GT/s of a lane times what the line code leaves, in bytes: 8b/10b, from the third generation on 128b/130b (PCIe Base
  // Specification), the sixth in flits of 256 with 242 of data.
  constexpr std::array kLane{
      0.25e9, 0.5e9, 8e9 / 8 * 128 / 130, 16e9 / 8 * 128 / 130, 32e9 / 8 * 128 / 130, 64e9 / 8 * 242 / 256};
  int generation = 0, lanes = 0;
  if (std::sscanf(text.c_str(), " %d , %d", &generation, &lanes) != 2) return 0;
  if (generation < 1 || generation > static_cast<int>(kLane.size()) || lanes < 1 || lanes > 32) return 0;
  return kLane[static_cast<size_t>(generation) - 1] * lanes;
}

std::string uuid_text(const std::string& digits) {
  if (digits.size() != 32) return digits;
  return fmt::format("GPU-{}-{}-{}-{}-{}", digits.substr(0, 8), digits.substr(8, 4), digits.substr(12, 4),
                     digits.substr(16, 4), digits.substr(20));
}

Peak gpu_link_peak(const kernels::DiscreteDevice& device) {
  const double nvlink = nvlink_bytes_per_s(output_of("timeout 20 nvidia-smi nvlink -s -i " + uuid_text(device.uuid())));
  return nvlink > 0 ? Peak{nvlink, "NVLink"} : gpu_host_peak(device);
}

Peak gpu_host_peak(const kernels::DiscreteDevice& device) {
  const double pcie = pcie_bytes_per_s(
      output_of("timeout 20 nvidia-smi --query-gpu=pcie.link.gen.max,pcie.link.width.max --format=csv,noheader,nounits "
                "-i " +
                uuid_text(device.uuid())));
  return {pcie, "PCIe"};
}

std::string gpu_topology() { return output_of("timeout 20 nvidia-smi topo -m"); }

}  // namespace triax::bench
