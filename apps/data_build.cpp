// `triax data build`: preprocess_data.py's options, without its processes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <thread>

#include "apps/data_options.h"
#include "base/error.h"
#include "base/log.h"
#include "io/data/build_dataset.h"

namespace triax::apps {

namespace {

struct BuildWords {
  io::BuildRequest request;
  std::string format = "auto";
  std::string separator;
  int partitions = 1;
};

// Names of preprocess_data.py that are refused when given, with the reason and the remedy.
struct Refused {
  const char* name;
  const char* why;
};
constexpr Refused kRefused[] = {
    {"split-sentences", "GPT data is cut by document; a list of strings in JSON makes sentences of one document"},
    {"find-optimal-num-workers", "choose --workers; one per core is a good number"},
    {"workers-to-check", "choose --workers; one per core is a good number"},
    {"max-documents", "it belongs to --find-optimal-num-workers; choose --workers"},
    {"performance-dir", "it belongs to --find-optimal-num-workers; choose --workers"},
};

DataSyntax build_syntax(BuildWords& words) {
  DataSyntax syntax{"build",
                    "Tokenizes text or JSONL (plain, .gz, .zst, '-' for stdin) into PREFIX_KEY_document.bin/.idx.",
                    po::options_description("Options", 110, 60), "input"};
  io::BuildRequest& request = words.request;
  auto add = syntax.options.add_options();
  add("input", po::value(&request.input.inputs)->multitoken()->value_name("FILE..."), "inputs, in this order");
  add("output-prefix", po::value(&request.output_prefix)->value_name("PREFIX"), "of the files written");
  add("json-keys", po::value(&request.encoder.json_keys)->multitoken()->value_name("KEY..."),
      "keys of the text, an output each; default text");
  add("input-format", po::value(&words.format)->value_name("auto|text|jsonl"),
      "auto: .jsonl, .json and .ndjson are JSONL, stdin by its first character");
  add("document-separator", po::value(&words.separator)->value_name("TEXT"),
      "plain text: cut documents here; \\n, \\t, \\f and \\\\ are understood, '\\n\\n' is a blank line; default: a "
      "file is one "
      "document");
  add("append-eod", po::bool_switch(&request.encoder.append_eod), "end each document with the end-of-document token");
  add("workers", po::value(&request.workers)->value_name("N"), "tokenizing threads; default one per core");
  add("log-interval", po::value(&request.log_interval)->value_name("N"), "documents between progress lines; 0: none");
  add("skip-bad-lines", po::bool_switch(&request.encoder.skip_bad_lines), "drop and count malformed JSON lines");
  add("overwrite", po::bool_switch(&request.overwrite), "replace existing files");
  add_tokenizer_options(syntax.options, request.tokenizer);
  add("partitions", po::value(&words.partitions)->value_name("1"), "only 1: --workers share one input");
  add("keep-sequential-samples", po::bool_switch(), "accepted: the order is always kept");
  add("keep-newlines", po::bool_switch(), "accepted: text is never changed");
  add("lang", po::value<std::string>()->value_name("NAME"), "accepted: only splitting into sentences needs it");
  for (const Refused& option : kRefused) {
    add(option.name, po::value<std::vector<std::string>>()->zero_tokens()->multitoken(), "refused");
  }
  return syntax;
}

std::string unescape(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out.push_back(text[i]);
      continue;
    }
    const char next = text[++i];
    if (next == 'n') {
      out.push_back('\n');
    } else if (next == 't') {
      out.push_back('\t');
    } else if (next == 'f') {
      out.push_back('\f');
    } else if (next == '\\') {
      out.push_back('\\');
    } else {
      throw ConfigError(
          fmt::format("--document-separator {}: \\{} is not known; \\n, \\t, \\f and \\\\ are", text, next));
    }
  }
  return out;
}

void finish_request(BuildWords& words, const po::variables_map& values) {
  io::BuildRequest& request = words.request;
  std::vector<std::string> faults;
  for (const Refused& option : kRefused) {
    if (values.contains(option.name)) faults.push_back(fmt::format("--{}: not supported: {}", option.name, option.why));
  }
  if (request.input.inputs.empty()) faults.emplace_back("--input: is required: one or more files, or - for stdin");
  if (std::count(request.input.inputs.begin(), request.input.inputs.end(), "-") > 1) {
    faults.emplace_back("--input -: stdin can be read only once");
  }
  if (request.output_prefix.empty()) faults.emplace_back("--output-prefix: is required");
  if (request.tokenizer.type.empty()) faults.emplace_back("--tokenizer-type: is required, none is guessed");
  if (words.partitions != 1) {
    faults.push_back(fmt::format("--partitions {}: only 1 is supported: give all files to --input and use --workers",
                                 words.partitions));
  }
  if (request.workers < 1 || request.workers > 1024) {
    faults.push_back(fmt::format("--workers {}: must be 1 to 1024", request.workers));
  }
  if (request.log_interval < 0)
    faults.push_back(fmt::format("--log-interval {}: must be at least 0", request.log_interval));
  if (words.format == "text") {
    request.input.format = io::InputFormat::Text;
  } else if (words.format == "jsonl") {
    request.input.format = io::InputFormat::Jsonl;
  } else if (words.format != "auto") {
    faults.push_back(fmt::format("--input-format {}: must be auto, text or jsonl", words.format));
  }
  if (!faults.empty()) throw ConfigError(fmt::format("{}", fmt::join(faults, "\n")));
  request.input.separator = unescape(words.separator);
}

}  // namespace

int data_build(const std::vector<std::string>& args) {
  BuildWords words;
  words.request.workers = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const auto values = parse(build_syntax(words), args);
  if (!values) return 0;
  finish_request(words, *values);
  const io::BuildRequest& request = words.request;
  const auto tokenizer = io::make_tokenizer(request.tokenizer);
  if (request.encoder.append_eod && !tokenizer->eod()) {
    throw ConfigError(
        fmt::format("--append-eod: {} defines no end-of-document token; leave the option out, or use a model "
                    "that has one",
                    request.tokenizer.type));
  }
  const io::BuildReport report = io::build_dataset(request, *tokenizer);
  const double megabytes = static_cast<double>(report.input_bytes) / 1e6;
  for (const std::string& prefix : report.prefixes) std::cout << "wrote          " << prefix << ".bin, .idx, .json\n";
  std::cout << fmt::format(
      "documents      {}\ntokens         {}\nbytes/token    {:.3f}\ntokenizer      {}, {} ids, hash {}\n"
      "EOD appended   {}\nbad lines      {}\nseconds        {:.2f} ({:.1f} MB/s, {} workers)\n",
      report.documents, report.tokens,
      report.tokens > 0 ? static_cast<double>(report.text_bytes) / static_cast<double>(report.tokens) : 0.0,
      tokenizer->type(), tokenizer->vocab_size(), tokenizer->hash(),
      request.encoder.append_eod ? fmt::format("yes, id {}", *tokenizer->eod()) : "no (--append-eod)",
      report.bad_lines > 0 ? fmt::format("{} skipped", report.bad_lines) : "0", report.seconds,
      megabytes / std::max(report.seconds, 1e-9), request.workers);
  if (report.tokens == 0) spdlog::warn("no tokens: the input holds no text");
  return 0;
}

}  // namespace triax::apps
