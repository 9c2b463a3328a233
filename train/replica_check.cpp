#include "train/replica_check.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/philox.h"

namespace triax::train {
namespace {

struct NamedArray {
  const char* name;
  Tensor flat;  // [numel of the store]
};

std::vector<NamedArray> arrays_of(const parallel::ParameterStore& store, const Optimizer* optimizer) {
  std::vector<NamedArray> arrays{{"weight", store.flat_weight()}};
  if (optimizer == nullptr) return arrays;
  for (const NamedArray& a :
       {NamedArray{"master weight", optimizer->master()}, NamedArray{"first moment", optimizer->exp_avg()},
        NamedArray{"second moment", optimizer->exp_avg_sq()}, NamedArray{"momentum", optimizer->momentum()}}) {
    if (a.flat && a.flat.numel() == store.numel()) arrays.push_back(a);
  }
  return arrays;
}

uint64_t hash_of(Tensor t) {
  return stream_of(std::string_view(static_cast<const char*>(t.data()), static_cast<size_t>(t.bytes())));
}

/// What of one parameter a group must agree on.
struct Item {
  const parallel::Parameter* parameter;
  const NamedArray* array;
};

/// First difference between this rank's hashes and another's, or "".
std::string compare(const std::vector<Item>& items, comm::Communicator& group) {
  if (group.size() == 1 || items.empty()) return "";
  std::vector<int64_t> mine;
  for (const Item& item : items) {
    const parallel::Parameter& p = *item.parameter;
    mine.push_back(static_cast<int64_t>(hash_of(item.array->flat.range(p.offset, p.offset + p.true_numel()))));
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

}  // namespace

void check_replicas(const parallel::ParameterStore& store, const Optimizer* optimizer, comm::ProcessGrid& grid) {
  const std::vector<NamedArray> arrays = arrays_of(store, optimizer);
  std::vector<Item> all;
  std::vector<Item> tensor;
  std::vector<Item> kv;
  std::vector<Item> tied;
  for (const NamedArray& array : arrays) {
    for (const parallel::Parameter& p : store.parameters()) {
      all.push_back({&p, &array});
      if (p.spec.replicas == grid.tensor().size()) {
        tensor.push_back({&p, &array});
      } else if (p.spec.replicas > 1) {
        kv.push_back({&p, &array});
      }
      if (p.tied) tied.push_back({&p, &array});
    }
  }
  std::string fault = compare(all, grid.data());
  for (const auto& [items, group] :
       {std::pair{&tensor, &grid.tensor()}, std::pair{&kv, &grid.kv_replicas()}, std::pair{&tied, &grid.embedding()}}) {
    const std::string found = compare(*items, *group);
    if (fault.empty()) fault = found;
  }
  // Every rank leaves alike, else the others would wait in the next collective.
  std::vector<double> bad{fault.empty() ? 0.0 : 1.0};
  grid.world().all_reduce(Tensor(bad.data(), DType::Float64, {1}), comm::ReduceOp::Max).wait();
  if (!fault.empty()) throw RunTimeError(fault);
  if (bad[0] > 0) throw RunTimeError("--check replicas: ranks differ, see the other ranks' messages");
}

}  // namespace triax::train
