#include "comm/host_group.h"

#include <fmt/format.h>

namespace triax::comm {
namespace {

constexpr int kStages = 4;

}  // namespace

// A region is: the staging buffers, then (used in member 0's only) Control and the members' slots.
int64_t HostGroup::region_bytes(int members) {
  return kStages * kStageBytes + static_cast<int64_t>(sizeof(Control) + sizeof(Member) * static_cast<size_t>(members));
}

HostGroup::HostGroup(HostMemory& memory, const HostMembers& members, const GroupInfo& group, const EventWait& wait)
    : group_(&group), memory_(&memory), local_ranks_(members.local_ranks), wait_(wait) {
  for (int r = 0; r < group.size(); ++r) stages_.push_back(at(r, members.regions[static_cast<size_t>(r)]));
  std::byte* control = stages_[0] + kStages * kStageBytes;
  control_ = reinterpret_cast<Control*>(control);
  members_ = reinterpret_cast<Member*>(control + sizeof(Control));
}

void HostGroup::meet(const Announcement& mine) {
  ++sequence_;
  members_[group_->rank].slots[sequence_ & 1].announcement = mine;
  barrier();
  check_announcements();
}

void HostGroup::check_announcements() const {
  const Announcement& mine = announcement(group_->rank);
  for (int r = 0; r < group_->size(); ++r) {
    const Announcement& other = announcement(r);
    if (other.op == mine.op && other.dtype == mine.dtype && other.reduce_op == mine.reduce_op &&
        other.root == mine.root && other.count == mine.count) {
      continue;
    }
    const auto words = [](const Announcement& a) {
      return fmt::format("{} of {} {} (reduction {}, root {})", name_of(a.op), a.count, name_of(a.dtype),
                         static_cast<int>(a.reduce_op), a.root);
    };
    throw RunTimeError(fmt::format("group {} operation #{}: rank {} called {}, but rank {} called {}", group_->name,
                                   sequence_, group_->rank, words(mine), r, words(other)));
  }
}

void HostGroup::barrier() {
  members_[group_->rank].arrivals.store(++arrivals_, std::memory_order_relaxed);
  const auto target = static_cast<uint32_t>(arrivals_);  // wraps around as the word does
  if (control_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(group_->size())) {
    control_->arrived.store(0, std::memory_order_relaxed);
    control_->opened.signal();
    return;
  }
  const auto open = [&] { return control_->opened.word.load(std::memory_order_acquire) == target; };
  // No member can pass the next barrier before this rank has come to it, so the word cannot run past the target.
  if (!wait_.until(control_->opened, open)) lost();
}

void HostGroup::lost() const {
  std::vector<int> missing;
  for (int r = 0; r < group_->size(); ++r) {
    if (members_[r].arrivals.load(std::memory_order_relaxed) < arrivals_) missing.push_back(r);
  }
  throw_peer_lost(*group_, announcement(group_->rank).op, sequence_, wait_.timeout_s, missing);
}

}  // namespace triax::comm
