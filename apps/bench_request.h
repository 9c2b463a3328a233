// What the measurements of `triax bench` are asked beside the options of a model and a layout.
#pragma once

#include <string>
#include <vector>

#include "apps/entry_makers.h"
#include "comm/mpi_session.h"
#include "io/options/options.h"

namespace triax::apps {

struct KernelRequest {
  io::RunOptions options;
  std::vector<DType> dtypes;
  Format format = Format::Table;
  int64_t rounds = 5;
  std::string help;  ///< not empty: to be printed, nothing else is asked

  bool has_model() const { return options.model.num_layers > 0; }
  int64_t micro_batch() const { return options.batch.micro_batch_size > 0 ? options.batch.micro_batch_size : 1; }
};

/// "--dtypes fp32,bf16": returns a fault, empty when fine.
std::string take_dtypes(const std::string& text, std::vector<DType>& dtypes);
/// "256K" with K, M, G powers of 1024; a fault, empty when fine.
std::string take_bytes(const std::string& text, int64_t& bytes);
/// "4K,1M", multiples of 4; a fault, empty when fine.
std::string take_byte_list(const std::string& text, std::vector<int64_t>& sizes);

/// --nodes N: refuse to measure unless the ranks stand on that many nodes.
io::OptionEntry nodes_entry(int64_t& nodes);
/// Refuses figures that would be called what they are not: ConfigError where the ranks are not on `nodes` nodes (0: any
/// number is right). Collective.
void check_nodes(comm::MpiSession& session, const std::string& what, int64_t nodes);

/// On what `triax bench WHAT` measures: the CPU alone, or the device of --device.
enum class BenchDevice { Cpu, Any };

/// Throws ConfigError for options of GPUs on a CPU, and for those that no benchmark has.
void refuse_gpu_options(const std::string& what, const io::RunControl& control);
/// Options of `triax bench WHAT`: those of the table, --dtypes (default: the run's precision), --rounds, --format, and
/// `extra`. Throws ConfigError.
KernelRequest parse_kernels(const std::string& what, const std::vector<std::string>& args,
                            const std::vector<io::OptionEntry>& extra = {}, BenchDevice on = BenchDevice::Cpu);

}  // namespace triax::apps
