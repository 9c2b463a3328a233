// `triax bench overlap|io|topo`: what runs beside what, checkpoints, and who is near whom.
#include <fmt/format.h>
#include <sched.h>

#include <nlohmann/json.hpp>

#include "apps/bench.h"
#include "apps/bench_request.h"
#include "base/error.h"
#include "base/units.h"
#include "bench/checkpoint_io.h"
#include "bench/device_map.h"
#include "bench/gpu_links.h"
#include "bench/machine.h"
#include "bench/overlap.h"
#include "bench/verdict.h"
#include "train/run_device.h"

namespace triax::apps {
namespace {

using Json = nlohmann::ordered_json;

comm::GridOptions all_in_data(int ranks) {
  comm::GridOptions options;
  options.shape.data = ranks;
  return options;
}

std::string overlap_verdict(const bench::OverlapRow& row, const std::string& device, int ranks, int cores) {
  if (device == "cuda-emulated") return bench::kEmulated;
  const std::string head = fmt::format("{:.0f} % hidden", 100 * row.hidden());
  if (row.hidden() >= 0.6) return head;
  if (device == "cuda") {
    return head + ": NCCL's kernels take multiprocessors and memory bandwidth (NCCL_MAX_NCHANNELS, NCCL_MAX_CTAS)";
  }
  if (2 * ranks > cores) return head + ": the transfer runs on the cores that compute";
  return head + ": both need the same memory bandwidth";
}

void print_overlap(const std::vector<bench::OverlapRow>& rows, const KernelRequest& request,
                   const train::RunDevice& device, int ranks) {
  const Format format = request.format;
  const std::string& name = request.options.control.device;
  const int cores = bench::this_machine().processing_units;
  Json all = Json::array();
  if (format == Format::Table && name != "cpu") fmt::print("each rank on {}\n", device.describe());
  if (format == Format::Table && name == "cuda-emulated") fmt::print("{}\n", bench::kEmulated);
  if (format != Format::Json) {
    fmt::print("{}", format == Format::Csv
                         ? "bytes,gemm_us,all_reduce_us,both_us,gemm_slowdown,all_reduce_slowdown,hidden,verdict\n"
                         : fmt::format("{:>10} {:>11} {:>13} {:>11} {:>13} {:>19}  {}\n", "bytes", "gemm_us",
                                       "all_reduce_us", "both_us", "gemm_slowdown", "all_reduce_slowdown", "verdict"));
  }
  for (const bench::OverlapRow& row : rows) {
    const std::string verdict = overlap_verdict(row, name, ranks, cores);
    if (format == Format::Json) {
      all.push_back({{"device", device.describe()},
                     {"bytes", row.bytes},
                     {"gemm_us", 1e6 * row.gemm_s},
                     {"all_reduce_us", 1e6 * row.collective_s},
                     {"both_us", 1e6 * row.both_s},
                     {"gemm_slowdown", row.gemm_slowdown()},
                     {"all_reduce_slowdown", row.collective_slowdown()},
                     {"hidden", row.hidden()},
                     {"verdict", verdict}});
    } else if (format == Format::Csv) {
      fmt::print("{},{:.3f},{:.3f},{:.3f},{:.4f},{:.4f},{:.4f},\"{}\"\n", row.bytes, 1e6 * row.gemm_s,
                 1e6 * row.collective_s, 1e6 * row.both_s, row.gemm_slowdown(), row.collective_slowdown(), row.hidden(),
                 verdict);
    } else {
      fmt::print("{:>10} {:>11.1f} {:>13.1f} {:>11.1f} {:>13.2f} {:>19.2f}  {}\n", row.bytes, 1e6 * row.gemm_s,
                 1e6 * row.collective_s, 1e6 * row.both_s, row.gemm_slowdown(), row.collective_slowdown(), verdict);
    }
  }
  if (format == Format::Json) fmt::print("{}\n", all.dump(2));
}

/// Processing units of every rank, as list texts.
std::vector<std::string> cpus_of_ranks(comm::Communicator& world) {
  constexpr int64_t kLength = 64;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof(allowed), &allowed);
  std::string mine;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed) && (cpu == 0 || !CPU_ISSET(cpu - 1, &allowed))) {
      int last = cpu;
      while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &allowed)) ++last;
      mine += fmt::format("{}{}{}", mine.empty() ? "" : ",", cpu, last > cpu ? fmt::format("-{}", last) : "");
    }
  }
  mine.resize(kLength - 1);
  std::string all(static_cast<size_t>(kLength * world.size()), '\0');
  world
      .all_gather(Tensor(mine.data(), DType::UInt8, {kLength}),
                  Tensor(all.data(), DType::UInt8, {kLength * world.size()}))
      .wait();
  std::vector<std::string> lists;
  for (int r = 0; r < world.size(); ++r) lists.emplace_back(all.c_str() + r * kLength);
  return lists;
}

void print_topology(const std::vector<std::string>& cpus, const std::vector<int>& nodes) {
  fmt::print("{}", bench::cpu_tree());
  const auto machine = bench::this_machine();
  fmt::print("clock {:.2f} GHz, {}{}; {:.1f} GiB\n\n{:<8}", machine.clock_hz / 1e9, machine.vectors,
             machine.bf16 ? " with bf16" : "", static_cast<double>(machine.memory_bytes) / kGiB, "");
  for (size_t r = 0; r < cpus.size(); ++r) fmt::print(" {:>7}", fmt::format("rank {}", r));
  fmt::print("  {:<14} {}\n", "CPUs", "node");
  for (size_t a = 0; a < cpus.size(); ++a) {
    fmt::print("{:<8}", fmt::format("rank {}", a));
    for (size_t b = 0; b < cpus.size(); ++b) {
      const bool here = nodes[a] == nodes[0] && nodes[b] == nodes[0];
      const std::string word = a == b                 ? "X"
                               : nodes[a] != nodes[b] ? "NET"
                               : here                 ? bench::cpu_relation(cpus[a], cpus[b])
                                                      : "host";
      fmt::print(" {:>7}", word);
    }
    fmt::print("  {:<14} {}\n", cpus[a], nodes[a]);
  }
  fmt::print(
      "X itself, same: may run on one processing unit, core, L2, L3, NUMA: nearest thing in common, SYS: between NUMA "
      "nodes,\nhost: another node than rank 0's, NET: over the network\n");
  const std::string devices = bench::device_map().text();
  fmt::print("\n{}", devices.empty() ? "no GPU and no network adapter on PCI\n" : devices);
  const std::string matrix = bench::gpu_topology();
  if (!matrix.empty()) fmt::print("\nnvidia-smi topo -m, NVLink included:\n{}", matrix);
}

}  // namespace

int bench_overlap(const std::vector<std::string>& args, comm::MpiSession& session) {
  int64_t size = 256;
  std::vector<int64_t> sizes{int64_t{256} << 10, int64_t{1} << 20, int64_t{4} << 20, int64_t{16} << 20};
  const std::vector<io::OptionEntry> extra{
      count_entry("gemm-size", "side of the matrices (default 256; of a GPU rather 4096)", 16, size),
      text_entry("sizes", "LIST", "bytes of the all_reduce (default 256K,1M,4M,16M)",
                 [&](const std::string& text) { return take_byte_list(text, sizes); })};
  const KernelRequest request = parse_kernels("overlap", args, extra, BenchDevice::Any);
  if (!request.help.empty()) {
    if (session.rank() == 0) fmt::print("{}", request.help);
    return 0;
  }
  if (session.size() == 1) throw ConfigError("bench overlap: one rank has nobody to talk to; use mpiexec -n 2 or more");
  const train::RunDevice device(session, request.options.control.device, bench::threads_of_rank(session.local_size()),
                                train::gemm_search(request.options));
  comm::ProcessGrid grid(session, all_in_data(session.size()), device.groups());
  Arena arena(device.memory(request.options, grid));
  bench::Operands operands(device.get(), arena);
  std::vector<bench::OverlapRow> rows;
  for (const int64_t bytes : sizes) {
    rows.push_back(bench::measure_overlap(grid, operands, arena, request.dtypes.front(), size, bytes,
                                          static_cast<int>(request.rounds)));
  }
  if (session.rank() == 0) print_overlap(rows, request, device, session.local_size());
  grid.world().barrier();
  return 0;
}

int bench_io(const std::vector<std::string>& args, comm::MpiSession& session) {
  std::string directory = ".";
  int64_t bytes = int64_t{64} << 20;
  const std::vector<io::OptionEntry> extra{
      path_entry("dir", "where to write, and remove again (default: here)", directory),
      text_entry("bytes", "SIZE", "of each rank (default 64M)",
                 [&](const std::string& text) { return take_bytes(text, bytes); })};
  const KernelRequest request = parse_kernels("io", args, extra);
  if (!request.help.empty()) {
    if (session.rank() == 0) fmt::print("{}", request.help);
    return 0;
  }
  comm::ProcessGrid grid(session, all_in_data(session.size()));
  const bench::CheckpointIo io = bench::measure_checkpoint_io(grid.world(), directory, bytes,
                                                              static_cast<int>(std::min<int64_t>(request.rounds, 3)));
  if (session.rank() == 0) {
    if (request.format == Format::Json) {
      const Json all{{"ranks", session.size()},
                     {"bytes", io.bytes},
                     {"write_s", io.write_s},
                     {"read_s", io.read_s},
                     {"write_gbps", io.write_per_s() / 1e9},
                     {"read_gbps", io.read_per_s() / 1e9}};
      fmt::print("{}\n", all.dump(2));
    } else if (request.format == Format::Csv) {
      fmt::print("ranks,bytes,write_s,read_s,write_gbps,read_gbps\n{},{},{:.6f},{:.6f},{:.6f},{:.6f}\n", session.size(),
                 io.bytes, io.write_s, io.read_s, io.write_per_s() / 1e9, io.read_per_s() / 1e9);
    } else {
      fmt::print("{} ranks, {} bytes together\n", session.size(), io.bytes);
      fmt::print("write {:8.3f} s {:8.3f} GB/s  shards, fsync, read back, index, rename\n", io.write_s,
                 io.write_per_s() / 1e9);
      fmt::print("read  {:8.3f} s {:8.3f} GB/s  right after: from the page cache where it holds them\n", io.read_s,
                 io.read_per_s() / 1e9);
    }
  }
  grid.world().barrier();
  return 0;
}

int bench_topo(const std::vector<std::string>& args, comm::MpiSession& session) {
  if (!args.empty()) {
    if (args[0] != "--help") throw ConfigError(fmt::format("bench topo {}: it takes no options", args[0]));
    if (session.rank() == 0) fmt::print("usage: [mpiexec -n RANKS] triax bench topo\n");
    return 0;
  }
  comm::ProcessGrid grid(session, all_in_data(session.size()));
  const std::vector<std::string> cpus = cpus_of_ranks(grid.world());
  if (session.rank() == 0) print_topology(cpus, grid.nodes());
  grid.world().barrier();
  return 0;
}

}  // namespace triax::apps
