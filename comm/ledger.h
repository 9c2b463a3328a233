// Counts what every communicator does: calls, payload bytes, bytes sent per rank, seconds.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace triax::comm {

enum class Operation : uint8_t {
  AllReduce,
  Reduce,
  AllGather,
  ReduceScatter,
  Broadcast,
  AllToAll,
  Send,
  Recv,
  Barrier
};
const char* name_of(Operation op);

/// Bytes counted at each send: to ranks on the sender's node, and to ranks on others.
struct SentBytes {
  int64_t inside = 0, across = 0;
  int64_t total() const { return inside + across; }
  SentBytes operator-(const SentBytes& other) const { return {inside - other.inside, across - other.across}; }
  bool operator==(const SentBytes&) const = default;
};

struct LedgerEntry {
  int64_t calls = 0;
  int64_t payload_bytes =
      0;                  ///< nccl-tests' size: all_reduce the buffer, all_gather the output, reduce_scatter the input
  double sent_bytes = 0;  ///< what one rank puts on the wire: counted at each send, else payload times the busbw factor
  int64_t converted_calls = 0;  ///< calls whose sent bytes are the payload times the busbw factor, not counted
  SentBytes counted;            ///< of the other calls
  double busy_s = 0;            ///< from start to completion
  double exposed_s = 0;         ///< time the caller stood in wait()
  double waited_s = 0;          ///< of busy_s, until the last member had come: waiting, nothing moved yet
  int64_t met_calls = 0;        ///< calls of which waited_s is known: of a device's groups, see DeviceGroups::meet
};

/// bytes one rank sends for a payload in a group of n: all_reduce 2(n-1)/n, all_gather, reduce_scatter, all_to_all
/// (n-1)/n, reduce, broadcast and send 1, recv and barrier 0.
double sent_bytes(Operation op, int64_t payload_bytes, int group_size);

/// Thread-safe. Keys are (group name, operation).
class Ledger {
 public:
  using Key = std::pair<std::string, Operation>;
  /// Sent bytes converted from the payload.
  void record(const std::string& group, Operation op, int64_t payload_bytes, double sent, double busy_s);
  /// Sent bytes counted at each send.
  void record_counted(const std::string& group, Operation op, int64_t payload_bytes, const SentBytes& sent,
                      double busy_s);
  /// Seconds of an operation that was recorded before it was done, with the label() of then.
  void record_seconds(const std::string& group, Operation op, const char* label, double busy_s, double exposed_s);
  /// When the last member came to it, after this one.
  void record_waited(const std::string& group, Operation op, const char* label, double waited_s);
  void record_exposed(const std::string& group, Operation op, double exposed_s);
  std::map<Key, LedgerEntry> snapshot() const;
  /// Calls on the group "tp" are also counted under this label until the next one: the kind of layer that made them.
  /// `label` must live as long as the ledger.
  void set_label(const char* label);
  /// Null: none.
  const char* label() const;
  /// By (label, operation).
  std::map<Key, LedgerEntry> labelled() const;
  double total_sent_bytes() const;
  /// Over all groups, of the counted calls.
  SentBytes total_counted() const;
  double total_exposed_s(const std::string& group) const;
  void reset();

 private:
  mutable std::mutex mutex_;
  /// Of the label, when the group has one.
  LedgerEntry* labelled_entry(const std::string& group, Operation op, const char* label);
  const char* label_ = nullptr;
  std::map<Key, LedgerEntry> entries_, labelled_;
};

}  // namespace triax::comm
