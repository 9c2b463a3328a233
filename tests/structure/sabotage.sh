#!/usr/bin/env bash
# Each structure test, run on a small tree with one fault in it, must end with 1 and name the fault; on the tree without
# the fault it must end with 0. usage: sabotage.sh ROOT COMPILER
set -euo pipefail
root=$(cd "$1" && pwd) compiler=$2
here=$root/tests/structure
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wrong=0

# The sound tree.
fresh() {
  tree=$work/tree
  rm -rf "$tree"
  mkdir -p "$tree"/{base,comm,io,docs,io/cuda}
  echo '#include "base/a.h"' >"$tree/comm/b.h"
  printf '#include <mpi.h>\n#include "comm/b.h"\n' >"$tree/comm/b.cpp"
  printf '#pragma once\n#include <vector>\nstd::vector<int> a();\n' >"$tree/base/a.h"
  { echo '# T'; echo '[d](docs/d.md#a-b) [c](#where-is-it)'; echo '## Where is it'; echo '| x | y |'
    for i in $(seq 20); do echo "| thing $i | \`base/a.h\` |"; done; } >"$tree/README.md"
  printf '# D\n## A, b\n[up](../README.md)\n```\n[not a link](nowhere.md)\n```\n' >"$tree/docs/d.md"
  cp -r "$root/scripts" "$root/cmake" "$tree/"
  cp "$root/docs/install.md" "$tree/docs/"
  echo 'project(triax VERSION 1.2.3 LANGUAGES CXX)' >"$tree/CMakeLists.txt"
  echo 'version: 1.2.3' >"$tree/CITATION.cff"
  echo '## 1.2.3 (unreleased)' >"$tree/CHANGELOG.md"
  echo '-std=c++20' >"$tree/flags"
}

# expect CHECK WORDS: the check must fail on the tree as it is and say WORDS; expect CHECK ok: it must pass.
expect() {
  local check=$1 words=$2 out status=0
  shift 2
  out=$(bash "$here/$check.sh" "$tree" "$@" 2>&1) || status=$?
  if [ "$words" = ok ] && [ $status -ne 0 ]; then
    echo "$check: fails on a sound tree:"; echo "$out"; wrong=1
  elif [ "$words" != ok ] && { [ $status -ne 1 ] || ! grep -qF -- "$words" <<<"$out"; }; then
    echo "$check: status $status, and not the words '$words', but:"; echo "$out"; wrong=1
  fi
}

headers=(base "$work/tree/flags" 1 "$compiler")
together=("$work/tree/flags" "$compiler")
fresh
# install.md links to pages that the small tree lacks.
sed -i 's/](\([^)#]*\)[^)]*)/]/g' "$tree/docs/install.md"
for check in include_order file_size links dependencies machine_paths version pipes; do expect "$check" ok; done
expect headers ok "${headers[@]}"
expect one_definition ok "${together[@]}"

fresh; echo '#include "io/x.h"' >>"$tree/comm/b.cpp"; expect include_order 'comm/b.cpp:3: comm must not include from io'
fresh; echo '#include <mpi.h>' >>"$tree/base/a.h"; expect include_order 'base must not know MPI'
fresh; echo '#include "b.h"' >>"$tree/comm/b.cpp"; expect include_order 'not an include from the root'
fresh; echo '#include <cuda_runtime.h>' >>"$tree/comm/b.cpp"; expect include_order 'CUDA is named outside'
fresh; echo '#include <cuda_runtime.h>' >"$tree/io/cuda/k.cpp"; expect include_order ok
fresh; echo 'TRIAX_CUDA(cudaFree(p));' >"$tree/io/cuda/k.cpp"; expect cuda_checks ok
fresh; printf 'const int status =\n  cudaFree(p);\ncudaFree(q);\n' >"$tree/io/cuda/k.cpp"; expect cuda_checks 'cudaFree: its status'
fresh; mkdir -p "$tree/kernels/cuda"; printf '  virtual void gemm(Tensor x) = 0;\n  virtual Memory& memory();\n' >"$tree/kernels/device.h"
printf '  void gemm(Tensor x) override {}\n' >"$tree/kernels/cuda/graph_device.h"
expect cuda_checks 'memory of kernels/device.h is not overridden'
printf '  Memory& memory() override;\n' >>"$tree/kernels/cuda/graph_device.h"; expect cuda_checks ok
for call in 'cublasLtMatmul(h)' 'ncclGroupEnd()' 'cuTensorMapEncodeTiled(m)' 'cudaGraphLaunch(g, s)' 'cudaGetLastError()'; do
  fresh; echo "if (x) $call;" >"$tree/io/cuda/k.cu"; expect cuda_checks "${call%%(*}: its status"
done
fresh; echo 'f<<<1, 32, 0, s>>>(x); TRIAX_CUDA(cudaGetLastError());' >"$tree/io/cuda/k.cu"; expect cuda_checks 'launched by hand'
fresh; mkdir -p "$tree/kernels/cuda"; grep -v cudaGetLastError "$root/kernels/cuda/platform.h" >"$tree/kernels/cuda/platform.h"
expect cuda_checks 'launched by hand'
fresh; mkdir -p "$tree/kernels/cuda"; cp "$root/kernels/cuda/platform.h" "$tree/kernels/cuda/"; expect cuda_checks ok
fresh; seq 401 | sed 's,^,// ,' >"$tree/base/long.cpp"; expect file_size 'base/long.cpp: 401 lines'
fresh; seq 400 | sed 's,^,// ,' >"$tree/base/long.cpp"; expect file_size ok
fresh; echo '[x](docs/none.md)' >>"$tree/README.md"; expect links "link to 'docs/none.md': no such file"
fresh; echo '[x](../README.md#none)' >>"$tree/docs/d.md"; expect links "no such heading"
fresh; echo '| gone | `base/gone.h` |' >>"$tree/README.md"; expect links 'names base/gone.h, which does not exist'
fresh; sed -i '/thing 1/d' "$tree/README.md"; expect links 'names 9 paths'
fresh; sed -i 's/^| fmt |.*/| fmt | 1 |/' "$tree/docs/install.md"; expect dependencies "docs/install.md: its table differs"
fresh; sed -i '/^zstd |/d' "$tree/scripts/dependencies.txt"; expect dependencies "probes 'zstd'"
fresh; sed -i '/triax_need(hwloc/d' "$tree/cmake/TriaxDependencies.cmake"; expect dependencies "probes 'hwloc'"
fresh; echo 'find_package(Foo REQUIRED)' >"$tree/io/CMakeLists.txt"; expect dependencies 'io/CMakeLists.txt:1:'
fresh; sed -i 's/^zlib |[^|]*|/zlib | |/' "$tree/scripts/dependencies.txt"; expect dependencies 'empty cell'
fresh; echo '// see /home/someone/notes' >>"$tree/base/a.h"; expect machine_paths 'base/a.h:4'
fresh; printf 'set -euo pipefail\nls \174 grep -q x\n' >"$tree/scripts/p.sh"; expect pipes 'scripts/p.sh:2:'
fresh; sed -i 's/1.2.3/1.2.4/' "$tree/CITATION.cff"; expect version 'CITATION.cff: version 1.2.4'
fresh; sed -i 's/1.2.3/1.2/' "$tree/CMakeLists.txt"; expect version 'not MAJOR.MINOR.PATCH'
fresh; echo 'std::string s();' >>"$tree/base/a.h"; expect headers 'a header does not compile alone' "${headers[@]}"
fresh; sed -i 1d "$tree/base/a.h"; expect headers 'base/a.h: no #pragma once' "${headers[@]}"
fresh; echo 'std::string s();' >>"$tree/base/a.h"; printf '#include <string>\n#include "base/a.h"\n' >"$tree/base/a.cpp"
expect headers 'a header does not compile alone' "${headers[@]}"
fresh; echo 'std::string s();' >>"$tree/base/a.h"; printf '#include "base/a.h"\n' >"$tree/base/a.cpp"
expect headers ok "${headers[@]}"  # the build itself stops at this one
fresh; echo 'struct Twice { int a; };' >>"$tree/base/a.h"; printf '#pragma once\nstruct Twice { long a; };\n' >"$tree/io/a.h"
expect one_definition 'the headers of all layers do not go together' "${together[@]}"

[ $wrong -eq 0 ] || exit 1
echo "ok: every structure test fails where it must"
