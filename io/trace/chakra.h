// Chakra execution traces (schema 0.0.4, Sridharan et al. 2023, arXiv 2305.14516): one file per rank of nodes with
// dependencies, which ASTRA-sim replays on a network of its own. Protobuf messages, each behind its length.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace triax::io {

/// Values of the schema.
enum class ChakraType { Compute = 4, Send = 5, Receive = 6, Collective = 7 };
enum class ChakraCollective { AllReduce = 0, AllGather = 2, ReduceScatter = 7 };

struct ChakraNode {
  uint64_t id = 0;
  std::string name;
  ChakraType type = ChakraType::Compute;
  std::vector<uint64_t> depends;  ///< on these nodes' ends
  uint64_t duration_us = 0;       ///< Compute
  uint64_t num_ops = 0;           ///< Compute: floating-point operations
  int64_t bytes = 0;              ///< of the message; of a collective as nccl-tests counts them
  int32_t peer = 0;               ///< Send: to, Receive: from (world rank)
  int32_t tag = 0;                ///< the same on both sides
  ChakraCollective collective = ChakraCollective::AllReduce;
  std::string group;  ///< name in the group file
  bool operator==(const ChakraNode&) const = default;
};

/// The file of `rank`: a GlobalMetadata message and its nodes.
std::string chakra_trace(int rank, const std::vector<ChakraNode>& nodes);
/// Reads such a file back; throws RunTimeError naming `name` for bytes that are none.
std::vector<ChakraNode> parse_chakra_trace(std::string_view bytes, const std::string& name);

/// comm_group.json: world ranks of each group by name.
std::string chakra_groups(const std::map<std::string, std::vector<int>>& groups);

}  // namespace triax::io
