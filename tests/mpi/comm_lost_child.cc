// One rank of a job stops answering: a child of comm_peer_lost.cc, started by mpiexec with two ranks or more.
// comm_lost_child shared|messages all_reduce|data|recv|send stop|idle
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "comm/process_grid.h"

using namespace triax;
using namespace triax::comm;

namespace {

void use_group(ProcessGrid& grid, Tensor t, const std::string& operation) {
  if (operation == "all_reduce") grid.tensor().all_reduce(t, ReduceOp::Sum).wait();
  if (operation == "data") grid.data().all_reduce(t, ReduceOp::Sum).wait();
  if (operation == "recv") grid.world().recv(t, 1, 7).wait();
  if (operation == "send") grid.world().send(t, 1, 7).wait();
}

}  // namespace

int main(int argc, char** argv) {
  MpiSession session(&argc, &argv);
  try {
    const std::string operation = argv[2];
    GridOptions options;
    (operation == "data" ? options.shape.data : options.shape.tensor) = session.size();
    options.shared_memory = std::string(argv[1]) == "shared";
    options.timeout_s = 1;
    ProcessGrid grid(session, options);
    Arena arena(grid.memory());
    const Buffer buffer = arena.allocate(DType::Float32, 1 << 20, MemoryCategory::Workspace);
    grid.world().barrier();
    if (session.rank() == 1 && std::string(argv[3]) == "stop") raise(SIGSTOP);
    if (session.rank() != 0) pause();  // alive, but it never calls
    use_group(grid, buffer.view(DType::Float32, {1 << 20}), operation);
  } catch (const PeerLost& error) {
    std::fprintf(stderr, "PeerLost: %s\n", error.what());
    session.abort(static_cast<int>(ExitCode::RunTime));
  }
  return 0;
}
