#include "base/version.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <string>

namespace triax {
namespace {

std::string project_version() {
  std::ifstream file(std::string(TRIAX_SOURCE_DIR) + "/CMakeLists.txt");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::smatch found;
  return std::regex_search(text, found, std::regex(R"(project\(triax VERSION ([0-9.]+))")) ? found[1].str() : "";
}

TEST(BuildInfo, version_is_that_of_the_project) { EXPECT_EQ(build_info().version, project_version()); }

TEST(BuildInfo, commit_is_a_hash_or_said_to_be_unknown) {
  EXPECT_TRUE(std::regex_match(build_info().commit, std::regex("unknown|[0-9a-f]{12}(-dirty)?"))) << build_info().commit;
}

TEST(BuildInfo, names_compiler_and_libraries) {
  const BuildInfo info = build_info();
  EXPECT_TRUE(std::regex_match(info.compiler, std::regex(R"([A-Za-z]+ [0-9]+(\.[0-9]+)*)"))) << info.compiler;
  EXPECT_TRUE(std::regex_match(info.mpi, std::regex(R"((MPICH|Open MPI|MPI) [0-9].*)"))) << info.mpi;
  EXPECT_TRUE(std::regex_match(info.hdf5, std::regex(R"([0-9]+\.[0-9]+.*)"))) << info.hdf5;
  EXPECT_TRUE(std::regex_match(info.dnnl, std::regex(R"(none|[23]\.[0-9]+)"))) << info.dnnl;
}

TEST(BuildInfo, rows_carry_every_value_in_order) {
  const BuildInfo info = build_info();
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"version", info.version},       {"commit", info.commit},       {"compiler", info.compiler},
      {"build_type", info.build_type}, {"cxx_flags", info.cxx_flags}, {"mpi", info.mpi},
      {"hdf5", info.hdf5},             {"dnnl", info.dnnl},           {"cuda", info.cuda}};
  EXPECT_EQ(build_info_rows(), expected);
}

}  // namespace
}  // namespace triax
