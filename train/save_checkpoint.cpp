#include "train/save_checkpoint.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "io/checkpoint/index.h"
#include "train/collective_task.h"
#include "train/watched_task.h"

namespace triax::train {
namespace {

constexpr int kTag = 2;
constexpr int64_t kSlabBytes = int64_t{64} << 20;

int64_t bytes_of(const std::vector<io::Piece>& pieces) {
  int64_t bytes = 0;
  for (const io::Piece& piece : pieces) bytes += piece.bytes();
  return bytes;
}

Tensor view(std::string& text) { return Tensor(text.data(), DType::UInt8, {static_cast<int64_t>(text.size())}); }

void send_text(std::string text, comm::Communicator& all, int peer) {
  auto size = static_cast<int64_t>(text.size());
  all.send(Tensor(&size, DType::Int64, {1}), peer, kTag).wait();
  if (size > 0) all.send(view(text), peer, kTag).wait();
}

std::string receive_text(comm::Communicator& all, int peer) {
  int64_t size = 0;
  all.recv(Tensor(&size, DType::Int64, {1}), peer, kTag).wait();
  std::string text(static_cast<size_t>(size), ' ');
  if (size > 0) all.recv(view(text), peer, kTag).wait();
  return text;
}

/// Pieces without their data.
std::string announce(const std::vector<io::Piece>& pieces) {
  nlohmann::json list = nlohmann::json::array();
  for (const io::Piece& p : pieces) {
    list.push_back({p.kind, p.tensor, p.spec.global_shape, p.spec.cut_dim, p.spec.begin, p.spec.count, p.begin, p.end,
                    static_cast<int>(p.data.dtype())});
  }
  return list.dump();
}

struct Announced {
  io::Piece piece;
  DType dtype = DType::Float32;
  int64_t bytes() const { return (piece.end - piece.begin) * static_cast<int64_t>(size_of(dtype)); }
};

std::vector<Announced> parse(const std::string& text) {
  std::vector<Announced> list;
  for (const auto& entry : nlohmann::json::parse(text)) {
    Announced a;
    a.piece.kind = entry[0];
    a.piece.tensor = entry[1];
    a.piece.spec.global_shape = entry[2].get<std::vector<int64_t>>();
    a.piece.spec.cut_dim = entry[3];
    a.piece.spec.begin = entry[4];
    a.piece.spec.count = entry[5];
    a.piece.begin = entry[6];
    a.piece.end = entry[7];
    a.dtype = static_cast<DType>(entry[8].get<int>());
    list.push_back(std::move(a));
  }
  return list;
}

/// f(bytes of the piece from..to) in slabs; both sides cut alike.
template <class F>
void for_each_slab(Tensor data, F f) {
  const int64_t step = kSlabBytes / static_cast<int64_t>(size_of(data.dtype()));
  for (int64_t at = 0; at < data.numel(); at += step) f(data.range(at, std::min(at + step, data.numel())));
}

/// What a member's writer must do with an error: go on receiving, so that nobody waits for it.
class Guarded {
 public:
  template <class F>
  void run(F f) {
    if (failure_) return;
    try {
      f();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::exception_ptr failure_;
};

void receive_pieces(comm::Communicator& all, int peer, const std::vector<Announced>& list, io::ShardWriter* shard,
                    Guarded& guarded) {
  std::vector<std::byte> buffer;
  for (const Announced& a : list) {
    buffer.resize(static_cast<size_t>(a.bytes()));
    const Tensor data(buffer.data(), a.dtype, {a.piece.end - a.piece.begin});
    for_each_slab(data, [&](Tensor slab) { all.recv(slab, peer, kTag).wait(); });
    io::Piece piece = a.piece;
    piece.data = data;
    guarded.run([&] { shard->write(piece); });
  }
}

/// Writers take over the pieces of their members; returns the summary on writers, empty text elsewhere.
std::string write_aggregated(comm::Communicator& all, const SaveJob& job, const std::string& path) {
  const int me = all.rank();
  const int writer = job.writer[static_cast<size_t>(me)];
  Guarded guarded;
  std::unique_ptr<io::ShardWriter> shard;
  if (writer != me) {
    send_text(announce(job.pieces), all, writer);
    for (const io::Piece& piece : job.pieces) {
      for_each_slab(piece.data, [&](Tensor slab) { all.send(slab, writer, kTag).wait(); });
    }
  } else {
    std::map<int, std::vector<Announced>> members;
    int64_t bytes = bytes_of(job.pieces);
    for (int r = 0; r < all.size(); ++r) {
      if (r == me || job.writer[static_cast<size_t>(r)] != me) continue;
      members[r] = parse(receive_text(all, r));
      for (const Announced& a : members[r]) bytes += a.bytes();
    }
    guarded.run([&] {
      shard = std::make_unique<io::ShardWriter>(path, bytes, job.hook);
      for (const io::Piece& piece : job.pieces) shard->write(piece);
    });
    for (const auto& [peer, list] : members) receive_pieces(all, peer, list, shard.get(), guarded);
  }
  std::string summary;
  run_collectively(all, TakePart::Yes, job.patience_s, [&] {
    guarded.rethrow();
    if (shard) summary = to_json(shard->commit());
  });
  return summary;
}

std::string write_own(comm::Communicator& all, const SaveJob& job, const std::string& path) {
  std::string summary;
  run_collectively(all, TakePart::Yes, job.patience_s, [&] {
    io::ShardWriter shard(path, bytes_of(job.pieces), job.hook);
    for (const io::Piece& piece : job.pieces) shard.write(piece);
    summary = to_json(shard.commit());
  });
  return summary;
}

/// On rank 0: the shards of all writers, in their order.
std::vector<io::ShardSummary> gather_shards(comm::Communicator& all, const std::string& summary) {
  if (all.rank() != 0) {
    send_text(summary, all, 0);
    return {};
  }
  std::vector<io::ShardSummary> shards;
  for (int r = 0; r < all.size(); ++r) {
    const std::string text = r == 0 ? summary : receive_text(all, r);
    if (!text.empty()) shards.push_back(io::shard_from_json(text));
  }
  return shards;
}

void complete(const SaveJob& job, const std::string& unfinished, const std::vector<io::ShardSummary>& shards) {
  for (const io::ShardSummary& shard : shards) {
    const std::string path = unfinished + "/" + shard.file;
    if (!std::filesystem::exists(path)) {
      throw RunTimeError("--save " + job.directory + ": rank 0 does not see " + path +
                         ": the directory must be shared by all nodes");
    }
  }
  const int64_t iteration = job.header.weights.iteration;
  io::write_index(unfinished, job.header, shards, job.hook);
  io::publish_step(job.directory, iteration, job.hook);
  std::vector<int64_t> steps = io::complete_steps(job.directory);
  std::erase_if(steps, [&](int64_t step) { return step > iteration; });
  io::remove_steps(job.directory, io::expired_steps(steps, job.retention), job.hook);
}

}  // namespace

std::vector<int> choose_writers(const std::vector<int>& nodes, int per_node) {
  std::map<int, std::vector<int>> ranks;
  for (size_t r = 0; r < nodes.size(); ++r) ranks[nodes[r]].push_back(static_cast<int>(r));
  std::vector<int> writer(nodes.size());
  for (const auto& [node, members] : ranks) {
    const size_t count = members.size();
    const size_t runs = per_node == 0 ? count : std::min(static_cast<size_t>(per_node), count);
    for (size_t run = 0; run < runs; ++run) {
      const size_t begin = count * run / runs;
      for (size_t i = begin; i < count * (run + 1) / runs; ++i)
        writer[static_cast<size_t>(members[i])] = members[begin];
    }
  }
  return writer;
}

void save_checkpoint(comm::Communicator& all, const SaveJob& job) {
  const auto me = static_cast<size_t>(all.rank());
  const TakePart leader = me == 0 ? TakePart::Yes : TakePart::No;
  const int64_t iteration = job.header.weights.iteration;
  run_collectively(all, leader, job.patience_s, [&] { io::begin_step(job.directory, iteration); });
  const std::string unfinished = io::unfinished_path(job.directory, iteration);
  int shard = 0;
  bool everyone = true;
  for (size_t r = 0; r < job.writer.size(); ++r) {
    const bool writes = job.writer[r] == static_cast<int>(r);
    if (writes && r < me) ++shard;
    everyone = everyone && writes;
  }
  const std::string path = unfinished + "/" + io::shard_name(shard);
  try {
    const std::string summary = everyone ? write_own(all, job, path) : write_aggregated(all, job, path);
    const std::vector<io::ShardSummary> shards = gather_shards(all, summary);
    run_collectively(all, leader, job.patience_s, [&] { complete(job, unfinished, shards); });
  } catch (const Stalled&) {
    throw;
  } catch (const RunTimeError&) {
    // All ranks are here, so that nobody writes any more: the space is given back.
    std::error_code ignored;
    if (me == 0) std::filesystem::remove_all(unfinished, ignored);
    throw;
  }
}

}  // namespace triax::train
