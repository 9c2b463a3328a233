// `triax data show`, `verify` and `merge`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/data_options.h"
#include "base/error.h"
#include "io/data/description.h"
#include "io/data/indexed_writer.h"

namespace triax::apps {

namespace {

namespace fs = std::filesystem;

// Users paste names with or without the suffix.
std::string without_suffix(const std::string& path) {
  for (const char* suffix : {".bin", ".idx", ".json"}) {
    if (path.ends_with(suffix)) return path.substr(0, path.rfind('.'));
  }
  return path;
}

std::vector<int32_t> document_tokens(const io::IndexedDataset& data, int64_t document) {
  std::vector<int32_t> tokens;
  for (int64_t s = data.document_begin(document); s < data.document_begin(document + 1); ++s) {
    const size_t before = tokens.size();
    tokens.resize(before + static_cast<size_t>(data.length(s)));
    data.read(s, 0, std::span(tokens).subspan(before));
  }
  return tokens;
}

// The first or last `count` tokens of the whole dataset.
std::vector<int32_t> head_tokens(const io::IndexedDataset& data, int64_t count) {
  std::vector<int32_t> tokens;
  for (int64_t s = 0; s < data.sequences() && static_cast<int64_t>(tokens.size()) < count; ++s) {
    const size_t before = tokens.size();
    const int64_t take = std::min<int64_t>(data.length(s), count - static_cast<int64_t>(before));
    tokens.resize(before + static_cast<size_t>(take));
    data.read(s, 0, std::span(tokens).subspan(before));
  }
  return tokens;
}

std::vector<int32_t> tail_tokens(const io::IndexedDataset& data, int64_t count) {
  std::vector<int32_t> tokens;
  for (int64_t s = data.sequences() - 1; s >= 0 && static_cast<int64_t>(tokens.size()) < count; --s) {
    const int64_t take = std::min<int64_t>(data.length(s), count - static_cast<int64_t>(tokens.size()));
    std::vector<int32_t> piece(static_cast<size_t>(take));
    data.read(s, data.length(s) - take, piece);
    tokens.insert(tokens.begin(), piece.begin(), piece.end());
  }
  return tokens;
}

std::unique_ptr<io::Tokenizer> tokenizer_for(const std::string& prefix, const io::TokenizerOptions& given,
                                             const std::optional<io::DatasetDescription>& description) {
  if (!given.type.empty()) {
    auto tokenizer = io::make_tokenizer(given);
    if (description) io::check_tokenizer(prefix, *description, *tokenizer);
    return tokenizer;
  }
  if (!description) {
    throw ConfigError(
        fmt::format("--decode: {}.json is missing, so the tokenizer is not known; give --tokenizer-type", prefix));
  }
  auto tokenizer = io::make_tokenizer(description->tokenizer);
  io::check_tokenizer(prefix, *description, *tokenizer);
  return tokenizer;
}

nlohmann::ordered_json facts_of(const io::IndexedDataset& data,
                                const std::optional<io::DatasetDescription>& description) {
  nlohmann::ordered_json facts;
  facts["prefix"] = data.prefix();
  facts["token_type"] = io::name_of(data.type());
  facts["documents"] = data.documents();
  facts["sequences"] = data.sequences();
  facts["tokens"] = data.tokens();
  facts["bin_bytes"] = data.bin_bytes();
  facts["idx_bytes"] = data.idx_bytes();
  int64_t shortest = data.sequences() > 0 ? data.length(0) : 0;
  int64_t longest = 0;
  for (int64_t s = 0; s < data.sequences(); ++s) {
    shortest = std::min<int64_t>(shortest, data.length(s));
    longest = std::max<int64_t>(longest, data.length(s));
  }
  facts["shortest_sequence"] = shortest;
  facts["longest_sequence"] = longest;
  if (description) {
    facts["tokenizer"] = description->tokenizer.type;
    facts["tokenizer_hash"] = description->tokenizer_hash;
    facts["vocab_size"] = description->vocab_size;
    facts["eod"] = description->eod ? nlohmann::ordered_json(*description->eod) : nlohmann::ordered_json(nullptr);
    facts["eod_appended"] = description->eod_appended;
    facts["text_bytes"] = description->text_bytes;
    facts["sources"] = description->sources;
  }
  return facts;
}

struct ShowWords {
  std::string prefix;
  int64_t document = -1;
  int64_t tokens = 16;
  bool decode = false;
  std::string format = "table";
  io::TokenizerOptions tokenizer;
};

DataSyntax show_syntax(ShowWords& words) {
  DataSyntax syntax{"show PREFIX", "Header, counts, and the first and last tokens of a dataset.",
                    po::options_description("Options", 110, 60), "prefix"};
  auto add = syntax.options.add_options();
  add("prefix", po::value(&words.prefix)->value_name("PREFIX"), "path without .bin/.idx");
  add("document", po::value(&words.document)->value_name("N"), "show this document (from 0) instead of the ends");
  add("tokens", po::value(&words.tokens)->value_name("N"), "tokens shown at either end; default 16");
  add("decode", po::bool_switch(&words.decode), "text instead of ids");
  add("format", po::value(&words.format)->value_name("table|json"), "default table");
  add_tokenizer_options(syntax.options, words.tokenizer);
  return syntax;
}

void print(const nlohmann::ordered_json& facts, const std::string& format) {
  if (format == "json") {
    std::cout << facts.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
    return;
  }
  for (const auto& [key, value] : facts.items()) {
    std::cout << fmt::format("{:<18} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
  }
}

std::string document_count_fault(const io::IndexedDataset& data, const io::DatasetDescription& description) {
  if (description.documents != data.documents() || description.tokens != data.tokens()) {
    return fmt::format("{0}.json: says {1} documents and {2} tokens, {0}.idx has {3} and {4}", data.prefix(),
                       description.documents, description.tokens, data.documents(), data.tokens());
  }
  return {};
}

// A directory stands for all datasets in it, by name, as in merge_datasets.py.
std::vector<std::string> expand_inputs(const std::vector<std::string>& inputs) {
  std::vector<std::string> prefixes;
  for (const std::string& input : inputs) {
    if (!fs::is_directory(input)) {
      prefixes.push_back(without_suffix(input));
      continue;
    }
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(input)) {
      if (entry.path().extension() == ".idx") found.push_back(without_suffix(entry.path().string()));
    }
    if (found.empty()) throw ConfigError(fmt::format("--input {}: holds no .idx file", input));
    std::sort(found.begin(), found.end());
    prefixes.insert(prefixes.end(), found.begin(), found.end());
  }
  return prefixes;
}

// The description of the whole, when every part has one by the same tokenizer.
std::optional<io::DatasetDescription> merge_descriptions(const std::vector<std::string>& prefixes) {
  std::optional<io::DatasetDescription> whole;
  size_t described = 0;
  for (const std::string& prefix : prefixes) {
    const auto part = io::read_description(prefix);
    if (!part) continue;
    if (++described == 1) {
      whole = part;
      continue;
    }
    if (part->tokenizer_hash != whole->tokenizer_hash || part->eod_appended != whole->eod_appended) {
      throw ConfigError(fmt::format(
          "--input {}: was made with tokenizer {} (EOD appended: {}), {} with {} (EOD appended: {}); "
          "merge data of one kind",
          prefix, part->tokenizer_hash, part->eod_appended, prefixes[0], whole->tokenizer_hash, whole->eod_appended));
    }
    whole->documents += part->documents;
    whole->tokens += part->tokens;
    whole->text_bytes += part->text_bytes;
    whole->sources.insert(whole->sources.end(), part->sources.begin(), part->sources.end());
  }
  if (described > 0 && described < prefixes.size()) {
    throw ConfigError(
        fmt::format("--input: {} of {} datasets have no .json that names their tokenizer; merge data of one "
                    "kind, or remove the .json files",
                    prefixes.size() - described, prefixes.size()));
  }
  return whole;
}

void check_output(const std::string& prefix, bool overwrite) {
  for (const char* suffix : {".bin", ".idx", ".json"}) {
    if (!overwrite && fs::exists(prefix + suffix)) {
      throw ConfigError(
          fmt::format("--output-prefix {}: {}{} exists; choose another prefix, or replace it with --overwrite", prefix,
                      prefix, suffix));
    }
  }
}

}  // namespace

int data_show(const std::vector<std::string>& args) {
  ShowWords words;
  if (!parse(show_syntax(words), args)) return 0;
  if (words.prefix.empty()) throw ConfigError("triax data show: give a dataset prefix (the path without .bin/.idx)");
  if (words.format != "table" && words.format != "json") {
    throw ConfigError(fmt::format("--format {}: must be table or json", words.format));
  }
  if (words.tokens < 0) throw ConfigError(fmt::format("--tokens {}: must be at least 0", words.tokens));
  const io::IndexedDataset data(without_suffix(words.prefix));
  const bool one = words.document != -1;
  if (one && (words.document < 0 || words.document >= data.documents())) {
    throw ConfigError(fmt::format("--document {}: must be 0 to {}", words.document, data.documents() - 1));
  }
  const auto description = io::read_description(data.prefix());
  nlohmann::ordered_json facts = facts_of(data, description);
  std::unique_ptr<io::Tokenizer> tokenizer;
  if (words.decode) tokenizer = tokenizer_for(data.prefix(), words.tokenizer, description);
  const auto put = [&](const char* key, const std::vector<int32_t>& tokens) {
    if (tokenizer) {
      facts[key] = tokenizer->decode(tokens);
    } else {
      facts[key] = tokens;
    }
  };
  if (one) {
    put("document", document_tokens(data, words.document));
  } else {
    put("first_tokens", head_tokens(data, words.tokens));
    put("last_tokens", tail_tokens(data, words.tokens));
  }
  print(facts, words.format);
  return 0;
}

int data_verify(const std::vector<std::string>& args) {
  std::vector<std::string> prefixes;
  int64_t vocab_size = 0;
  DataSyntax syntax{"verify PREFIX...", "Checks every entry of the index and every token; ends with 4 at a fault.",
                    po::options_description("Options", 110, 60), "prefix"};
  auto add = syntax.options.add_options();
  add("prefix", po::value(&prefixes)->multitoken()->value_name("PREFIX..."), "paths without .bin/.idx");
  add("vocab-size", po::value(&vocab_size)->value_name("N"), "bound of the ids; default from PREFIX.json");
  if (!parse(syntax, args)) return 0;
  if (prefixes.empty()) throw ConfigError("triax data verify: give dataset prefixes (paths without .bin/.idx)");
  bool good = true;
  for (const std::string& given : prefixes) {
    const std::string prefix = without_suffix(given);
    try {
      const io::IndexedDataset data(prefix);
      const auto description = io::read_description(prefix);
      const int64_t bound = vocab_size > 0 || !description ? vocab_size : description->vocab_size;
      data.check_all(bound);
      const std::string fault = description ? document_count_fault(data, *description) : std::string();
      if (!fault.empty()) throw RunTimeError(fault);
      std::cout << fmt::format("{}: good: {} documents, {} tokens{}\n", prefix, data.documents(), data.tokens(),
                               bound > 0 ? fmt::format(", all below {}", bound) : "");
    } catch (const RunTimeError& fault) {
      std::cout << fmt::format("{}: bad: {}\n", prefix, fault.what());
      good = false;
    }
  }
  return static_cast<int>(good ? ExitCode::Done : ExitCode::ValidationFailed);
}

int data_merge(const std::vector<std::string>& args) {
  std::vector<std::string> inputs;
  std::string output;
  bool overwrite = false;
  DataSyntax syntax{"merge", "Joins datasets of one type and tokenizer, in the order given.",
                    po::options_description("Options", 110, 60), "input"};
  auto add = syntax.options.add_options();
  add("input", po::value(&inputs)->multitoken()->value_name("PREFIX..."), "datasets, or directories of them");
  add("output-prefix", po::value(&output)->value_name("PREFIX"), "of the files written");
  add("overwrite", po::bool_switch(&overwrite), "replace existing files");
  if (!parse(syntax, args)) return 0;
  if (inputs.empty()) throw ConfigError("--input: is required: dataset prefixes, or a directory of them");
  if (output.empty()) throw ConfigError("--output-prefix: is required");
  const std::vector<std::string> prefixes = expand_inputs(inputs);
  check_output(output, overwrite);
  const io::TokenType type = io::IndexedDataset(prefixes[0]).type();
  auto description = merge_descriptions(prefixes);
  io::IndexedDatasetWriter writer(output, type);
  for (const std::string& prefix : prefixes) {
    const io::IndexedDataset data(prefix);
    if (data.type() != type) {
      throw ConfigError(fmt::format("--input {}: holds {}, {} holds {}; only datasets of one type can be merged",
                                    prefix, io::name_of(data.type()), prefixes[0], io::name_of(type)));
    }
    writer.append(data);
  }
  fs::remove(output + ".json");
  writer.finish();
  if (description) io::write_description(output, *description);
  std::cout << fmt::format("wrote          {}.bin, .idx{}\ndocuments      {}\ntokens         {}\n", output,
                           description ? ", .json" : "", writer.documents(), writer.tokens());
  return 0;
}

}  // namespace triax::apps
