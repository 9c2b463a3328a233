// The measurements of `triax bench`, one file each. All get the words after their name.
#pragma once

#include <string>
#include <vector>

#include "comm/mpi_session.h"

namespace triax::apps {

int bench_coll(const std::vector<std::string>& args, comm::MpiSession& session);
int bench_gemm(const std::vector<std::string>& args, comm::MpiSession& session);
int bench_attention(const std::vector<std::string>& args, comm::MpiSession& session);
int bench_norm(const std::vector<std::string>& args, comm::MpiSession& session);
int bench_adam(const std::vector<std::string>& args, comm::MpiSession& session);
int bench_copy(const std::vector<std::string>& args, comm::MpiSession& session);
int bench_peers(const std::vector<std::string>& args, comm::MpiSession& session);
int bench_overlap(const std::vector<std::string>& args, comm::MpiSession& session);
int bench_io(const std::vector<std::string>& args, comm::MpiSession& session);
int bench_topo(const std::vector<std::string>& args, comm::MpiSession& session);
int bench_all(const std::vector<std::string>& args, comm::MpiSession& session);

/// Without MPI.
int bench_import(const std::vector<std::string>& args);
int bench_compare(const std::vector<std::string>& args);
int bench_show(const std::vector<std::string>& args);

}  // namespace triax::apps
