#include "bench/hardware.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"

namespace triax::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSchema = "triax-hw/1";
constexpr std::array kOrigins{Origin::Measured, Origin::Fitted, Origin::Published, Origin::Assumed};
constexpr std::array kLayouts{GemmLayout::TN, GemmLayout::NN, GemmLayout::NT};
constexpr std::array kDTypes{DType::Float64,    DType::Float32, DType::BFloat16, DType::Float16, DType::Float8E4M3,
                             DType::Float8E5M2, DType::Int8,    DType::UInt8,    DType::Int32,   DType::Int64};
constexpr std::array kOperations{comm::Operation::AllReduce,     comm::Operation::Reduce,    comm::Operation::AllGather,
                                 comm::Operation::ReduceScatter, comm::Operation::Broadcast, comm::Operation::AllToAll,
                                 comm::Operation::Send};

// ---- Writing -------------------------------------------------------------------------------------------------------

double finite(double value, const std::string& what) {
  ensure(std::isfinite(value), "hw.json: " + what + " is not finite");
  return value;
}

Json json_of(const Constant& c, const std::string& what) {
  return {{"value", finite(c.value, what)}, {"origin", name_of(c.origin)}, {"source", c.source}};
}

Json json_of(const GemmPoint& p) {
  return {{"dtype", name_of(p.dtype)},
          {"layout", name_of(p.layout)},
          {"accumulate", p.accumulate},
          {"m", p.m},
          {"n", p.n},
          {"k", p.k},
          {"time_s", finite(p.time_s, "gemms")}};
}

Json json_of(const KernelPoint& p) {
  return {{"kernel", p.kernel},
          {"dtype", name_of(p.dtype)},
          {"rows", p.rows},
          {"cols", p.cols},
          {"time_s", finite(p.time_s, p.kernel)}};
}

Json json_of(const CollectivePoint& p) {
  return {
      {"operation", comm::name_of(p.operation)},   {"ranks", p.ranks},         {"nodes", p.nodes}, {"bytes", p.bytes},
      {"time_s", finite(p.time_s, "collectives")}, {"dtype", name_of(p.dtype)}};
}

Json json_of(const Link& l) {
  return {{"name", l.name},
          {"ranks", l.ranks},
          {"latency_s", json_of(l.latency_s, l.name)},
          {"bytes_per_s", json_of(l.bytes_per_s, l.name)},
          {"ports_per_domain", json_of(l.ports_per_domain, l.name)},
          {"contention", json_of(l.contention, l.name)}};
}

template <class Point>
Json array_of(const std::vector<Point>& points) {
  Json list = Json::array();
  for (const Point& point : points) list.push_back(json_of(point));
  return list;
}

// ---- Reading -------------------------------------------------------------------------------------------------------

// Beyond any machine: what is outside is a slip of the pen, and would be divided by and multiplied until it is no
// number.
constexpr double kLeast = 1e-18;
constexpr double kMost = 1e18;  ///< of bytes, and of anything per second
constexpr double kMost_s = 1e6;
constexpr int64_t kMostDevices = 1'000'000;
constexpr int64_t kMostExtent = 1'000'000'000'000'000;
constexpr int64_t kMostArea = 1'000'000'000'000'000'000;

/// An object of the file: every key is asked for by name; done() refuses those nobody asked for.
class Object {
 public:
  Object(const Json& json, std::string where, std::string path)
      : json_(&json), where_(std::move(where)), path_(std::move(path)) {
    if (!json.is_object()) fail(path_, "must be an object");
  }

  const Json& at(const char* key) {
    asked_.insert(key);
    if (!json_->contains(key)) fail(name(key), "is missing");
    return json_->at(key);
  }
  double number(const char* key) {
    const Json& value = at(key);
    if (!value.is_number() || !std::isfinite(value.get<double>())) fail(name(key), "must be a number");
    return value.get<double>();
  }
  int64_t whole(const char* key, int64_t least, int64_t most) {
    const Json& value = at(key);
    if (!value.is_number_integer() || value.get<int64_t>() < least || value.get<double>() > static_cast<double>(most)) {
      fail(name(key), fmt::format("must be a whole number from {} to {}", least, most));
    }
    return value.get<int64_t>();
  }
  /// Devices, or nodes.
  int count(const char* key, int64_t least) { return static_cast<int>(whole(key, least, kMostDevices)); }
  /// Elements along a side of a matrix, or bytes of a message.
  int64_t extent(const char* key) { return whole(key, 1, kMostExtent); }
  /// Seconds of something that happened.
  double time(const char* key) {
    const double value = number(key);
    if (value < kLeast || value > kMost_s)
      fail(name(key), fmt::format("must be seconds from {:g} to {:g}", kLeast, kMost_s));
    return value;
  }
  std::string text(const char* key) {
    const Json& value = at(key);
    if (!value.is_string()) fail(name(key), "must be a text");
    return value.get<std::string>();
  }
  bool flag(const char* key) {
    const Json& value = at(key);
    if (!value.is_boolean()) fail(name(key), "must be true or false");
    return value.get<bool>();
  }
  template <class T, size_t n>
  T one_of(const char* key, const std::array<T, n>& values) {
    const std::string given = text(key);
    std::string known;
    for (const T value : values) {
      if (given == name_of(value)) return value;
      known += fmt::format("{}{}", known.empty() ? "" : ", ", name_of(value));
    }
    fail(name(key), fmt::format("'{}' is none of {}", given, known));
  }
  Object child(const char* key) { return Object(at(key), where_, name(key)); }
  /// Nothing that this file describes is negative; 0 is what nobody measured.
  Constant constant(const char* key, double most = kMost) {
    Object object = child(key);
    const Constant c = constant_in(object);
    if (c.value != 0 && (c.value < kLeast || c.value > most)) {
      fail(object.name("value"), fmt::format("must be 0, or from {:g} to {:g}", kLeast, most));
    }
    return c;
  }
  /// A duration; 0 is what nobody measured.
  Constant duration(const char* key) { return constant(key, kMost_s); }
  /// f(object) for each element of a list of objects.
  template <class F>
  void each(const char* key, F f) {
    const Json& list = at(key);
    if (!list.is_array()) fail(name(key), "must be a list");
    for (size_t i = 0; i < list.size(); ++i) {
      Object object(list[i], where_, fmt::format("{}[{}]", name(key), i));
      f(object);
      object.done();
    }
  }
  /// f(key, this) for all keys.
  template <class F>
  void every(F f) {
    for (const auto& item : json_->items()) f(item.key().c_str(), *this);
  }
  void done() const {
    for (const auto& item : json_->items()) {
      if (asked_.count(item.key()) == 0) fail(name(item.key().c_str()), "is not a key of " + std::string(kSchema));
    }
  }
  std::string name(const char* key) const { return path_.empty() ? key : path_ + "." + key; }
  [[noreturn]] void fail(const std::string& key, const std::string& rule) const {
    throw ConfigError(key.empty() ? fmt::format("{}: {}", where_, rule)
                                  : fmt::format("{}: '{}' {}", where_, key, rule));
  }

 private:
  static Constant constant_in(Object& object) {
    Constant c;
    c.value = object.number("value");
    c.origin = object.one_of("origin", kOrigins);
    c.source = object.text("source");
    object.done();
    return c;
  }
  const Json* json_;
  std::string where_, path_;
  std::set<std::string> asked_;
};

DType dtype_of_key(const Object& object, const char* key) {
  for (const DType dtype : kDTypes) {
    if (name_of(dtype) == key) return dtype;
  }
  object.fail(object.name(key), "is no element type");
}

void read_points(Object& object, Hardware& hw) {
  object.each("gemms", [&hw](Object& o) {
    hw.gemms.push_back({o.one_of("dtype", kDTypes), o.one_of("layout", kLayouts), o.flag("accumulate"), o.extent("m"),
                        o.extent("n"), o.extent("k"), o.time("time_s")});
  });
  object.each("kernel_points", [&hw](Object& o) {
    const KernelPoint& p = hw.kernel_points.emplace_back(KernelPoint{
        o.text("kernel"), o.one_of("dtype", kDTypes), o.extent("rows"), o.extent("cols"), o.time("time_s")});
    if (p.rows > kMostArea / p.cols) {
      o.fail(o.name("rows"), fmt::format("times cols must be at most {}", kMostArea));
    }
  });
  object.each("collectives", [&hw](Object& o) {
    hw.collectives.push_back({o.one_of("operation", kOperations), o.count("ranks", 2), o.count("nodes", 1),
                              o.extent("bytes"), o.time("time_s"), o.one_of("dtype", kDTypes)});
  });
  object.each("links", [&hw](Object& o) {
    hw.links.push_back({o.text("name"), o.count("ranks", 0), o.duration("latency_s"), o.constant("bytes_per_s"),
                        o.constant("ports_per_domain"), o.constant("contention")});
  });
}

}  // namespace

const char* name_of(Origin origin) {
  switch (origin) {
    case Origin::Measured:
      return "measured";
    case Origin::Fitted:
      return "fitted";
    case Origin::Published:
      return "published";
    case Origin::Assumed:
      return "assumed";
  }
  return "?";
}

const char* name_of(GemmLayout layout) {
  switch (layout) {
    case GemmLayout::TN:
      return "TN";
    case GemmLayout::NN:
      return "NN";
    case GemmLayout::NT:
      return "NT";
  }
  return "?";
}

std::string to_json(const Hardware& hw) {
  Json all{{"schema", kSchema},
           {"name", hw.name},
           {"description", hw.description},
           {"device", hw.device},
           {"devices_per_node", hw.devices_per_node},
           {"memory_bytes", json_of(hw.memory_bytes, "memory_bytes")},
           {"memory_bytes_per_s", json_of(hw.memory_bytes_per_s, "memory_bytes_per_s")}};
  all["environment"] = Json::object();
  for (const auto& [key, value] : hw.environment) all["environment"][key] = value;
  all["peak_flops"] = Json::object();
  for (const auto& [dtype, c] : hw.peak_flops)
    all["peak_flops"][std::string(name_of(dtype))] = json_of(c, "peak_flops");
  all["constants"] = Json::object();
  for (const auto& [key, c] : hw.constants) all["constants"][key] = json_of(c, key);
  all["kernels"] = Json::object();
  for (const auto& [key, t] : hw.kernels) {
    all["kernels"][key] = {{"per_s", json_of(t.per_s, key)}, {"floor_s", json_of(t.floor_s, key)}};
  }
  all["links"] = array_of(hw.links);
  all["gemms"] = array_of(hw.gemms);
  all["kernel_points"] = array_of(hw.kernel_points);
  all["collectives"] = array_of(hw.collectives);
  // One line for each entry of a list or a table.
  std::string text = "{";
  for (const auto& item : all.items()) {
    text += fmt::format("{}\n  {}: ", text.size() > 1 ? "," : "", Json(item.key()).dump());
    if (!item.value().is_structured() || item.value().empty() || item.value().contains("value")) {
      text += item.value().dump();
      continue;
    }
    const bool list = item.value().is_array();
    std::string inner;
    for (const auto& entry : item.value().items()) {
      inner += fmt::format("{}\n    {}{}", inner.empty() ? "" : ",", list ? "" : Json(entry.key()).dump() + ": ",
                           entry.value().dump());
    }
    text += fmt::format("{}{}\n  {}", list ? '[' : '{', inner, list ? ']' : '}');
  }
  return text + "\n}\n";
}

Hardware hardware_from_json(const std::string& text, const std::string& where) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    throw ConfigError(fmt::format("{}: not JSON: {}", where, error.what()));
  }
  Object object(json, where, "");
  const std::string schema = object.text("schema");
  if (schema != kSchema) object.fail("schema", fmt::format("is '{}'; this version reads '{}'", schema, kSchema));
  Hardware hw;
  hw.name = object.text("name");
  hw.description = object.text("description");
  hw.device = object.text("device");
  hw.devices_per_node = object.count("devices_per_node", 1);
  hw.memory_bytes = object.constant("memory_bytes");
  hw.memory_bytes_per_s = object.constant("memory_bytes_per_s");
  object.child("environment").every([&hw](const char* key, Object& o) { hw.environment[key] = o.text(key); });
  object.child("peak_flops").every([&hw](const char* key, Object& o) {
    hw.peak_flops[dtype_of_key(o, key)] = o.constant(key);
  });
  object.child("constants").every([&hw](const char* key, Object& o) { hw.constants[key] = o.constant(key); });
  object.child("kernels").every([&hw](const char* key, Object& o) {
    Object kernel = o.child(key);
    hw.kernels[key] = {kernel.constant("per_s"), kernel.duration("floor_s")};
    kernel.done();
  });
  read_points(object, hw);
  object.done();
  return hw;
}

}  // namespace triax::bench
