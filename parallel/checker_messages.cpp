// Each send has one receive, and they mean the same message.
#include <fmt/format.h>

#include <unordered_map>

#include "parallel/checker_parts.h"
#include "parallel/dependencies.h"
#include "parallel/program_print.h"

namespace triax::parallel {
namespace {

using Ends = std::unordered_map<int64_t, OpRef>;

const Op& op_at(const Program& program, OpRef ref) {
  return program.positions[static_cast<size_t>(ref.position)][static_cast<size_t>(ref.index)];
}
std::string place(const Program& program, OpRef ref) { return place_of(program, ref.position, ref.index); }

// What is wrong with a pair of equal match id, "" when nothing is.
std::string crossing(const Program& program, OpRef from, OpRef to) {
  const Op& send = op_at(program, from);
  const Op& receive = op_at(program, to);
  const int p = program.pipeline;
  if ((send.kind == OpKind::SendActivation) != (receive.kind == OpKind::RecvActivation)) {
    return "one is an activation, the other a gradient";
  }
  if ((from.position + send.peer_offset) % p != to.position) {
    return fmt::format("the send goes to position {}", (from.position + send.peer_offset) % p);
  }
  if ((to.position + receive.peer_offset) % p != from.position) {
    return fmt::format("the receive waits for position {}", (to.position + receive.peer_offset) % p);
  }
  if (send.micro_batch != receive.micro_batch) return "the micro-batches differ";
  const int step = send.kind == OpKind::SendActivation ? 1 : -1;
  if (program.layers.virtual_stage(from.position, send.chunk) + step !=
      program.layers.virtual_stage(to.position, receive.chunk)) {
    return "the virtual stages are not neighbours in that direction";
  }
  return "";
}

}  // namespace

void check_messages(const Program& program, Faults& faults) {
  Ends sends, receives;
  for (int i = 0; i < program.pipeline; ++i) {
    int index = 0;
    for (const Op& op : program.positions[static_cast<size_t>(i)]) {
      const OpRef ref{i, index++};
      if (!is_send(op.kind) && !is_receive(op.kind)) continue;
      if (op.match < 0) faults.push_back(place(program, ref) + ": the message has no match id");
      const auto [first, fresh] = (is_send(op.kind) ? sends : receives).emplace(op.match, ref);
      if (!fresh) {
        faults.push_back(fmt::format("{}: match id {} was used by {}", place(program, ref), op.match,
                                     place(program, first->second)));
      }
    }
  }
  for (int i = 0; i < program.pipeline; ++i) {
    int index = 0;
    for (const Op& op : program.positions[static_cast<size_t>(i)]) {
      const OpRef ref{i, index++};
      if (is_send(op.kind)) {
        const auto receive = receives.find(op.match);
        if (receive == receives.end()) {
          faults.push_back(fmt::format("{}: unmatched send: position {} has no receive of match id {}",
                                       place(program, ref), (i + op.peer_offset) % program.pipeline, op.match));
        } else if (const std::string what = crossing(program, ref, receive->second); !what.empty()) {
          faults.push_back(fmt::format("{} and {}: crossed message {}: {}", place(program, ref),
                                       place(program, receive->second), op.match, what));
        }
      } else if (is_receive(op.kind) && !sends.contains(op.match)) {
        faults.push_back(fmt::format("{}: unmatched receive: position {} has no send of match id {}",
                                     place(program, ref), (i + op.peer_offset) % program.pipeline, op.match));
      }
    }
  }
}

}  // namespace triax::parallel
