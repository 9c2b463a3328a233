// What a machine can do, in numbers that say where they come from: hw.json. `triax bench all` writes one by measuring;
// presets hold published figures; the cost model (plan/) reads nothing else about a machine.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "comm/ledger.h"

namespace triax::bench {

/// Where a number comes from. What is assumed is said wherever it decides something.
enum class Origin { Measured, Fitted, Published, Assumed };

struct Constant {
  double value = 0;
  Origin origin = Origin::Assumed;
  std::string source;  ///< command, citation, or what it was fitted on
};
inline Constant assumed(double value, const char* why) { return {value, Origin::Assumed, why}; }

/// Orientation of C[m,n] = A B as a linear layer uses it: forward X W^T (TN), gradient of the input dY W (NN), gradient
/// of the weight dY^T X (NT, summed into C when accumulating).
enum class GemmLayout { TN, NN, NT };

struct GemmPoint {
  DType dtype = DType::Float32;
  GemmLayout layout = GemmLayout::TN;
  bool accumulate = false;
  int64_t m = 0, n = 0, k = 0;
  double time_s = 0;
};

/// Time of one collective of a group: `ranks` ranks over `nodes` nodes. `bytes` is nccl-tests' size; of
/// AllToAll the whole buffer of a rank; of Send the message, from its start to its arrival.
struct CollectivePoint {
  comm::Operation operation = comm::Operation::AllReduce;
  int ranks = 0;
  int nodes = 1;
  int64_t bytes = 0;
  double time_s = 0;
  DType dtype = DType::Float32;  ///< of the elements: sums cost the more the more of them there are
};

/// Time of one call of a kernel of kernels::Device at one size, with as many processes doing the same as the node has
/// devices (cores of the CPU share memory and clock). Times between points go with rows * cols.
/// [rows, cols] = [T, h]: layer_norm_forward, layer_norm_backward, rms_norm_forward, rms_norm_backward; residual (bias,
///   no dropout, add), residual_backward (with dbias), the same with dropout: dropout, dropout_backward; bias_backward;
///   rotary (one call over cols = heads * d); embedding_forward, embedding_backward.
/// [T, f] (f one half of a gated pair): gelu_forward, gelu_backward, swiglu_forward, swiglu_backward.
/// [T, V]: cross_entropy (maximum, sums and loss), cross_entropy_backward.
/// [s * s, d] for s positions, time of one head of one sample, causal: attention_forward, attention_backward; the same
/// with dropout:
///   attention_dropout_forward, attention_dropout_backward.
/// [1, n]: adamw (with the 16-bit copy unless fp32 or fp64), sgd, sum_of_squares and fill of gradients (fp32, or fp64
///   under fp64); copy, add, scale.
struct KernelPoint {
  std::string kernel;
  DType dtype = DType::Float32;  ///< of activations; of adamw and sgd of the parameter
  int64_t rows = 0;
  int64_t cols = 0;
  double time_s = 0;
};

/// One level of the hierarchy, from the innermost: ranks within one domain of it talk over this link.
struct Link {
  std::string name;           ///< "nvlink", "pcie", "shared-memory", "infiniband"
  int ranks = 1;              ///< devices in one domain of this level (8 of an NVLink node); 0: the whole cluster
  Constant latency_s;         ///< one hop
  Constant bytes_per_s;       ///< of one device, one direction, large messages, when it has the link alone
  Constant ports_per_domain;  ///< ports of the domain below that share this level (NICs of a node); 0: one per device
  Constant contention;        ///< share of compute speed that a transfer takes while both run, 0..1
};

/// One kind of op whose time is a throughput: `per_s` (FLOP/s or bytes/s) past a start-up of `floor_s`.
struct Throughput {
  Constant per_s;
  Constant floor_s;
};

struct Hardware {
  std::string name;
  std::string description;  ///< "published, unmeasured", or what was measured and when
  std::string device;       ///< "cpu", "cuda"
  int devices_per_node = 1;
  Constant memory_bytes;                 ///< of one device
  Constant memory_bytes_per_s;           ///< copy: bytes read plus bytes written
  std::map<DType, Constant> peak_flops;  ///< of one device, dense
  std::vector<GemmPoint> gemms;
  std::vector<KernelPoint> kernel_points;
  std::vector<CollectivePoint> collectives;
  std::vector<Link> links;
  /// By name: "gemm", "attention", "attention_backward", "norm", "activation", "adamw", "copy", "cross_entropy", ...
  std::map<std::string, Throughput> kernels;
  /// Everything else that the cost model takes from the machine, by name (plan/ documents each).
  std::map<std::string, Constant> constants;
  std::map<std::string, std::string> environment;  ///< cores, threads, libraries, date: what the figures hold for
};

/// "measured", "fitted", "published", "assumed".
const char* name_of(Origin origin);
/// "TN", "NN", "NT".
const char* name_of(GemmLayout layout);

/// hw.json (schema "triax-hw/1"); unknown keys are refused by name, missing ones too. ConfigError names file and key.
/// Doubles read back to the same bits. A number that is not finite is refused on both ways.
std::string to_json(const Hardware& hardware);
Hardware hardware_from_json(const std::string& text, const std::string& where);

}  // namespace triax::bench
