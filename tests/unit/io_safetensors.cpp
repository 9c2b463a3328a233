// The safetensors format: bytes by the published format, files of the Python library, every kind of damage by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>

#include "base/error.h"
#include "io/safetensors/directory.h"
#include "tests/unit/temporary_directory.h"

namespace triax::io {
namespace {

using test::TemporaryDirectory;
using ::testing::HasSubstr;

std::string fixture(const std::string& name) {
  return std::string(TRIAX_SOURCE_DIR) + "/tests/fixtures/huggingface/" + name;
}

/// A file of this header text (its length is put in front) and this many bytes of data.
std::string file_of(const std::string& header, size_t data_bytes) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes + header + std::string(data_bytes, '\1');
}

SafetensorsHeader parse(const std::string& bytes) {
  return parse_safetensors_header(std::as_bytes(std::span(bytes)), "x.safetensors");
}

std::string fault_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const RunTimeError& error) {
    return error.what();
  }
  return "";
}

TEST(SafetensorsFormat, header_by_the_published_format) {
  SafetensorsHeader header;
  header.entries = {{"a", "F32", {2, 3}, 0, 24}, {"b", "BF16", {}, 24, 26}};
  header.metadata = {{"format", "pt"}};
  const std::string text = R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                           R"("b":{"dtype":"BF16","shape":[],"data_offsets":[24,26]}})";
  const std::string bytes = safetensors_header_bytes(header);
  EXPECT_EQ(bytes.size() % 8, 0U);
  EXPECT_EQ(bytes.substr(8, text.size()), text);
  EXPECT_EQ(bytes.find_first_not_of(' ', 8 + text.size()), std::string::npos);
  EXPECT_EQ(static_cast<size_t>(static_cast<unsigned char>(bytes[0])), bytes.size() - 8);

  const SafetensorsHeader back = parse(bytes + std::string(26, 'x'));
  ASSERT_EQ(back.entries.size(), 2U);
  EXPECT_EQ(back.entries[0].name, "a");
  EXPECT_EQ(back.entries[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(back.entries[1].numel(), 1);
  EXPECT_EQ(back.metadata.at("format"), "pt");
  EXPECT_EQ(back.data_begin, static_cast<int64_t>(bytes.size()));
}

TEST(SafetensorsFormat, every_malformed_file_is_refused_with_its_fault) {
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const std::vector<std::pair<std::string, std::string>> faults = {
      {"", "0 bytes, the length of the header alone needs 8"},
      {std::string(7, 'x'), "7 bytes, the length"},
      {std::string(8, '\xff'), "(at most 100000000): another format, or damaged"},
      {file_of("{" + a + "}", 8).substr(0, 20), "in a file of 20: it is cut off"},
      {file_of("", 0), "does not begin with {"},
      {file_of(" {}", 0), "does not begin with {"},
      {file_of("{" + a, 8), "is not JSON"},
      {file_of("{" + a + "," + a + "}", 8), "the name 'a' stands twice"},
      {file_of(R"({"a":7})", 0), "tensor 'a' has no dtype"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2]}})", 8), "tensor 'a' has no data_offsets"},
      {file_of(R"({"a":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}})", 8), "unknown dtype F31"},
      {file_of(R"({"a":{"dtype":4,"shape":[2],"data_offsets":[0,8]}})", 8), "dtype is no text"},
      {file_of(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8), "shape holds -2"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8), "shape holds 2.0"},
      {file_of(R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", 8), "shape is no list"},
      {file_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,8]}})", 8), "overflows"},
      {file_of(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8), "has 12 bytes, data_offsets hold 8"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8), "two ascending numbers"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8), "two ascending numbers"},
      {file_of("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 8), "they overlap"},
      {file_of("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[9,13]}})", 13), "a hole"},
      {file_of("{" + a + "}", 7), "the tensors need 8 bytes, the file holds 7"},
      {file_of("{" + a + "}", 9), "1 bytes after the last tensor"},
      {file_of(R"({"__metadata__":[]})", 0), "__metadata__ is no object"},
      {file_of(R"({"__metadata__":{"n":1}})", 0), "__metadata__ 'n' is no text"},
      {file_of(R"({"a":{"dtype":"F32","shape":[[[2]]],"data_offsets":[0,8]}})", 8), "nested more deeply"},
  };
  for (const auto& [bytes, words] : faults) {
    EXPECT_THAT(fault_of([&, &file = bytes] { parse(file); }), HasSubstr(words)) << bytes;
    EXPECT_THAT(fault_of([&, &file = bytes] { parse(file); }), HasSubstr("x.safetensors: not a valid"));
  }
}

// Bytes of the header changed, cut and doubled at random: read, or refused; never anything else.
TEST(SafetensorsFormat, random_damage_is_read_or_refused) {
  const std::string whole = test::read_file(fixture("gpt2/model.safetensors"));
  const uint64_t header = 8 + SafetensorsFile(fixture("gpt2/model.safetensors")).header().data_begin;
  std::mt19937_64 random(5);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = whole;
    const size_t at = random() % header;
    const uint64_t kind = random() % 4;
    if (kind == 0) bytes[at] = static_cast<char>(random());
    if (kind == 1) bytes.erase(at, 1 + random() % 20);
    if (kind == 2) bytes.insert(at, bytes.substr(random() % header, random() % 40));
    if (kind == 3) bytes.resize(random() % bytes.size());
    try {
      const SafetensorsHeader found = parse(bytes);
      for (const SafetensorsEntry& entry : found.entries) {
        ASSERT_LE(found.data_begin + entry.end, static_cast<int64_t>(bytes.size()));
      }
    } catch (const RunTimeError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1500);
}

TEST(SafetensorsDirectory, reads_what_the_python_library_wrote) {
  const SafetensorsDirectory gpt2(fixture("gpt2"));
  EXPECT_EQ(gpt2.items().size(), 28U);
  const auto wte = gpt2.find("transformer.wte.weight");
  ASSERT_NE(wte.entry, nullptr);
  EXPECT_EQ(wte.entry->type, "F32");
  EXPECT_EQ(wte.entry->shape, (std::vector<int64_t>{61, 32}));
  EXPECT_EQ(wte.file->header().metadata.at("format"), "pt");
  const SafetensorsDirectory llama(fixture("llama"));  // five files
  EXPECT_EQ(llama.items().size(), 21U);
  EXPECT_EQ(llama.find("lm_head.weight").entry->type, "BF16");
  EXPECT_EQ(llama.find("no.such").entry, nullptr);
}

TEST(SafetensorsWriter, files_are_cut_at_tensors_and_read_back) {
  const TemporaryDirectory work;
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const auto write = [&](const std::string& directory, int64_t most) {
    SafetensorsPlan plan;
    plan.tensors = {{"a", "F32", {4}}, {"b", "F32", {2, 2}}, {"c", "F32", {2}}};
    SafetensorsWriter writer(directory, plan, most);
    writer.write(values.data(), 4);  // pieces need not be tensors
    writer.write(values.data() + 1, 36);
    writer.commit();
    return writer.file_names();
  };
  EXPECT_THAT(write(work.file("one"), 40), ::testing::ElementsAre("model.safetensors"));
  EXPECT_THAT(write(work.file("two"), 39),
              ::testing::ElementsAre("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"));
  EXPECT_EQ(write(work.file("three"), 1).size(), 3U);  // larger tensors get a file of their own
  for (const char* name : {"one", "two", "three"}) {
    const SafetensorsDirectory back(work.file(name));
    float found[4];
    const auto b = back.find("b").bytes();
    ASSERT_EQ(b.size(), 16U);
    std::memcpy(found, b.data(), 16);
    EXPECT_THAT(found, ::testing::ElementsAre(5, 6, 7, 8)) << name;
  }
  EXPECT_THAT(test::read_file(work.file("two/model.safetensors.index.json")), HasSubstr("\"total_size\": 40"));
}

TEST(SafetensorsDirectory, damage_of_an_index_is_named) {
  const TemporaryDirectory work;
  const auto copy = [&](const std::string& to) {
    std::filesystem::copy(fixture("llama"), work.file(to));
    return work.file(to);
  };
  const auto fault = [&](const std::string& directory) {
    return fault_of([&] { SafetensorsDirectory unused(directory); });
  };
  const std::string index = "/model.safetensors.index.json", part = "/model-00003-of-00005.safetensors";
  std::string directory = copy("missing");
  std::filesystem::remove(directory + part);
  EXPECT_THAT(fault(directory), HasSubstr("names model-00003-of-00005.safetensors, which is missing"));
  directory = copy("cut");
  std::filesystem::resize_file(directory + part, 9000);
  EXPECT_THAT(fault(directory),
              HasSubstr("model-00003-of-00005.safetensors: not a valid safetensors file: the tensors"));
  directory = copy("wrong");
  std::filesystem::copy_file(directory + "/model-00002-of-00005.safetensors", directory + part,
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(fault(directory), HasSubstr("is in another file, too"));
  directory = copy("both");
  test::write_file(directory + "/model.safetensors", "");
  EXPECT_THAT(fault(directory), HasSubstr("remove the one that is out of date"));
  directory = copy("outside");
  test::write_file(directory + index, R"({"weight_map": {"a": "../a.safetensors"}})");
  EXPECT_THAT(fault(directory), HasSubstr("not the name of a file beside it"));
  test::write_file(directory + index, R"({"weight_map": {"a": "model-00001-of-00005.safetensors"}})");
  EXPECT_THAT(fault(directory), HasSubstr("tensor 'a' is not in model-00001-of-00005.safetensors"));
  test::write_file(directory + index,
                   R"({"weight_map": {"model.embed_tokens.weight": "model-00001-of-00005.safetensors"}})");
  EXPECT_THAT(fault(directory), HasSubstr("is not in the index"));
  test::write_file(directory + index, "{}");
  EXPECT_THAT(fault(directory), HasSubstr("has no object weight_map"));
  EXPECT_THAT(fault(work.path()), HasSubstr("holds neither model.safetensors nor"));
  test::write_file(work.file("pytorch_model.bin"), "");
  EXPECT_THAT(fault(work.path()), HasSubstr("safe_serialization=True"));
}

}  // namespace
}  // namespace triax::io
