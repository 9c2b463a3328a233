#include "train/staging.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <unordered_set>
#include <vector>

#include "base/error.h"

namespace triax::train {
namespace {

using parallel::Op;
using parallel::OpKind;

/// One position's way through its list.
struct Position {
  size_t next = 0;
  std::array<std::vector<int64_t>, 2> sent;  ///< matches per direction, in order
  std::vector<int64_t> receives;             ///< matches in order
  size_t posted = 0;                         ///< of receives
};

/// The executor's rules without time: does the program end with `staged` buffers?
class StagingRehearsal {
 public:
  StagingRehearsal(const parallel::Program& program, ReceiveAhead ahead, size_t staged)
      : program_(program), ahead_(ahead), staged_(staged), positions_(program.positions.size()) {
    for (size_t i = 0; i < positions_.size(); ++i) {
      for (const Op& op : program.positions[i]) {
        if (is_receive(op.kind)) positions_[i].receives.push_back(op.match);
      }
      if (ahead == ReceiveAhead::OneAhead) post(positions_[i]);
    }
  }

  bool ends() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t i = 0; i < positions_.size(); ++i) {
        while (advance(i)) moved = true;
      }
    }
    for (size_t i = 0; i < positions_.size(); ++i) {
      if (positions_[i].next != program_.positions[i].size()) return false;
    }
    return true;
  }

 private:
  void post(Position& p) {
    if (p.posted < p.receives.size()) posted_.insert(p.receives[p.posted++]);
  }

  bool advance(size_t i) {
    Position& p = positions_[i];
    if (p.next == program_.positions[i].size()) return false;
    const Op& op = program_.positions[i][p.next];
    if (is_receive(op.kind)) {
      if (!posted_.contains(op.match)) post(p);
      if (!sent_.contains(op.match)) return false;
      if (ahead_ == ReceiveAhead::OneAhead) post(p);
    } else if (is_send(op.kind)) {
      auto& sent = p.sent[op.kind == OpKind::SendActivation ? 0 : 1];
      if (sent.size() >= staged_ && !posted_.contains(sent[sent.size() - staged_])) return false;
      sent.push_back(op.match);
      sent_.insert(op.match);
    }
    ++p.next;
    return true;
  }

  const parallel::Program& program_;
  ReceiveAhead ahead_;
  size_t staged_;
  std::vector<Position> positions_;
  std::unordered_set<int64_t> sent_, posted_;
};

}  // namespace

int staging_buffers(const parallel::Program& program, ReceiveAhead ahead) {
  const int most = std::max(2, program.chunks * program.num_micro_batches);
  for (int staged = 2; staged <= most; ++staged) {
    if (StagingRehearsal(program, ahead, static_cast<size_t>(staged)).ends()) return staged;
  }
  return 0;
}

std::string lane_fault(const parallel::Program& program) {
  const int p = program.pipeline;
  // Matches by (from, to, gradients), in the order of either side.
  std::map<std::array<int, 3>, std::vector<int64_t>> sent, received;
  for (int i = 0; i < p; ++i) {
    for (const Op& op : program.positions[static_cast<size_t>(i)]) {
      if (!is_send(op.kind) && !is_receive(op.kind)) continue;
      const int peer = (i + op.peer_offset) % p;
      if (peer != (i + 1) % p && peer != (i + p - 1) % p) {
        return fmt::format("positions {} and {} are not neighbours", i, peer);
      }
      const int gradient = op.kind == OpKind::SendGradient || op.kind == OpKind::RecvGradient ? 1 : 0;
      (is_send(op.kind) ? sent[{i, peer, gradient}] : received[{peer, i, gradient}]).push_back(op.match);
    }
  }
  for (const auto& [lane, matches] : sent) {
    if (received[lane] == matches) continue;
    return fmt::format("position {} takes {} of position {} in another order than they are sent in", lane[1],
                       lane[2] != 0 ? "gradients" : "activations", lane[0]);
  }
  return {};
}

void check_lanes(const parallel::Program& program, const std::string& device) {
  const std::string fault = lane_fault(program);
  if (fault.empty()) return;
  throw ConfigError(fmt::format("--device {}: pipeline schedule {}: {}; use --device cpu, or another schedule", device,
                                program.schedule, fault));
}

}  // namespace triax::train
