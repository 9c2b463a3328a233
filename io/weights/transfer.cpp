#include "io/weights/transfer.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"

namespace triax::io {
namespace {

constexpr int64_t kSlabBytes = int64_t{64} << 20;
constexpr int kWeightsTag = 1;

struct WeightsPiece {
  std::string name;
  parallel::ShardSpec spec;
};

bool writes(const parallel::Parameter& p, const comm::ProcessGrid& grid) {
  return grid.coord().data == 0 && p.spec.replica == 0 && !p.tied_copy && p.true_numel() > 0;
}

/// What a rank will send, in the order of its store, as JSON text.
std::string announce(const parallel::ParameterStore& store, const comm::ProcessGrid& grid) {
  nlohmann::json list = nlohmann::json::array();
  for (const parallel::Parameter& p : store.parameters()) {
    if (!writes(p, grid)) continue;
    list.push_back({p.name, p.spec.global_shape, p.spec.cut_dim, p.spec.begin, p.spec.count});
  }
  return list.dump();
}

std::vector<WeightsPiece> parse(const std::string& text) {
  std::vector<WeightsPiece> pieces;
  for (const auto& entry : nlohmann::json::parse(text)) {
    WeightsPiece piece;
    piece.name = entry[0].get<std::string>();
    piece.spec.global_shape = entry[1].get<std::vector<int64_t>>();
    piece.spec.cut_dim = entry[2].get<int>();
    piece.spec.begin = entry[3].get<int64_t>();
    piece.spec.count = entry[4].get<int64_t>();
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

Tensor bytes_of(std::string& text) { return Tensor(text.data(), DType::UInt8, {static_cast<int64_t>(text.size())}); }

void send_announcement(std::string text, comm::Communicator& world) {
  auto size = static_cast<int64_t>(text.size());
  world.send(Tensor(&size, DType::Int64, {1}), 0, kWeightsTag).wait();
  world.send(bytes_of(text), 0, kWeightsTag).wait();
}

std::string receive_announcement(int rank, comm::Communicator& world) {
  int64_t size = 0;
  world.recv(Tensor(&size, DType::Int64, {1}), rank, kWeightsTag).wait();
  std::string text(static_cast<size_t>(size), ' ');
  world.recv(bytes_of(text), rank, kWeightsTag).wait();
  return text;
}

void send_shards(const parallel::ParameterStore& store, comm::ProcessGrid& grid) {
  for (const parallel::Parameter& p : store.parameters()) {
    if (!writes(p, grid)) continue;
    int64_t done = 0;
    for (const Slab& slab : slabs_of(p.spec, p.weight.dtype(), kSlabBytes)) {
      const int64_t numel = numel_of(slab, p.spec.global_shape);
      grid.world().send(p.weight.flat().range(done, done + numel), 0, kWeightsTag).wait();
      done += numel;
    }
  }
}

void write_own(WeightsWriter& writer, const parallel::ParameterStore& store, comm::ProcessGrid& grid) {
  for (const parallel::Parameter& p : store.parameters()) {
    if (!writes(p, grid)) continue;
    int64_t done = 0;
    for (const Slab& slab : slabs_of(p.spec, p.weight.dtype(), kSlabBytes)) {
      const int64_t numel = numel_of(slab, p.spec.global_shape);
      writer.write(p.name, slab, p.weight.flat().range(done, done + numel));
      done += numel;
    }
  }
}

void write_received(WeightsWriter& writer, const std::vector<WeightsPiece>& pieces, int rank, DType dtype,
                    comm::Communicator& world) {
  std::vector<std::byte> buffer;
  for (const WeightsPiece& piece : pieces) {
    for (const Slab& slab : slabs_of(piece.spec, dtype, kSlabBytes)) {
      const int64_t numel = numel_of(slab, piece.spec.global_shape);
      buffer.resize(static_cast<size_t>(numel) * size_of(dtype));
      const Tensor values(buffer.data(), dtype, {numel});
      world.recv(values, rank, kWeightsTag).wait();
      writer.write(piece.name, slab, values);
    }
  }
}

void collect(const std::string& path, const WeightsHeader& header, const parallel::ParameterStore& store,
             comm::ProcessGrid& grid) {
  comm::Communicator& world = grid.world();
  std::vector<std::vector<WeightsPiece>> pieces;
  for (int rank = 0; rank < world.size(); ++rank) {
    pieces.push_back(parse(rank == 0 ? announce(store, grid) : receive_announcement(rank, world)));
  }
  WeightsWriter writer(path, header);
  std::map<std::string, bool> created;
  for (const auto& of_rank : pieces) {
    for (const WeightsPiece& piece : of_rank) {
      if (created.emplace(piece.name, true).second) writer.create(piece.name, piece.spec.global_shape);
    }
  }
  write_own(writer, store, grid);
  for (int rank = 1; rank < world.size(); ++rank) {
    write_received(writer, pieces[static_cast<size_t>(rank)], rank, header.dtype, world);
  }
  writer.commit();
}

}  // namespace

std::string weights_path(const std::string& directory) { return directory + "/weights.h5"; }

void save_weights(const std::string& path, const WeightsHeader& header, const parallel::ParameterStore& store,
                  comm::ProcessGrid& grid) {
  ensure(header.dtype == store.weight_dtype(), "save_weights: the header's dtype is not the store's");
  if (grid.world_rank() == 0) {
    collect(path, header, store, grid);
  } else {
    send_announcement(announce(store, grid), grid.world());
    send_shards(store, grid);
  }
  grid.world().barrier();
}

void load_weights(const WeightsReader& file, const parallel::ParameterStore& store, Tensor values) {
  ensure(values.numel() == store.numel(), "load_weights: values must be as long as the store");
  for (const parallel::Parameter& p : store.parameters()) {
    if (p.true_numel() > 0) file.read(p, values.range(p.offset, p.offset + p.true_numel()));
  }
}

}  // namespace triax::io
