// `triax bench links`: copies between host and device, and messages between each two ranks.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/bench.h"
#include "apps/bench_request.h"
#include "base/error.h"
#include "bench/gpu_links.h"
#include "bench/peer_links.h"
#include "train/run_device.h"

namespace triax::apps {
namespace {

using bench::CopyRow;
using bench::PeerRow;
using Json = nlohmann::ordered_json;

struct PeersResult {
  std::string device;      ///< what it is
  std::string name;        ///< cpu, cuda, cuda-emulated
  bench::Peak link, host;  ///< between GPUs, and to the host
  std::vector<CopyRow> copies;
  std::vector<PeerRow> peers;

  std::string verdict(double gbps, const bench::Peak& peak) const {
    if (name == "cuda-emulated") return bench::kEmulated;
    bench::Verdict verdict;
    verdict.of = peak.of;
    if (peak.per_s > 0) verdict.share = 1e9 * gbps / peak.per_s;
    return verdict.text();
  }
  std::string verdict(const CopyRow& row) const {
    const bool crosses = row.kind == bench::CopyKind::ToDevice || row.kind == bench::CopyKind::FromDevice;
    return verdict(row.gbps(row.alone_s), crosses ? host : bench::Peak());
  }
  std::string verdict(const PeerRow& row) const { return verdict(row.gbps(row.one_way_s), link); }
};

void print_json(const PeersResult& r) {
  Json all{{"device", r.device}};
  if (r.name == "cuda-emulated") all["emulation"] = bench::kEmulated;
  all["copies"] = Json::array();
  for (const CopyRow& row : r.copies) {
    all["copies"].push_back({{"copy", name_of(row.kind)},
                             {"rank", row.rank},
                             {"bytes", row.bytes},
                             {"alone_us", 1e6 * row.alone_s},
                             {"together_us", 1e6 * row.together_s},
                             {"alone_gbps", row.gbps(row.alone_s)},
                             {"together_gbps", row.gbps(row.together_s)},
                             {"verdict", r.verdict(row)}});
  }
  all["peers"] = Json::array();
  for (const PeerRow& row : r.peers) {
    all["peers"].push_back({{"from", row.from},
                            {"to", row.to},
                            {"bytes", row.bytes},
                            {"one_way_us", 1e6 * row.one_way_s},
                            {"both_ways_us", 1e6 * row.both_ways_s},
                            {"latency_us", 0.5e6 * row.round_trip_s},
                            {"one_way_gbps", row.gbps(row.one_way_s)},
                            {"both_ways_gbps", 2 * row.gbps(row.both_ways_s)},
                            {"verdict", r.verdict(row)}});
  }
  fmt::print("{}\n", all.dump(2));
}

/// One table: a copy is a link of a rank to itself. together: all ranks copy, or as many bytes go the other way.
void print_csv(const PeersResult& r) {
  fmt::print("link,from,to,bytes,alone_us,together_us,alone_gbps,together_gbps,latency_us,verdict\n");
  for (const CopyRow& row : r.copies) {
    fmt::print("{},{},{},{},{:.3f},{:.3f},{:.6f},{:.6f},,\"{}\"\n", name_of(row.kind), row.rank, row.rank, row.bytes,
               1e6 * row.alone_s, 1e6 * row.together_s, row.gbps(row.alone_s), row.gbps(row.together_s),
               r.verdict(row));
  }
  for (const PeerRow& row : r.peers) {
    fmt::print("peer,{},{},{},{:.3f},{:.3f},{:.6f},{:.6f},{:.3f},\"{}\"\n", row.from, row.to, row.bytes,
               1e6 * row.one_way_s, 1e6 * row.both_ways_s, row.gbps(row.one_way_s), 2 * row.gbps(row.both_ways_s),
               0.5e6 * row.round_trip_s, r.verdict(row));
  }
}

/// Value of each pair, rows send.
void print_matrix(const PeersResult& r, const char* title, int64_t bytes, double (*value)(const PeerRow&)) {
  int ranks = 0;
  for (const PeerRow& row : r.peers) ranks = std::max({ranks, row.from + 1, row.to + 1});
  fmt::print("\n{}, {} bytes; rows send\n{:<8}", title, bytes, "");
  for (int to = 0; to < ranks; ++to) fmt::print(" {:>8}", fmt::format("rank {}", to));
  fmt::print("\n");
  for (int from = 0; from < ranks; ++from) {
    fmt::print("{:<8}", fmt::format("rank {}", from));
    for (int to = 0; to < ranks; ++to) {
      const auto found = std::find_if(r.peers.begin(), r.peers.end(), [&](const PeerRow& row) {
        return row.from == from && row.to == to && row.bytes == bytes;
      });
      fmt::print(" {:>8}", found == r.peers.end() ? "-" : fmt::format("{:.2f}", value(*found)));
    }
    fmt::print("\n");
  }
}

void print_table(const PeersResult& r) {
  fmt::print("each rank on {}\n", r.device);
  if (r.name == "cuda-emulated") fmt::print("{}\n", bench::kEmulated);
  fmt::print("\n{:<8} {:>5} {:>12} {:>11} {:>11} {:>10} {:>12}  {}\n", "copy", "rank", "bytes", "alone_us",
             "together_us", "alone_GB/s", "together_GB/s", "verdict");
  for (const CopyRow& row : r.copies) {
    fmt::print("{:<8} {:>5} {:>12} {:>11.2f} {:>11.2f} {:>10.3f} {:>13.3f}  {}\n", name_of(row.kind), row.rank,
               row.bytes, 1e6 * row.alone_s, 1e6 * row.together_s, row.gbps(row.alone_s), row.gbps(row.together_s),
               r.verdict(row));
  }
  if (r.peers.empty()) {
    fmt::print("\none rank: there is no pair to measure\n");
    return;
  }
  const auto [least, most] =
      std::minmax_element(r.peers.begin(), r.peers.end(), [](auto& a, auto& b) { return a.bytes < b.bytes; });
  print_matrix(r, "one way, GB/s", most->bytes, [](const PeerRow& row) { return row.gbps(row.one_way_s); });
  print_matrix(r, "both ways at once, GB/s together", most->bytes,
               [](const PeerRow& row) { return 2 * row.gbps(row.both_ways_s); });
  print_matrix(r, "latency (half a round trip), us", least->bytes,
               [](const PeerRow& row) { return 0.5e6 * row.round_trip_s; });
  const auto slowest = std::min_element(r.peers.begin(), r.peers.end(), [&](auto& a, auto& b) {
    return std::pair(a.bytes != most->bytes, a.gbps(a.one_way_s)) <
           std::pair(b.bytes != most->bytes, b.gbps(b.one_way_s));
  });
  fmt::print("\nslowest pair: rank {} to {}: {:.3f} GB/s, {}\n", slowest->from, slowest->to,
             slowest->gbps(slowest->one_way_s), r.verdict(*slowest));
}

}  // namespace

int bench_peers(const std::vector<std::string>& args, comm::MpiSession& session) {
  bench::LinkBench bench;
  int64_t nodes = 0;
  const std::vector<io::OptionEntry> extra{
      text_entry("sizes", "LIST", "bytes of a copy and a message (default 4K,1M,64M)",
                 [&](const std::string& text) { return take_byte_list(text, bench.sizes); }),
      nodes_entry(nodes)};
  const KernelRequest request = parse_kernels("links", args, extra, BenchDevice::Any);
  if (!request.help.empty()) {
    if (session.rank() == 0) fmt::print("{}", request.help);
    return 0;
  }
  const io::RunControl& control = request.options.control;
  check_nodes(session, "links", nodes);
  if (control.device == "cpu" && session.size() == 1) {
    throw ConfigError("bench links: one rank has nobody to talk to; use mpiexec -n 2 or more");
  }
  const train::RunDevice device(session, control.device, 1);
  bench.rounds = static_cast<int>(request.rounds);
  bench.on = {device.discrete(), device.groups(), control.use_nccl_ub};
  PeersResult result{device.describe(), control.device, {}, {}, {}, {}};
  {
    comm::GridOptions options;
    options.shape.data = session.size();
    comm::ProcessGrid grid(session, options);
    result.copies = bench::measure_copies(grid.world(), bench);
    grid.world().barrier();
  }
  if (session.size() > 1) result.peers = bench::measure_peers(session, bench);
  if (session.rank() != 0) return 0;
  if (control.device == "cuda") {
    result.link = bench::gpu_link_peak(*device.discrete());
    result.host = bench::gpu_host_peak(*device.discrete());
  }
  if (request.format == Format::Json) {
    print_json(result);
  } else if (request.format == Format::Csv) {
    print_csv(result);
  } else {
    print_table(result);
    const std::string topology = control.device == "cuda" ? bench::gpu_topology() : "";
    if (!topology.empty()) fmt::print("\nnvidia-smi topo -m\n{}", topology);
  }
  return 0;
}

}  // namespace triax::apps
