// Every finding of `triax doctor`, word by word.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>

#include "comm/launch_checks.h"

namespace triax::comm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

template <size_t N>
void set(char (&to)[N], const char* from) {
  std::snprintf(to, N, "%s", from);
}

/// Two nodes of two ranks, all well.
struct Healthy {
  std::vector<LaunchFacts> facts = std::vector<LaunchFacts>(4);
  std::vector<int> nodes{0, 0, 1, 1};
  Healthy() {
    for (int r = 0; r < 4; ++r) {
      LaunchFacts& f = facts[static_cast<size_t>(r)];
      f = {};
      set(f.host, r < 2 ? "n1" : "n2");
      set(f.cpus, r % 2 == 0 ? "0-3" : "4-7");
      f.num_cpus = 4;
      set(f.device, r % 2 == 0 ? "0" : "1");
      set(f.interface, r < 2 ? "ib0 10.1.0.1" : "ib0 10.1.0.2");
      set(f.build, "0.1.0 (abc)");
      set(f.libraries, "MPICH 4.0.2, HDF5 1.10.8");
      f.locked_memory = -1;
      f.open_files = 65536;
      f.clock_s = 1000;
      f.sees_directory = 1;
      f.hdf5_locks = 1;
    }
  }
  LaunchFacts& at(size_t rank) { return facts[rank]; }
  std::vector<Finding> check() const { return check_launch(facts, nodes, "/scratch", 0.01); }
};

Finding warning(const char* text) { return {Severity::Warning, text}; }
Finding fault(const char* text) { return {Severity::Fault, text}; }

TEST(LaunchChecks, nothing_to_say_of_a_healthy_job) { EXPECT_THAT(Healthy().check(), IsEmpty()); }

TEST(LaunchChecks, ranks_on_one_core) {
  Healthy job;
  for (const size_t r : {0u, 1u}) {
    set(job.at(r).cpus, "3");
    job.at(r).num_cpus = 1;
  }
  EXPECT_THAT(job.check(),
              ElementsAre(warning("ranks {0,1} on n1 share 1 core(s) 3: they take turns; srun --cpus-per-task=N "
                                  "--cpu-bind=cores, mpiexec -bind-to core, or fewer ranks on the node")));
}

TEST(LaunchChecks, two_ranks_on_one_gpu) {
  Healthy job;
  set(job.at(3).device, "0");
  EXPECT_THAT(job.check(), ElementsAre(fault("ranks {2,3} on n2 use one GPU (0): as many ranks as GPUs on every node; "
                                             "sbatch --ntasks-per-node=N --gpus-per-node=N, srun --gpu-bind=none")));
  set(job.at(2).device, "cpu");
  set(job.at(3).device, "cpu");
  EXPECT_THAT(job.check(), IsEmpty());
}

TEST(LaunchChecks, no_gpu) {
  Healthy job;
  for (LaunchFacts& f : job.facts) {
    set(f.device, "none");
    set(f.device_fault, "no driver: load it");
  }
  set(job.at(3).device_fault, "too old: update it");
  EXPECT_THAT(job.check(),
              ElementsAre(fault("ranks {0,1} on n1: no driver: load it"), fault("rank 2 on n2: no driver: load it"),
                          fault("rank 3 on n2: too old: update it")));
}

TEST(LaunchChecks, interfaces) {
  Healthy job;
  set(job.at(2).interface, "eth0 10.1.0.2");
  EXPECT_THAT(job.check(), ElementsAre(warning("nodes have interfaces of different names (eth0 on n2, ib0 on n1): "
                                               "NCCL_SOCKET_IFNAME and UCX_NET_DEVICES must name one that all have")));
  set(job.at(2).interface, "");
  EXPECT_THAT(job.check(), ElementsAre(fault("n2 has no network interface that is up but the loopback: other nodes "
                                             "cannot reach it")));
  job.nodes = {0, 0, 0, 0};
  for (LaunchFacts& f : job.facts) set(f.device, "cpu");
  EXPECT_THAT(job.check(), IsEmpty());  // one node needs none
}

TEST(LaunchChecks, directory_and_locks) {
  Healthy job;
  job.at(2).sees_directory = 0;
  EXPECT_THAT(job.check(),
              ElementsAre(fault("n2 does not see what rank 0 writes in /scratch: --run-dir, --save and data must lie "
                                "on a file system that all nodes mount (TRIAX_SCRATCH in jobs/site.sh)")));
  job = {};
  job.at(0).lock_errno = ENOLCK;
  EXPECT_THAT(job.check(),
              ElementsAre(fault("n1: /scratch cannot be locked (No locks available), and HDF5 locks the files that it "
                                "opens: export HDF5_USE_FILE_LOCKING=FALSE")));
  job.at(0).hdf5_locks = 0;
  EXPECT_THAT(job.check(), IsEmpty());
}

TEST(LaunchChecks, limits) {
  Healthy job;
  job.at(0).locked_memory = 65536;
  job.at(2).open_files = 256;
  EXPECT_THAT(job.check(),
              ElementsAre(warning("n1: at most 64 KiB of memory can be locked (ulimit -l): InfiniBand cannot register "
                                  "buffers; unlimited in /etc/security/limits.d, or "
                                  "PropagateResourceLimitsExcept=MEMLOCK in slurm.conf"),
                          warning("n2: a process may open 256 files (ulimit -n): sockets to all ranks and shards of "
                                  "checkpoints need more; ulimit -n 65536")));
}

TEST(LaunchChecks, clocks) {
  Healthy job;
  job.at(2).clock_s = 996.5;
  EXPECT_THAT(job.check(), ElementsAre(warning("the clock of n2 is 3.5 s behind that of n1: times in logs and traces "
                                               "cannot be compared; start chronyd or ntpd")));
  job.at(2).clock_s = 1000.9;
  EXPECT_THAT(job.check(), IsEmpty());
}

TEST(LaunchChecks, versions) {
  Healthy job;
  set(job.at(2).libraries, "MPICH 4.1, HDF5 1.10.8");
  set(job.at(3).build, "0.2.0 (def)");
  EXPECT_THAT(job.check(),
              ElementsAre(fault("rank 2 (n2) runs MPICH 4.1, HDF5 1.10.8, rank 0 (n1) runs MPICH 4.0.2, HDF5 1.10.8: "
                                "the same binary and the same modules on all nodes")));
}

}  // namespace
}  // namespace triax::comm
