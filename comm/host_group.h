// The meeting place of a group whose ranks share a host: announcements, a barrier, and a staging area for each rank.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "comm/host_memory.h"
#include "comm/shared_event.h"
#include "comm/wait.h"

namespace triax::comm {

/// What a rank says before an operation. All members must say the same in the first five fields.
struct Announcement {
  Operation op = Operation::Barrier;
  DType dtype = DType::UInt8;
  ReduceOp reduce_op = ReduceOp::Sum;
  int root = 0;
  int64_t count = 0;       ///< elements, of the whole
  int64_t in_offset = -1;  ///< where its data lie in its window; -1: in ordinary memory
};

/// Which ranks of the host form a group, and where in its window each has put its region of the group.
struct HostMembers {
  std::vector<int> local_ranks;  ///< HostMemory's local rank of each member
  std::vector<int64_t> regions;  ///< offset in each member's window
};

/// All calls of a round must be made by all members in the same order. Every wait has the group's deadline.
class HostGroup {
 public:
  static constexpr int64_t kInlineBytes = 2048;               ///< data that travel with the announcement
  static constexpr int64_t kStageBytes = int64_t{256} << 10;  ///< one of the four staging buffers of a rank

  /// Bytes that a member must set aside, zeroed and 64-byte aligned, in its window.
  static int64_t region_bytes(int members);
  /// `group` must outlive this; every region must be zeroed before any member comes to life.
  HostGroup(HostMemory& memory, const HostMembers& members, const GroupInfo& group, const EventWait& wait);

  /// Publishes this rank's announcement and waits for everyone's; throws RunTimeError when they do not fit together.
  /// What was published stays readable until the next but one meeting.
  void meet(const Announcement& mine);
  /// Waits until every member has come to this point.
  void barrier();

  const Announcement& announcement(int rank) const { return slot(rank).announcement; }
  /// Data that travel with this rank's next announcement; to be filled before meet().
  std::byte* next_inline_data() { return members_[group_->rank].slots[(sequence_ + 1) & 1].data.data(); }
  const std::byte* inline_data(int rank) const { return slot(rank).data.data(); }
  /// Staging buffer of kStageBytes of a member; `which` 0..3.
  std::byte* stage(int rank, int which) const { return stages_[static_cast<size_t>(rank)] + which * kStageBytes; }
  /// Address, as seen from here, of an offset that member `rank` announced.
  std::byte* at(int rank, int64_t offset) const { return memory_->at(local_ranks_[static_cast<size_t>(rank)], offset); }
  int64_t offset_of(const void* data, int64_t bytes) const { return memory_->offset_of(data, bytes); }
  HostMemory& memory() { return *memory_; }

 private:
  struct Slot {
    Announcement announcement;
    alignas(64) std::array<std::byte, kInlineBytes> data;
  };
  struct alignas(64) Member {
    std::atomic<int64_t> arrivals;  ///< barriers this member has entered
    Slot slots[2];                  ///< of meetings with even and odd number
  };
  struct alignas(64) Control {
    SharedEvent opened;  ///< its word counts the barriers that all have reached
    alignas(64) std::atomic<uint32_t> arrived;
  };
  const Slot& slot(int rank) const { return members_[rank].slots[sequence_ & 1]; }
  void check_announcements() const;
  [[noreturn]] void lost() const;

  const GroupInfo* group_;
  HostMemory* memory_;
  std::vector<int> local_ranks_;
  EventWait wait_;
  std::vector<std::byte*> stages_;  ///< of each member
  Control* control_ = nullptr;
  Member* members_ = nullptr;
  int64_t sequence_ = 0;  ///< meetings so far
  int64_t arrivals_ = 0;  ///< barriers so far
};

}  // namespace triax::comm
