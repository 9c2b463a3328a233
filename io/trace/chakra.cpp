#include "io/trace/chakra.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace triax::io {
namespace {

// Fields of the schema that are used here.
constexpr uint32_t kSchemaVersion = 1, kId = 1, kName = 2, kType = 3, kDataDependencies = 5, kDuration = 7,
                   kAttribute = 10;
constexpr uint32_t kAttributeName = 1, kInt32 = 7, kInt64 = 9, kUint64 = 13, kBool = 27, kString = 29;
constexpr const char* kChakraSchema = "0.0.4";
enum WireType : uint32_t { Varint = 0, Length = 2 };

class Message {
 public:
  void number(uint32_t field, uint64_t value) {
    varint(field << 3 | Varint);
    varint(value);
  }
  void text(uint32_t field, std::string_view value) {
    varint(field << 3 | Length);
    varint(value.size());
    bytes_ += value;
  }
  void packed(uint32_t field, const std::vector<uint64_t>& values) {
    if (values.empty()) return;
    Message list;
    for (const uint64_t value : values) list.varint(value);
    text(field, list.bytes_);
  }
  void attribute(const char* name, uint32_t kind, uint64_t value) {
    Message inside;
    inside.text(kAttributeName, name);
    inside.number(kind, value);
    text(kAttribute, inside.bytes_);
  }
  void attribute(const char* name, const std::string& value) {
    Message inside;
    inside.text(kAttributeName, name);
    inside.text(kString, value);
    text(kAttribute, inside.bytes_);
  }
  void append_to(std::string& file) const {
    Message length;
    length.varint(bytes_.size());
    file += length.bytes_;
    file += bytes_;
  }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

Message message_of(int rank, const ChakraNode& node) {
  Message m;
  m.number(kId, node.id);
  m.text(kName, node.name);
  m.number(kType, static_cast<uint64_t>(node.type));
  m.packed(kDataDependencies, node.depends);
  if (node.duration_us > 0) m.number(kDuration, node.duration_us);
  m.attribute("is_cpu_op", kBool, 0);
  switch (node.type) {
    case ChakraType::Compute:
      m.attribute("num_ops", kInt64, node.num_ops);
      m.attribute("tensor_size", kUint64, static_cast<uint64_t>(node.bytes));
      break;
    case ChakraType::Collective:
      m.attribute("comm_type", kInt64, static_cast<uint64_t>(node.collective));
      m.attribute("comm_size", kInt64, static_cast<uint64_t>(node.bytes));
      m.attribute("pg_name", node.group);
      break;
    default: {
      const bool send = node.type == ChakraType::Send;
      m.attribute("comm_size", kInt64, static_cast<uint64_t>(node.bytes));
      m.attribute("comm_src", kInt32, static_cast<uint64_t>(send ? rank : node.peer));
      m.attribute("comm_dst", kInt32, static_cast<uint64_t>(send ? node.peer : rank));
      m.attribute("comm_tag", kInt32, static_cast<uint64_t>(node.tag));
    }
  }
  return m;
}

class ChakraReader {
 public:
  ChakraReader(std::string_view bytes, const std::string& name) : rest_(bytes), name_(&name) {}
  bool done() const { return rest_.empty(); }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) fail();
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    fail();
  }
  std::string_view text() {
    const uint64_t length = varint();
    if (length > rest_.size()) fail();
    const std::string_view value = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return value;
  }
  [[noreturn]] void fail() const { throw RunTimeError(*name_ + ": is no Chakra execution trace, or is cut short"); }

 private:
  std::string_view rest_;
  const std::string* name_;
};

struct Attribute {
  std::string name, text;
  uint64_t number = 0;
};

Attribute attribute_of(std::string_view bytes, const std::string& name) {
  Attribute a;
  for (ChakraReader reader(bytes, name); !reader.done();) {
    const uint64_t key = reader.varint();
    if ((key & 7) == Varint) {
      a.number = reader.varint();
    } else if ((key & 7) == Length) {
      ((key >> 3) == kAttributeName ? a.name : a.text) = std::string(reader.text());
    } else {
      reader.fail();
    }
  }
  return a;
}

void take(const Attribute& a, ChakraNode& node) {
  if (a.name == "num_ops") node.num_ops = a.number;
  if (a.name == "tensor_size" || a.name == "comm_size") node.bytes = static_cast<int64_t>(a.number);
  if (a.name == "comm_type") node.collective = static_cast<ChakraCollective>(a.number);
  if (a.name == "pg_name") node.group = a.text;
  if (a.name == "comm_tag") node.tag = static_cast<int32_t>(a.number);
  if ((a.name == "comm_dst" && node.type == ChakraType::Send) ||
      (a.name == "comm_src" && node.type == ChakraType::Receive)) {
    node.peer = static_cast<int32_t>(a.number);
  }
}

ChakraNode node_of(std::string_view bytes, const std::string& name) {
  ChakraNode node;
  for (ChakraReader reader(bytes, name); !reader.done();) {
    const uint64_t key = reader.varint();
    const auto field = static_cast<uint32_t>(key >> 3);
    if ((key & 7) == Varint) {
      const uint64_t value = reader.varint();
      if (field == kId) node.id = value;
      if (field == kType) node.type = static_cast<ChakraType>(value);
      if (field == kDuration) node.duration_us = value;
    } else if ((key & 7) == Length) {
      const std::string_view inside = reader.text();
      if (field == kName) node.name = std::string(inside);
      if (field == kDataDependencies) {
        for (ChakraReader list(inside, name); !list.done();) node.depends.push_back(list.varint());
      }
      if (field == kAttribute) take(attribute_of(inside, name), node);
    } else {
      reader.fail();
    }
  }
  return node;
}

}  // namespace

std::string chakra_trace(int rank, const std::vector<ChakraNode>& nodes) {
  std::string file;
  Message metadata;
  metadata.text(kSchemaVersion, kChakraSchema);
  metadata.append_to(file);
  for (const ChakraNode& node : nodes) message_of(rank, node).append_to(file);
  return file;
}

std::vector<ChakraNode> parse_chakra_trace(std::string_view bytes, const std::string& name) {
  ChakraReader reader(bytes, name);
  ChakraReader metadata(reader.text(), name);
  if (metadata.varint() != (kSchemaVersion << 3 | Length) || metadata.text() != kChakraSchema) reader.fail();
  std::vector<ChakraNode> nodes;
  while (!reader.done()) nodes.push_back(node_of(reader.text(), name));
  return nodes;
}

std::string chakra_groups(const std::map<std::string, std::vector<int>>& groups) {
  std::string text = "{";
  for (const auto& [name, ranks] : groups) {
    text += fmt::format("{}\n  \"{}\": [{}]", text.size() > 1 ? "," : "", name, fmt::join(ranks, ", "));
  }
  return text + "\n}\n";
}

}  // namespace triax::io
