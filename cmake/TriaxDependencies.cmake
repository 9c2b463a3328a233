# Finds every library once. What is not found is collected and reported in one message; the keys are those of
# scripts/dependencies.txt. cmake/probe includes this file alone (TRIAX_PROBE), so that `make setup` asks what configure asks.
include(CheckCXXSourceCompiles)
include(${CMAKE_CURRENT_LIST_DIR}/TriaxFind.cmake)
set(TRIAX_WITH_DNNL AUTO CACHE STRING "oneDNN for fp32 and bf16 GEMM: AUTO, ON or OFF (OpenBLAS alone)")
set_property(CACHE TRIAX_WITH_DNNL PROPERTY STRINGS AUTO ON OFF)
set(TRIAX_MISSING "")

set(CMAKE_REQUIRED_FLAGS -std=c++20)
check_cxx_source_compiles("#include <concepts>\n#include <ranges>\n#include <span>
  template <std::integral T> T twice(T x) { return 2 * x; }
  int main() { return int(std::span<int>().size()) + twice(0); }" TRIAX_CXX20_WORKS)
unset(CMAKE_REQUIRED_FLAGS)
triax_need(cxx TRIAX_CXX20_WORKS "${CMAKE_CXX_COMPILER} ${CMAKE_CXX_COMPILER_VERSION} does not compile C++20")

find_package(Threads REQUIRED)
find_package(OpenMP QUIET COMPONENTS CXX)
triax_need(openmp OpenMP_CXX_FOUND)
find_package(PkgConfig QUIET)
triax_need(pkg_config PKG_CONFIG_FOUND)
find_package(fmt 8.1 QUIET)
triax_need(fmt fmt_FOUND)
find_package(spdlog 1.9 QUIET)
triax_need(spdlog spdlog_FOUND)
find_package(nlohmann_json 3.9 QUIET)
triax_need(json nlohmann_json_FOUND)
find_package(Boost 1.71 QUIET COMPONENTS program_options)
triax_need(boost Boost_FOUND)
triax_find_pkg(HWLOC "hwloc>=2.1" hwloc.h hwloc)
triax_need(hwloc HWLOC_FOUND)
triax_find_pkg(SENTENCEPIECE "sentencepiece>=0.1.96" sentencepiece_processor.h sentencepiece)
triax_need(sentencepiece SENTENCEPIECE_FOUND)
triax_find_pkg(PCRE2 "libpcre2-8>=10.30" pcre2.h pcre2-8)
triax_need(pcre2 PCRE2_FOUND)
triax_find_pkg(ICU_UC "icu-uc>=60" unicode/normalizer2.h icuuc)
triax_need(icu ICU_UC_FOUND)
triax_find_pkg(ZSTD "libzstd>=1.4" zstd.h zstd)
triax_need(zstd ZSTD_FOUND)
triax_find_pkg(ZLIB "zlib>=1.2.11" zlib.h z)
triax_need(zlib ZLIB_FOUND)

include(${CMAKE_CURRENT_LIST_DIR}/TriaxMpi.cmake)

find_path(OPENBLAS_INCLUDE_DIR NAMES cblas.h PATH_SUFFIXES openblas x86_64-linux-gnu/openblas-pthread openblas-pthread)
find_library(OPENBLAS_LIBRARY NAMES openblas openblasp)
if(OPENBLAS_INCLUDE_DIR AND OPENBLAS_LIBRARY)
  set(TRIAX_OPENBLAS_FOUND TRUE)
endif()
triax_need(openblas TRIAX_OPENBLAS_FOUND)

include(${CMAKE_CURRENT_LIST_DIR}/TriaxDnnl.cmake)

if(BUILD_TESTING OR NOT DEFINED BUILD_TESTING)
  find_package(GTest 1.10 QUIET)
  triax_need(gtest GTest_FOUND)
endif()

triax_report_missing()
