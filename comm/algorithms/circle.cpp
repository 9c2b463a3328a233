#include "comm/algorithms/circle.h"

namespace triax::comm {
namespace {

const Block& block_of(const Circle& circle, int index) {
  const int n = circle.size();
  return circle.blocks[static_cast<size_t>((index % n + n) % n)];
}

int member_of(const Circle& circle, int index) {
  const int n = circle.size();
  return circle.members[static_cast<size_t>((index % n + n) % n)];
}

/// Blocks first, first + 1, ..., first + count - 1 around the circle.
std::vector<const Block*> blocks_from(const Circle& circle, int first, int count) {
  std::vector<const Block*> blocks;
  for (int i = 0; i < count; ++i) blocks.push_back(&block_of(circle, first + i));
  return blocks;
}

}  // namespace

void add_transfers(Plan& plan, TransferKind kind, int peer, int tag, const std::vector<const Block*>& blocks) {
  const size_t first = plan.size();
  for (const Block* block : blocks) {
    for (const Slice& slice : *block) {
      if (slice.size() == 0) continue;
      if (plan.size() > first && plan.back().end == slice.begin) {
        plan.back().end = slice.end;
      } else {
        plan.push_back({kind, peer, tag, slice.begin, slice.end});
      }
    }
  }
}

void ring_reduce_scatter(const Circle& circle, Plan& plan) {
  const int right = member_of(circle, circle.me + 1);
  const int left = member_of(circle, circle.me - 1);
  for (int step = 1; step < circle.size(); ++step) {
    add_transfers(plan, TransferKind::Send, right, 0, {&block_of(circle, circle.me - step)});
    add_transfers(plan, TransferKind::RecvSum, left, 0, {&block_of(circle, circle.me - step - 1)});
  }
}

void ring_all_gather(const Circle& circle, Plan& plan) {
  const int right = member_of(circle, circle.me + 1);
  const int left = member_of(circle, circle.me - 1);
  for (int step = 0; step + 1 < circle.size(); ++step) {
    add_transfers(plan, TransferKind::Send, right, 0, {&block_of(circle, circle.me - step)});
    add_transfers(plan, TransferKind::RecvCopy, left, 0, {&block_of(circle, circle.me - step - 1)});
  }
}

void halving_reduce_scatter(const Circle& circle, Plan& plan) {
  for (int left = circle.size(); left > 1;) {
    const int kept = (left + 1) / 2;
    const int to = circle.me + kept;
    const int from = circle.me - kept;
    add_transfers(plan, TransferKind::Send, member_of(circle, to), 0, blocks_from(circle, to, left - kept));
    add_transfers(plan, TransferKind::RecvSum, member_of(circle, from), 0, blocks_from(circle, circle.me, left - kept));
    left = kept;
  }
}

void doubling_all_gather(const Circle& circle, Plan& plan) {
  std::vector<int> counts;  // of blocks left, as halving_reduce_scatter goes through them
  for (int left = circle.size(); left > 1; left = (left + 1) / 2) counts.push_back(left);
  for (size_t i = counts.size(); i-- > 0;) {
    const int kept = (counts[i] + 1) / 2;
    const int gained = counts[i] - kept;
    const int to = circle.me - kept;
    const int from = circle.me + kept;
    add_transfers(plan, TransferKind::Send, member_of(circle, to), 0, blocks_from(circle, circle.me, gained));
    add_transfers(plan, TransferKind::RecvCopy, member_of(circle, from), 0, blocks_from(circle, from, gained));
  }
}

void ordered_reduce_scatter(const Circle& circle, Plan& plan) {
  const int n = circle.size();
  for (int i = 1; i < n; ++i) {
    const int to = circle.me + i;
    for (const Slice& slice : block_of(circle, to)) {
      const Block one{slice};
      add_transfers(plan, TransferKind::Send, member_of(circle, to), 0, {&one});
    }
  }
  for (const Slice& slice : block_of(circle, circle.me)) {
    if (slice.size() == 0) continue;
    const Block one{slice};
    for (int i = 1; i < n; ++i) {
      add_transfers(plan, TransferKind::RecvInput, member_of(circle, circle.me - i), 0, {&one});
    }
    plan.push_back({TransferKind::SumInputs, -1, 0, slice.begin, slice.end});
  }
}

}  // namespace triax::comm
