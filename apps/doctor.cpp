// `triax doctor`: how a job was started, what is wrong with it and what helps, in a few seconds, before a long run.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "apps/commands.h"
#include "apps/doctor_facts.h"
#include "apps/entry_makers.h"
#include "apps/session.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/watched_call.h"
#include "comm/group_nodes.h"
#include "comm/process_grid.h"
#include "io/options/validate.h"
#include "kernels/cuda_loader.h"

namespace triax::apps {
namespace {

/// Every wait of the doctor: long enough for a sane machine, short enough for a person.
constexpr double kDeadline_s = 3;
/// MPI's own start and end, which look for every rank; --distributed-timeout-minutes says another.
constexpr double kMpiDeadline_s = 60;

double real_time_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Clocks at one instant, as near as a barrier comes. Returns how far apart the instants may be.
double read_clocks(comm::ProcessGrid& grid, comm::LaunchFacts& mine) {
  grid.world().barrier();
  const Stopwatch watch;
  grid.world().barrier();
  mine.clock_s = real_time_s();
  double spread = watch.elapsed_s();
  grid.world().all_reduce(Tensor(&spread, DType::Float64, {1}), comm::ReduceOp::Max).wait();
  return spread;
}

/// Rank 0 makes a file in `directory`; every rank looks for it and locks a file of its own.
void try_directory(comm::ProcessGrid& grid, const std::string& directory, comm::LaunchFacts& mine) {
  int64_t id = getpid();
  grid.world().broadcast(Tensor(&id, DType::Int64, {1}), 0).wait();
  const std::string shared = fmt::format("{}/.triax-doctor-{}", directory, id);
  const auto make = [](const std::string& path) { return open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600); };
  const int made = grid.world_rank() == 0 ? make(shared) : -1;
  int64_t fault = grid.world_rank() == 0 && made < 0 ? errno : 0;
  grid.world().broadcast(Tensor(&fault, DType::Int64, {1}), 0).wait();
  if (fault != 0) {
    throw ConfigError(fmt::format("--dir {}: rank 0 cannot write there ({}); name a directory that all nodes mount",
                                  directory, std::strerror(static_cast<int>(fault))));
  }
  mine.sees_directory = std::filesystem::exists(shared) ? 1 : 0;
  const std::string own = fmt::format("{}-{}", shared, grid.world_rank());
  const int file = make(own);
  mine.lock_errno = file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0 ? errno : 0;
  if (file >= 0) close(file);
  unlink(own.c_str());
  grid.world().barrier();
  if (made >= 0) {
    close(made);
    unlink(shared.c_str());
  }
}

/// A sum of ones over every group, a message to the next stage and one from the stage before; PeerLost names who is
/// missing.
int try_groups(comm::ProcessGrid& grid) {
  int tried = 0;
  for (comm::Communicator* group : {&grid.world(), &grid.tensor(), &grid.data(), &grid.pipeline(), &grid.shard(),
                                    &grid.replica(), &grid.model_parallel(), &grid.embedding()}) {
    double sum = 1;
    group->all_reduce(Tensor(&sum, DType::Float64, {1}), comm::ReduceOp::Sum).wait();
    if (sum != group->size()) {
      throw RunTimeError(
          fmt::format("{}: a sum of ones over {} ranks is {}: the network or the MPI library corrupts data",
                      group->name(), group->size(), sum));
    }
    ++tried;
  }
  comm::Communicator& pipeline = grid.pipeline();
  if (pipeline.size() > 1) {
    const int n = pipeline.size(), me = pipeline.rank();
    double out = me, in = -1;
    comm::Work received = pipeline.recv(Tensor(&in, DType::Float64, {1}), (me + n - 1) % n, 1);
    comm::Work sent = pipeline.send(Tensor(&out, DType::Float64, {1}), (me + 1) % n, 1);
    received.wait();
    sent.wait();
    if (in != (me + n - 1) % n) throw RunTimeError("pp: a message came from the wrong stage");
  }
  return tried;
}

/// Why a run on `device` would be refused on this rank; empty: it gets the device.
std::string device_fault(const comm::MpiSession& session, const std::string& device, FlightRecorder& flight) {
  if (device == "cpu") return {};
  const WatchedCall call(&flight, "the GPU's driver");
  kernels::CudaDeviceOptions options;
  options.local_rank = session.local_rank();
  try {
    kernels::make_cuda_device(options, device == "cuda" ? kernels::CudaModule::Cuda : kernels::CudaModule::Emulated);
  } catch (const std::exception& error) {
    return words_of(error);
  }
  return {};
}

std::vector<comm::LaunchFacts> gather(comm::ProcessGrid& grid, comm::LaunchFacts& mine) {
  const auto ranks = static_cast<int64_t>(grid.shape().world());
  const auto bytes = static_cast<int64_t>(sizeof mine);
  std::vector<comm::LaunchFacts> all(static_cast<size_t>(ranks));
  grid.world()
      .all_gather(Tensor(&mine, DType::UInt8, {bytes}), Tensor(all.data(), DType::UInt8, {ranks * bytes}))
      .wait();
  return all;
}

void print_ranks(const comm::ProcessGrid& grid, const std::vector<comm::LaunchFacts>& facts) {
  fmt::print("{:>6} {:>5}  {:<16} {:<14} {:>5} {:<12} {}\n", "rank", "node", "host", "cores", "numa", "device",
             "interface");
  for (size_t r = 0; r < facts.size(); ++r) {
    const comm::LaunchFacts& f = facts[r];
    fmt::print("{:>6} {:>5}  {:<16} {:<14} {:>5} {:<12} {}\n", r, grid.nodes()[r], f.host, f.cpus,
               f.numa < 0 ? "-" : std::to_string(f.numa), f.device, f.interface[0] != 0 ? f.interface : "-");
  }
}

int report(const comm::ProcessGrid& grid, const std::vector<comm::LaunchFacts>& facts,
           const std::vector<comm::Finding>& findings, int groups) {
  const comm::GridShape& shape = grid.shape();
  print_ranks(grid, facts);
  fmt::print("\ntriax {}; {}\n", facts[0].build, facts[0].libraries);
  for (const comm::Axis axis : {comm::Axis::Tensor, comm::Axis::Data, comm::Axis::Pipeline}) {
    fmt::print("{} of {}: {}\n", comm::name_of(axis), shape.size_of(axis),
               comm::describe_crossing(comm::group_nodes(shape, axis, grid.nodes())));
  }
  fmt::print("collectives: {} groups of every rank answer within {} s\n", groups, kDeadline_s);
  bool fault = false;
  for (const comm::Finding& finding : findings) {
    fmt::print("{}: {}\n", finding.severity == comm::Severity::Fault ? "FAULT" : "warning", finding.text);
    fault = fault || finding.severity == comm::Severity::Fault;
  }
  fmt::print("doctor: {}\n", fault              ? "this job should not run as it is"
                             : findings.empty() ? "nothing found"
                                                : "nothing that stops a run");
  return fault ? static_cast<int>(ExitCode::ValidationFailed) : 0;
}

std::vector<io::OptionEntry> own_entries(std::string& directory) {
  return {path_entry("dir", "directory of the run, to be seen and locked by all nodes; default the present one",
                     directory)};
}

/// Known before MPI says which rank reports a wrong option.
double mpi_deadline_s(const std::vector<std::string>& args) {
  try {
    std::string directory;
    const io::ParsedOptions parsed = io::parse_options(args, own_entries(directory));
    if (parsed.given("distributed-timeout-minutes")) return 60 * parsed.options.control.distributed_timeout_min;
  } catch (const ConfigError&) {
  }
  return kMpiDeadline_s;
}

int run(const std::vector<std::string>& args, comm::MpiSession& session, FlightRecorder& flight) {
  std::string directory = ".";
  const std::vector<io::OptionEntry> extra = own_entries(directory);
  const io::ParsedOptions parsed = io::parse_options(args, extra);
  if (parsed.help) {
    if (session.rank() == 0) {
      fmt::print(
          "usage: srun -n N triax doctor [--dir DIR] [layout options of triax train]\n\n"
          "Binding, GPUs, interfaces, shared directory, limits, locks, clocks, versions; a tiny collective in every "
          "group.\nEnds with 0, or 4 when something would spoil a run.\n");
    }
    return 0;
  }
  const std::string& device = parsed.options.control.device;
  const std::string fault = device_fault(session, device, flight);  // before any wait has a deadline: it takes seconds
  comm::GridOptions options;
  options.flight = &flight;
  options.shape = parsed.options.parallel.grid;
  options.shape.data = io::data_parallel_size(options.shape, session.size());
  options.timeout_s = kDeadline_s;
  options.shared_memory = parsed.options.control.shared_memory;
  options.fake_nodes = parsed.options.control.fake_nodes;
  comm::ProcessGrid grid(session, options);
  const int groups = try_groups(grid);
  comm::LaunchFacts mine = launch_facts(session, device, fault);
  const double spread = read_clocks(grid, mine);
  try_directory(grid, directory, mine);
  const std::vector<comm::LaunchFacts> facts = gather(grid, mine);
  const std::vector<comm::Finding> findings = comm::check_launch(facts, grid.nodes(), directory, spread);
  int code = session.rank() == 0 ? report(grid, facts, findings, groups) : 0;
  int64_t agreed = code;
  grid.world().broadcast(Tensor(&agreed, DType::Int64, {1}), 0).wait();
  return static_cast<int>(agreed);
}

}  // namespace

int doctor_command(const std::vector<std::string>& args) {
  FlightRecorder flight;
  flight.header().timeout_s = mpi_deadline_s(args);
  return run_with_session([&](comm::MpiSession& session, RankName&) { return run(args, session, flight); }, &flight);
}

}  // namespace triax::apps
