// `triax bench import|compare|show`: hw.json from other measurements, two of them side by side, and what stands in one.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/bench.h"
#include "apps/bench_request.h"
#include "apps/program_request.h"
#include "base/error.h"
#include "bench/compare.h"
#include "bench/figures.h"
#include "bench/nccl_import.h"
#include "plan/hardware_choice.h"

namespace triax::apps {
namespace {

struct ImportRequest {
  std::vector<std::string> files;
  std::string op, hw, out = "hw.json";
  int64_t ranks = 0, nodes = 0;
};

std::vector<io::OptionEntry> entries(ImportRequest& request) {
  return {text_entry("op", "NAME", "operation of files that do not name it: all_reduce, all_gather, ...",
                     [&](const std::string& text) -> std::string {
                       request.op = text;
                       return bench::operation_named(text) ? ""
                                                           : "must be all_reduce, all_gather, reduce_scatter, "
                                                             "broadcast, reduce, all_to_all or sendrecv";
                     }),
          count_entry("ranks", "of files that do not name them", 2, request.ranks),
          count_entry("nodes", "over which they stand", 1, request.nodes),
          path_entry("base", "hw.json or preset to add to (see --list-hw of plan); without it a new description",
                     request.hw),
          path_entry("out", "file to write (default hw.json)", request.out)};
}

/// Words that are files come first; the rest are options.
std::vector<std::string> take_files(const std::vector<std::string>& args, std::vector<std::string>& files) {
  size_t i = 0;
  while (i < args.size() && args[i].rfind("--", 0) != 0) files.push_back(args[i++]);
  return {args.begin() + static_cast<std::ptrdiff_t>(i), args.end()};
}

void print_differences(const std::vector<bench::Difference>& all, Format format) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  if (format == Format::Csv) fmt::print("what,a,b,ratio,least,most,points\n");
  if (format == Format::Table) {
    fmt::print("{:<44} {:>11} {:>11} {:>7} {:>7} {:>7} {:>6}\n", "what", "a", "b", "b/a", "least", "most", "points");
  }
  for (const bench::Difference& d : all) {
    if (format == Format::Json) {
      list.push_back({{"what", d.what},
                      {"a", d.a},
                      {"b", d.b},
                      {"ratio", d.ratio},
                      {"least", d.least},
                      {"most", d.most},
                      {"points", d.points}});
    } else if (format == Format::Csv) {
      fmt::print("{},{:.6g},{:.6g},{:.4f},{:.4f},{:.4f},{}\n", d.what, d.a, d.b, d.ratio, d.least, d.most, d.points);
    } else {
      const auto ratio = [](double value) { return value > 0 ? fmt::format("{:.2f}", value) : std::string("-"); };
      fmt::print("{:<44} {:>11.4g} {:>11.4g} {:>7} {:>7} {:>7} {:>6}\n", d.what, d.a, d.b, ratio(d.ratio),
                 ratio(d.least), ratio(d.most), d.points > 0 ? std::to_string(d.points) : "-");
    }
  }
  if (format == Format::Json) fmt::print("{}\n", list.dump(2));
}

std::string share_text(const bench::Figure& f) {
  return f.of.empty() ? "" : fmt::format("{:.0f} % of {}", 100 * f.share, f.of);
}

void print_figures(const bench::Hardware& hw, Format format) {
  const std::vector<bench::Figure> all = bench::figures_of(hw);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  if (format == Format::Csv) fmt::print("what,shape,value,unit,share,of\n");
  if (format == Format::Table) {
    fmt::print("{}: {}\n\n{:<44} {:<24} {:>11} {:<8} {}\n", hw.name, hw.description, "what", "shape", "value", "unit",
               "share");
  }
  for (const bench::Figure& f : all) {
    if (format == Format::Json) {
      list.push_back({{"what", f.what},
                      {"shape", f.shape},
                      {"value", f.value},
                      {"unit", f.unit},
                      {"share", f.share},
                      {"of", f.of}});
    } else if (format == Format::Csv) {
      fmt::print("\"{}\",{},{:.6g},{},{:.4f},{}\n", f.what, f.shape, f.value, f.unit, f.share, f.of);
    } else {
      fmt::print("{:<44} {:<24} {:>11.4g} {:<8} {}\n", f.what, f.shape, f.value, f.unit, share_text(f));
    }
  }
  if (format != Format::Json) return;
  const nlohmann::ordered_json whole{
      {"name", hw.name}, {"description", hw.description}, {"device", hw.device}, {"figures", list}};
  fmt::print("{}\n", whole.dump(2));
}

}  // namespace

int bench_import(const std::vector<std::string>& args) {
  ImportRequest request;
  const std::vector<io::OptionEntry> extra = entries(request);
  const io::ParsedOptions parsed = io::parse_options(take_files(args, request.files), extra);
  constexpr const char* kUsage = "triax bench import FILE... [--op NAME] [--ranks N] [--base HW] [--out hw.json]";
  if (parsed.help) {
    fmt::print("usage: {}\nFILE: text or JSON (-J) of the nccl-tests, or of triax bench coll\n", kUsage);
    return 0;
  }
  if (request.files.empty()) throw ConfigError(fmt::format("bench import: no file given; use {}", kUsage));
  for (const std::string& file : request.files) {
    std::error_code not_there;
    if (std::filesystem::equivalent(file, request.out, not_there)) {
      throw ConfigError(
          fmt::format("bench import: --out {}: would overwrite a file that is imported; another path, such as hw.json",
                      request.out));
    }
  }
  bench::Hardware hw;
  if (!request.hw.empty()) {
    hw = plan::hardware_of(request.hw);
  } else {
    hw.name = "imported";
    hw.description = "collectives of nccl-tests; peaks and kernels are missing";
    hw.device = "cuda";
  }
  bench::ImportHints hints;
  hints.operation = bench::operation_named(request.op);
  hints.ranks = static_cast<int>(request.ranks);
  hints.nodes = static_cast<int>(request.nodes);
  size_t count = 0;
  for (const std::string& file : request.files) {
    const std::vector<bench::CollectivePoint> points = bench::import_nccl(read_file(file), file, hints);
    bench::merge(hw, points, file);
    count += points.size();
  }
  write_file(request.out, bench::to_json(hw));
  fmt::print("{}: {} points of {} file(s), {} collectives in all\n", request.out, count, request.files.size(),
             hw.collectives.size());
  return 0;
}

namespace {

/// The descriptions and the format of a command on `count` of them; none: its usage has been printed.
std::vector<std::string> take_descriptions(const std::vector<std::string>& args, size_t count, const char* usage,
                                           const char* fault, Format& format) {
  std::vector<std::string> files;
  const std::vector<io::OptionEntry> extra{format_entry(format)};
  if (io::parse_options(take_files(args, files), extra).help) {
    fmt::print("{}", usage);
    return {};
  }
  if (files.size() != count) throw ConfigError(fmt::format(fmt::runtime(fault), files.size()));
  return files;
}

}  // namespace

int bench_compare(const std::vector<std::string>& args) {
  Format format = Format::Table;
  const std::vector<std::string> files =
      take_descriptions(args, 2,
                        "usage: triax bench compare A B [--format table|json|csv]; A and B: hw.json files or presets\n"
                        "Speeds of tables are compared at the sizes that both have; b/a above 1: b is faster.\n",
                        "bench compare: takes two descriptions, not {}; use triax bench compare a.json b.json", format);
  if (files.empty()) return 0;
  const char* const asked_by = "bench compare: ";
  print_differences(bench::compare(plan::hardware_of(files[0], asked_by), plan::hardware_of(files[1], asked_by)),
                    format);
  return 0;
}

int bench_show(const std::vector<std::string>& args) {
  Format format = Format::Table;
  const std::vector<std::string> files =
      take_descriptions(args, 1,
                        "usage: triax bench show HW [--format table|json|csv]; HW: a hw.json file\n"
                        "Each measured figure and its share of what the same machine does at best.\n",
                        "bench show: takes one description, not {}; use triax bench show hw.json", format);
  if (files.empty()) return 0;
  print_figures(plan::hardware_of(files[0], "bench show: "), format);
  return 0;
}

}  // namespace triax::apps
