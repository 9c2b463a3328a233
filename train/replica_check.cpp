#include "train/replica_check.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/philox.h"

namespace triax::train {
namespace {

/// One of a rank's arrays: what it holds of the flat elements, range by range.
struct NamedArray {
  const char* name;
  std::vector<FlatRange> held;
  std::vector<Tensor> memory;  // of each range
  bool sharded;                // held differs between the ranks of a shard group
};

std::vector<NamedArray> arrays_of(const parallel::ParameterStore& store, const Optimizer* optimizer) {
  NamedArray weights{"weight", store.held().weights, {}, false};
  for (const FlatRange& range : weights.held) weights.memory.push_back(store.weight(range));
  const auto whole = [&](const NamedArray& array) {
    return array.held.size() == 1 && array.held[0] == FlatRange{0, store.numel()};
  };
  weights.sharded = !whole(weights);
  std::vector<NamedArray> arrays{weights};
  if (optimizer == nullptr) return arrays;
  using Part = Tensor (Optimizer::*)(size_t) const;
  for (const auto& [name, part] : {std::pair<const char*, Part>{"master weight", &Optimizer::master},
                                   {"first moment", &Optimizer::exp_avg},
                                   {"second moment", &Optimizer::exp_avg_sq},
                                   {"momentum", &Optimizer::momentum}}) {
    if (!(optimizer->*part)(0)) continue;
    NamedArray array{name, {optimizer->owned().begin(), optimizer->owned().end()}, {}, false};
    for (size_t i = 0; i < array.held.size(); ++i) array.memory.push_back((optimizer->*part)(i));
    array.sharded = !whole(array);
    arrays.push_back(array);
  }
  return arrays;
}

/// Of what the rank holds of the parameter's true elements.
uint64_t hash_of(const NamedArray& array, const parallel::Parameter& p, kernels::Device& device) {
  uint64_t hash = 0;
  std::vector<std::byte> host(device.on_host() ? 0 : static_cast<size_t>(p.numel) * sizeof(double));
  for (size_t i = 0; i < array.held.size(); ++i) {
    const FlatRange part = parallel::intersection({p.offset, p.offset + p.true_numel()}, array.held[i]);
    if (part.size() <= 0) continue;
    const Tensor held = array.memory[i].range(part.begin - array.held[i].begin, part.end - array.held[i].begin);
    const Tensor t = device.on_host() ? held : Tensor(host.data(), held.dtype(), {held.numel()});
    if (!device.on_host()) device.download(held, t);
    const uint64_t own =
        stream_of(std::string_view(static_cast<const char*>(t.data()), static_cast<size_t>(t.bytes())));
    hash = hash * 0x100000001b3U + own;
  }
  return hash;
}

/// What of one parameter a group must agree on.
struct Item {
  const parallel::Parameter* parameter;
  const NamedArray* array;
};

/// First difference between this rank's hashes and another's, or "".
std::string compare(const std::vector<Item>& items, comm::Communicator& group, kernels::Device& device) {
  if (group.size() == 1 || items.empty()) return "";
  std::vector<int64_t> mine;
  for (const Item& item : items) {
    mine.push_back(static_cast<int64_t>(hash_of(*item.array, *item.parameter, device)));
  }
  const auto n = static_cast<int64_t>(mine.size());
  std::vector<int64_t> all(mine.size() * static_cast<size_t>(group.size()));
  group.all_gather(Tensor(mine.data(), DType::Int64, {n}), Tensor(all.data(), DType::Int64, {n * group.size()})).wait();
  for (size_t i = 0; i < items.size(); ++i) {
    for (int r = 1; r < group.size(); ++r) {
      if (all[static_cast<size_t>(r) * items.size() + i] == all[i]) continue;
      return fmt::format("--check replicas: {} of {} differs between ranks 0 and {} of group {}", items[i].array->name,
                         items[i].parameter->name, r, group.name());
    }
  }
  return "";
}

/// The same where both copies of a tied parameter are this rank's: items in pairs.
std::string compare_pairs(const std::vector<Item>& items, kernels::Device& device) {
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    if (hash_of(*items[i].array, *items[i].parameter, device) ==
        hash_of(*items[i + 1].array, *items[i + 1].parameter, device))
      continue;
    return fmt::format("--check replicas: {} of {} differs from that of {}, which it is tied to on the same rank",
                       items[i].array->name, items[i].parameter->name, items[i + 1].parameter->name);
  }
  return "";
}

}  // namespace

void check_replicas(const parallel::ParameterStore& store, const Optimizer* optimizer, const SyncPlan& plan,
                    comm::ProcessGrid& grid, kernels::Device& device) {
  const std::vector<NamedArray> arrays = arrays_of(store, optimizer);
  // Under hpZ every dp rank owns other elements.
  const bool unique = plan.shards.options.states == parallel::StateSharding::AllOfData;
  std::vector<Item> data, replica, tensor, kv, tied;
  for (const NamedArray& array : arrays) {
    for (const parallel::Parameter& p : store.parameters()) {
      const bool is_weight = &array == arrays.data();
      if (!array.sharded) {
        data.push_back({&p, &array});
      } else if (is_weight || !unique) {
        replica.push_back({&p, &array});
      }
      if (p.spec.replicas == grid.tensor().size()) {
        tensor.push_back({&p, &array});
      } else if (p.spec.replicas > 1) {
        kv.push_back({&p, &array});
      }
      // Sharded, each copy is a block of its own, cut alike on both sides.
      if (p.tied) tied.push_back({&p, &array});
    }
  }
  std::string fault;
  if (plan.tied.size() == 2) {  // first and last stage are chunks of this rank; no other rank has a copy
    fault = compare_pairs(tied, device);
    tied.clear();
  }
  for (const auto& [items, group] :
       {std::pair{&data, &grid.data()}, std::pair{&replica, &grid.replica()}, std::pair{&tensor, &grid.tensor()},
        std::pair{&kv, &grid.kv_replicas()}, std::pair{&tied, &grid.embedding()}}) {
    const std::string found = compare(*items, grid.host(*group), device);
    if (fault.empty()) fault = found;
  }
  // Every rank leaves alike, else the others would wait in the next collective.
  std::vector<double> bad{fault.empty() ? 0.0 : 1.0};
  grid.world().all_reduce(Tensor(bad.data(), DType::Float64, {1}), comm::ReduceOp::Max).wait();
  if (!fault.empty()) throw RunTimeError(fault);
  if (bad[0] > 0) throw RunTimeError("--check replicas: ranks differ, see the other ranks' messages");
}

}  // namespace triax::train
