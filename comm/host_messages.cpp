#include "comm/host_messages.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/copy_bytes.h"

namespace triax::comm {

class HostMessages::Sending final : public Work::State {
 public:
  Sending(HostMessages& owner, int peer, uint64_t position, int64_t message)
      : owner_(&owner), peer_(peer), position_(position), message_(message) {}
  bool test() override { return owner_->taken(peer_, position_); }
  void wait() override {
    const bool done = owner_->wait_.until(owner_->changed(owner_->group_->rank), [this] { return test(); });
    if (!done) owner_->lost(Operation::Send, peer_, message_);
  }

 private:
  HostMessages* owner_;
  int peer_;
  uint64_t position_;
  int64_t message_;
};

class HostMessages::Receiving final : public Work::State {
 public:
  Receiving(HostMessages& owner, Tensor t, int peer, int tag, int64_t index, int64_t message)
      : owner_(&owner), tensor_(t), peer_(peer), tag_(tag), index_(index), message_(message) {}

  bool test() override {
    if (done_) return true;
    Ring& ring = owner_->ring_from(peer_);
    const uint64_t end = ring.posted.load(std::memory_order_acquire);
    uint64_t& first = owner_->first_untaken_[static_cast<size_t>(peer_)];
    for (uint64_t position = first; position < end; ++position) {
      Notice& notice = ring.at(position);
      if (notice.mark.load(std::memory_order_acquire) != Mark::Posted) continue;
      if (notice.tag != tag_ || notice.index != index_) continue;
      take(notice);
      // The sender uses a notice again only when all before it are taken, so those up to `end` are still themselves.
      while (first < end && ring.at(first).mark.load(std::memory_order_relaxed) == Mark::Taken) ++first;
      return true;
    }
    return false;
  }
  void wait() override {
    const bool done = owner_->wait_.until(owner_->changed(owner_->group_->rank), [this] { return test(); });
    if (!done) owner_->lost(Operation::Recv, peer_, message_);
  }

 private:
  void take(Notice& notice) {
    done_ = true;
    if (notice.bytes != tensor_.bytes()) {
      give_back(notice);
      throw RunTimeError(fmt::format("group {} tag {}: rank {} sent {} bytes, but rank {} expects {} ({})",
                                     owner_->group_->name, tag_, peer_, notice.bytes, owner_->group_->rank,
                                     tensor_.bytes(), tensor_.describe()));
    }
    if (notice.bytes > 0) {
      const std::byte* from = owner_->memory_->at(owner_->local_ranks_[static_cast<size_t>(peer_)], notice.offset);
      copy_bytes(static_cast<std::byte*>(tensor_.data()), from, notice.bytes);
    }
    give_back(notice);
  }
  void give_back(Notice& notice) {
    notice.mark.store(Mark::Taken, std::memory_order_release);
    owner_->changed(peer_).signal();
  }
  HostMessages* owner_;
  Tensor tensor_;
  int peer_;
  int tag_;
  int64_t index_;
  int64_t message_;
  bool done_ = false;
};

int64_t HostMessages::region_bytes(int members) {
  return static_cast<int64_t>(sizeof(Inbox) + sizeof(Ring) * static_cast<size_t>(members));
}

HostMessages::HostMessages(HostMemory& memory, const HostMembers& members, const GroupInfo& group,
                           const EventWait& wait)
    : group_(&group),
      memory_(&memory),
      local_ranks_(members.local_ranks),
      wait_(wait),
      first_untaken_(static_cast<size_t>(group.size()), 0),
      first_in_use_(static_cast<size_t>(group.size()), 0),
      copies_arena_(memory) {
  for (size_t r = 0; r < local_ranks_.size(); ++r) {
    inboxes_.push_back(reinterpret_cast<Inbox*>(memory.at(local_ranks_[r], members.regions[r])));
  }
}

Work HostMessages::send(Tensor t, int peer, int tag) {
  ensure(t.contiguous() && peer >= 0 && peer < group_->size() && tag >= 0,
         "send: contiguous tensor, peer of the group, tag >= 0");
  drop_copies();
  const uint64_t position = reserve(peer);
  int64_t offset = memory_->offset_of(t.data(), t.bytes());
  const bool copied = offset < 0 && t.bytes() > 0;
  if (copied) {
    Buffer buffer = copies_arena_.allocate(static_cast<size_t>(t.bytes()), MemoryCategory::Communication);
    copy_bytes(static_cast<std::byte*>(buffer.data()), static_cast<const std::byte*>(t.data()), t.bytes());
    offset = memory_->offset_of(buffer.data(), t.bytes());
    copies_.push_back({peer, position, std::move(buffer)});
  }
  Ring& ring = ring_to(peer);
  Notice& notice = ring.at(position);
  notice.tag = tag;
  notice.index = sent_[{peer, tag}]++;
  notice.bytes = t.bytes();
  notice.offset = offset;
  notice.mark.store(Mark::Posted, std::memory_order_release);
  ring.posted.store(position + 1, std::memory_order_release);
  changed(peer).signal();
  ++messages_;
  if (copied || t.bytes() == 0) return Work();
  return Work(std::make_unique<Sending>(*this, peer, position, messages_));
}

Work HostMessages::recv(Tensor t, int peer, int tag) {
  ensure(t.contiguous() && peer >= 0 && peer < group_->size() && tag >= 0,
         "recv: contiguous tensor, peer of the group, tag >= 0");
  const int64_t index = received_[{peer, tag}]++;
  return Work(std::make_unique<Receiving>(*this, t, peer, tag, index, ++messages_));
}

bool HostMessages::taken(int peer, uint64_t position) {
  return position < first_in_use_[static_cast<size_t>(peer)] ||
         ring_to(peer).at(position).mark.load(std::memory_order_acquire) == Mark::Taken;
}

uint64_t HostMessages::reserve(int peer) {
  Ring& ring = ring_to(peer);
  const uint64_t position = ring.posted.load(std::memory_order_relaxed);
  uint64_t& first = first_in_use_[static_cast<size_t>(peer)];
  const auto has_room = [&] {
    while (first < position && ring.at(first).mark.load(std::memory_order_acquire) == Mark::Taken) ++first;
    return position - first < kNotices;
  };
  if (!wait_.until(changed(group_->rank), has_room)) lost(Operation::Send, peer, messages_ + 1);
  return position;
}

void HostMessages::drop_copies() {
  std::erase_if(copies_, [this](const Copy& copy) { return taken(copy.peer, copy.position); });
}

void HostMessages::lost(Operation op, int peer, int64_t message) const {
  throw_peer_lost(*group_, op, message, wait_.timeout_s, {&peer, 1});
}

}  // namespace triax::comm
