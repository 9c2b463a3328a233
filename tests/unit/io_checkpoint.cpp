// The checkpoint format: boxes of any piece, shards and index read back by any other cut and by h5dump, nothing read
// beside what is needed, damage named.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "io/checkpoint/checksum.h"
#include "io/checkpoint/convert.h"
#include "io/checkpoint/directory.h"
#include "io/checkpoint/index.h"
#include "io/checkpoint/reader.h"
#include "tests/unit/temporary_directory.h"

namespace triax::io {
namespace {

using parallel::ShardSpec;
using testing::ElementsAre;
using testing::HasSubstr;

ShardSpec spec_of(std::vector<int64_t> shape, int cut_dim, int64_t begin, int64_t count) {
  ShardSpec spec;
  spec.global_shape = std::move(shape);
  spec.cut_dim = cut_dim;
  spec.begin = begin;
  spec.count = count;
  return spec;
}

/// Row-major global offsets of a spec's local elements, by the parameter's own rule.
std::vector<int64_t> global_offsets(const ShardSpec& spec) {
  parallel::Parameter p;
  p.spec = spec;
  p.local_shape = spec.global_shape;
  if (spec.cut_dim >= 0) p.local_shape[static_cast<size_t>(spec.cut_dim)] = spec.count;
  p.numel = elements_of(p.local_shape);
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i < p.numel; ++i) offsets.push_back(p.global_index(i));
  return offsets;
}

TEST(Boxes, hold_exactly_the_elements_of_a_range_in_order) {
  const std::vector<ShardSpec> specs{spec_of({7, 5}, -1, 0, 7), spec_of({7, 5}, 0, 2, 4), spec_of({7, 5}, 1, 1, 3),
                                     spec_of({7, 1}, 1, 0, 1),  spec_of({23}, -1, 0, 23), spec_of({23}, 0, 5, 11)};
  for (const ShardSpec& spec : specs) {
    const std::vector<int64_t> offsets = global_offsets(spec);
    const auto n = static_cast<int64_t>(offsets.size());
    for (int64_t begin = 0; begin <= n; ++begin) {
      for (int64_t end = begin; end <= n; ++end) {
        std::vector<int64_t> got;
        const auto boxes = boxes_of(spec, begin, end);
        ASSERT_LE(boxes.size(), spec.global_shape.size() == 1 ? 1u : 3u);
        for (const PlacedBox& placed : boxes) {
          ASSERT_EQ(placed.offset, static_cast<int64_t>(got.size()));
          for (int64_t r = 0; r < placed.box.rows; ++r)
            for (int64_t c = 0; c < placed.box.cols; ++c)
              got.push_back((placed.box.row + r) * columns_of(spec.global_shape) + placed.box.col + c);
        }
        ASSERT_EQ(got, std::vector<int64_t>(offsets.begin() + begin, offsets.begin() + end));
      }
    }
  }
}

/// A tensor whose element i has the value base + i.
std::vector<double> values_of(const ShardSpec& spec, double base) {
  std::vector<double> values;
  for (const int64_t offset : global_offsets(spec)) values.push_back(base + static_cast<double>(offset));
  return values;
}

Piece piece_of(const char* kind, const char* name, const ShardSpec& spec, std::vector<double>& values, int64_t begin,
               int64_t end) {
  return {kind, name, spec, begin, end, Tensor(values.data() + begin, DType::Float64, {end - begin})};
}

/// Two writers: a matrix cut by columns whose second part is cut again by a flat range inside a row, and a vector.
class Written : public testing::Test {
 protected:
  void SetUp() override {
    header.weights.iteration = 12;
    header.weights.consumed_samples = 96;
    header.weights.dtype = DType::Float64;
    header.training.updates = 11;
    header.training.loss_scale = 0.1;
    header.layout = "tp2-pp1-dp2";
    header.options = "lr = 0.001\n";
    std::vector<double> left = values_of(left_spec, 0);
    std::vector<double> right = values_of(right_spec, 0);
    std::vector<double> bias = values_of(bias_spec, 0.5);
    const int64_t cut = 301 * 40 + 17;
    std::vector<ShardSummary> shards;
    for (int writer = 0; writer < 2; ++writer) {
      ShardWriter shard(path(shard_name(writer)), 1 << 20);
      if (writer == 0) {
        shard.write(piece_of(kWeight, "a.weight", left_spec, left, 0, 1000 * 60));
        shard.write(piece_of(kWeight, "a.weight", right_spec, right, 0, cut));
      } else {
        shard.write(piece_of(kWeight, "a.weight", right_spec, right, cut, 1000 * 40));
        shard.write(piece_of(kExpAvg, "b.bias", bias_spec, bias, 0, 33));
      }
      shards.push_back(shard_from_json(to_json(shard.commit())));
    }
    write_index(path(""), header, shards);
  }
  std::string path(const std::string& name) const { return directory.path() + (name.empty() ? "" : "/" + name); }
  std::string read_error(const ShardSpec& spec) const {
    std::vector<double> out(100'000);
    const int64_t n = static_cast<int64_t>(global_offsets(spec).size());
    try {
      CheckpointReader(path("")).read(piece_of(kWeight, "a.weight", spec, out, 0, n));
    } catch (const RunTimeError& error) {
      return error.what();
    }
    return "read";
  }
  test::TemporaryDirectory directory;
  CheckpointHeader header;
  ShardSpec left_spec = spec_of({1000, 100}, 1, 0, 60);
  ShardSpec right_spec = spec_of({1000, 100}, 1, 60, 40);
  ShardSpec bias_spec = spec_of({33}, -1, 0, 33);
};

int64_t bytes_of_process() {
  std::ifstream io("/proc/self/io");
  std::string word;
  int64_t value = 0;
  io >> word >> value;
  return value;
}

TEST_F(Written, every_other_cut_reads_its_bits_and_no_other_bytes) {
  const std::vector<ShardSpec> cuts{spec_of({1000, 100}, -1, 0, 1000), spec_of({1000, 100}, 0, 290, 20),
                                    spec_of({1000, 100}, 1, 33, 33), spec_of({1000, 100}, 1, 97, 3)};
  for (const ShardSpec& cut : cuts) {
    const std::vector<double> expected = values_of(cut, 0);
    const auto n = static_cast<int64_t>(expected.size());
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, n}, {n / 3, n - 5}}) {
      std::vector<double> out(expected.size(), -1);
      CheckpointReader reader(path(""));
      reader.parts(*reader.find(kWeight, "a.weight"));
      const int64_t before = bytes_of_process();
      reader.read(piece_of(kWeight, "a.weight", cut, out, begin, end));
      const int64_t physical = bytes_of_process() - before;
      EXPECT_EQ(reader.bytes_read(), (end - begin) * 8);
      EXPECT_LE(physical, (end - begin) * 8 + 16384);  // metadata of two files
      for (int64_t i = 0; i < n; ++i) {
        const auto k = static_cast<size_t>(i);
        ASSERT_EQ(out[k], i >= begin && i < end ? expected[k] : -1) << i;
      }
    }
  }
}

TEST_F(Written, header_and_tensors_read_back) {
  const CheckpointReader reader(path(""));
  EXPECT_EQ(reader.header().weights.iteration, 12);
  EXPECT_EQ(reader.header().weights.consumed_samples, 96);
  EXPECT_EQ(reader.header().training, header.training);
  EXPECT_EQ(reader.header().layout, "tp2-pp1-dp2");
  EXPECT_EQ(reader.header().options, "lr = 0.001\n");
  EXPECT_THAT(reader.tensors(), ElementsAre(TensorInfo{kExpAvg, "b.bias", DType::Float64, {33}},
                                            TensorInfo{kWeight, "a.weight", DType::Float64, {1000, 100}}));
}

TEST_F(Written, h5dump_sees_whole_tensors_from_anywhere_and_nan_where_a_shard_is_gone) {
  const auto dump = [&](const char* where) {
    const std::string command =
        fmt::format("cd {} && h5dump -y -w 80 -d /weight/a.weight -s {} -c 1,3 {}/index.h5 2>&1",
                    where[0] == '.' ? path("") : where, "500,59", path(""));
    std::string text;
    FILE* pipe = popen(command.c_str(), "r");
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
    pclose(pipe);
    return text;
  };
  EXPECT_THAT(dump("."), HasSubstr("50059, 50060, 50061"));
  EXPECT_THAT(dump("/"), HasSubstr("50059, 50060, 50061"));
  std::filesystem::remove(path(shard_name(1)));
  EXPECT_THAT(dump("/"), HasSubstr("50059, nan, nan"));
}

TEST_F(Written, damage_is_named) {
  const ShardSpec all = spec_of({1000, 100}, -1, 0, 1000);
  EXPECT_EQ(read_error(all), "read");
  EXPECT_THAT(read_error(spec_of({1000, 101}, -1, 0, 1000)),
              HasSubstr("has shape [1000, 100], the model wants [1000, 101]"));
  const std::string shard = path(shard_name(1));
  std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const double wanted = 700 * 100 + 77;  // flip one bit of this value
  char pattern[8];
  std::memcpy(pattern, &wanted, 8);
  const size_t at = bytes.find(std::string(pattern, 8));
  ASSERT_NE(at, std::string::npos);
  file.clear();
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(pattern[0] ^ 1));
  file.close();
  EXPECT_THAT(read_error(all), testing::AllOf(HasSubstr("weight of a.weight"), HasSubstr("shard_00001.h5 is damaged")));
  std::filesystem::resize_file(shard, bytes.size() - 100);
  EXPECT_THAT(read_error(all), HasSubstr("shard_00001.h5 is damaged (cut short or changed)"));
  std::filesystem::remove(shard);
  EXPECT_THAT(read_error(all), testing::AllOf(HasSubstr("weight of a.weight"), HasSubstr("shard_00001.h5 is missing")));
  EXPECT_EQ(read_error(left_spec), "read");
}

TEST_F(Written, a_newer_version_is_refused) {
  {
    const Hdf5File file(TRIAX_H5(H5Fopen(path("index.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT)));
    const Hdf5Attribute version(TRIAX_H5(H5Aopen(file.get(), "version", H5P_DEFAULT)));
    const int64_t newer = kCheckpointVersion + 1;
    TRIAX_H5(H5Awrite(version.get(), H5T_NATIVE_INT64, &newer));
  }
  EXPECT_THAT(read_error(left_spec), HasSubstr("version 2 of the checkpoint format, this program reads up to 1"));
}

TEST_F(Written, a_shard_of_another_save_is_named) {
  // The same tensors and boxes, other values: sizes, shapes and its own checksums all fit.
  std::vector<double> right = values_of(right_spec, 1);
  std::vector<double> bias = values_of(bias_spec, 0.5);
  const int64_t cut = 301 * 40 + 17;
  std::filesystem::remove(path(shard_name(1)));
  ShardWriter shard(path(shard_name(1)), 1 << 20);
  shard.write(piece_of(kWeight, "a.weight", right_spec, right, cut, 1000 * 40));
  shard.write(piece_of(kExpAvg, "b.bias", bias_spec, bias, 0, 33));
  shard.commit();
  EXPECT_THAT(read_error(spec_of({1000, 100}, -1, 0, 1000)),
              testing::HasSubstr("shard_00001.h5 is a shard of another save"));
}

TEST(Index, refuses_holes_and_overlaps) {
  const test::TemporaryDirectory directory;
  const CheckpointHeader header;
  StoredBox box{kWeight, "x", DType::Float32, {4, 4}, {0, 0, 4, 2}, "/weight/x", 0};
  ShardSummary shard{"shard_00000.h5", 1, std::string(32, '0'), {box}};
  EXPECT_THROW(write_index(directory.path(), header, {shard}), std::logic_error);
  StoredBox other = box;
  other.box.col = 1;
  shard.boxes.push_back(other);
  EXPECT_THROW(write_index(directory.path(), header, {shard}), std::logic_error);
}

TEST(Checksums, of_a_file_are_those_of_its_parts) {
  const test::TemporaryDirectory directory;
  std::vector<unsigned char> bytes(30'000'000);  // more than is read ahead
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * 2654435761u >> 13);
  const std::string path = directory.path() + "/x";
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<char*>(bytes.data()), 30'000'000);
  for (const ReadFrom source : {ReadFrom::Disk, ReadFrom::System}) {
    const FileChecksums sums =
        checksums_of_file(path, {{0, 10}, {500, 0}, {1000, 25'000'000}, {29'999'999, 1}}, source);
    EXPECT_EQ(sums.size_bytes, 30'000'000);
    EXPECT_THAT(sums.ranges,
                ElementsAre(checksum_of(bytes.data(), 10), checksum_of(bytes.data(), 0),
                            checksum_of(bytes.data() + 1000, 25'000'000), checksum_of(bytes.data() + 29'999'999, 1)));
    EXPECT_THROW(checksums_of_file(path, {{29'999'999, 2}}, source), RunTimeError);
    // XXH3's published value of nothing.
    EXPECT_EQ(checksums_of_file("/dev/null", {}, source).whole, "99aa06d3014798d86001c324468d497f");
    EXPECT_THROW(checksums_of_file(directory.path() + "/none", {}, source), RunTimeError);
  }
}

TEST(Convert, rounds_to_nearest_and_keeps_bits) {
  const std::vector<double> from{1.0, -0.1, 3e38, 1e-40};
  std::vector<float> narrow(4);
  std::vector<uint16_t> small(4);
  const auto vector = [](auto& v, DType dtype) { return Tensor(v.data(), dtype, {4}); };
  std::vector<double> wide = from;
  convert(vector(wide, DType::Float64), vector(narrow, DType::Float32));
  EXPECT_THAT(narrow, ElementsAre(1.0f, -0.1f, 3e38f, 1e-40f));
  convert(vector(narrow, DType::Float32), vector(small, DType::BFloat16));
  EXPECT_THAT(small, ElementsAre(bf16(1.0f).bits, bf16(-0.1f).bits, bf16(3e38f).bits, bf16(1e-40f).bits));
  convert(vector(small, DType::BFloat16), vector(wide, DType::Float64));
  EXPECT_EQ(wide[1], static_cast<double>(static_cast<float>(bf16(-0.1f))));
}

}  // namespace
}  // namespace triax::io
