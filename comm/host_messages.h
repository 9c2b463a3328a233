// send and recv between ranks of one host: the receiver copies straight from the sender's memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "comm/host_group.h"

namespace triax::comm {

/// Every ordered pair of members has a ring of notices. A notice says where the message lies in the sender's window (a
/// message from ordinary memory is copied there first, and its send is complete at once); the receiver takes it over in
/// test() or wait(). Messages match by (tag, order of the calls), whatever the order of the waits.
class HostMessages {
 public:
  static constexpr uint64_t kNotices = 1024;  ///< messages of a pair in flight; one more send waits for room

  /// As HostGroup's.
  static int64_t region_bytes(int members);
  HostMessages(HostMemory& memory, const HostMembers& members, const GroupInfo& group, const EventWait& wait);
  HostMessages(const HostMessages&) = delete;
  HostMessages& operator=(const HostMessages&) = delete;

  Work send(Tensor t, int peer, int tag);
  Work recv(Tensor t, int peer, int tag);

 private:
  enum class Mark : uint32_t { Empty, Posted, Taken };
  struct alignas(64) Notice {
    std::atomic<Mark> mark;
    int32_t tag;
    int64_t index;  ///< of this tag's messages
    int64_t bytes;
    int64_t offset;
  };
  struct alignas(64) Ring {
    std::atomic<uint64_t> posted;  ///< notices so far
    Notice notices[kNotices];
    Notice& at(uint64_t position) { return notices[position % kNotices]; }
  };
  struct alignas(64) Inbox {
    SharedEvent changed;  ///< a message came, or one that this member sent was taken
    Ring& ring(int sender) { return reinterpret_cast<Ring*>(this + 1)[sender]; }
  };
  /// A copy of a message from ordinary memory, kept until it is taken.
  struct Copy {
    int peer;
    uint64_t position;
    Buffer buffer;
  };
  class Sending;
  class Receiving;

  Ring& ring_to(int peer) { return inboxes_[static_cast<size_t>(peer)]->ring(group_->rank); }
  Ring& ring_from(int peer) { return inboxes_[static_cast<size_t>(group_->rank)]->ring(peer); }
  SharedEvent& changed(int rank) { return inboxes_[static_cast<size_t>(rank)]->changed; }
  bool taken(int peer, uint64_t position);
  /// Position of the next notice to `peer`; waits until there is room.
  uint64_t reserve(int peer);
  /// Frees the copies that were taken.
  void drop_copies();
  [[noreturn]] void lost(Operation op, int peer, int64_t message) const;

  const GroupInfo* group_;
  HostMemory* memory_;
  std::vector<int> local_ranks_;
  EventWait wait_;
  std::vector<Inbox*> inboxes_;                             ///< of each member
  std::vector<uint64_t> first_untaken_;                     ///< of the ring from each member
  std::vector<uint64_t> first_in_use_;                      ///< of the ring to each member
  std::map<std::pair<int, int>, int64_t> sent_, received_;  ///< messages by (peer, tag)
  Arena copies_arena_;
  std::vector<Copy> copies_;
  int64_t messages_ = 0;
};

}  // namespace triax::comm
