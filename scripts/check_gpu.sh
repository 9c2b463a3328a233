#!/usr/bin/env bash
# Builds the CUDA module for the GPU of this machine, runs its tests there and prints how fast each kernel is.
# Needs nvcc with cuBLASLt, g++, the headers of fmt and GoogleTest with its library; neither MPI nor HDF5.
# usage: check_gpu.sh [BUILD-FOLDER]   FMT_INCLUDE, GTEST_INCLUDE, GTEST_LIBRARY: where those are, when not on the system
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build/gpu}
mkdir -p "$build"/{bin,lib/triax,objects}
cd "$build"
command -v nvcc >/dev/null || { echo "check_gpu: nvcc is not in PATH" >&2; exit 2; }
cuda=$(cd "$(dirname "$(readlink -f "$(command -v nvcc)")")/.." && pwd)
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d . || true)
capability=${CUDA_ARCHITECTURE:-${capability:-80}}
[ "$capability" != 90 ] || capability=90a
cxx=(g++ -std=c++20 -O2 -fPIC -I"$root" -DFMT_HEADER_ONLY ${FMT_INCLUDE:+-I"$FMT_INCLUDE"} ${GTEST_INCLUDE:+-I"$GTEST_INCLUDE"})
base=(dtype error memory philox tensor)

# objects/kernels_cuda_gemm.cpp.o of kernels/cuda/gemm.cpp.
object() { local path=${1#"$root"/}; echo "objects/${path//\//_}.o"; }

# One line per object: its name, then the command.
commands() {
  for f in "$root"/kernels/cuda/*.cu; do
    echo "nvcc -std=c++20 -O3 -Xcompiler -fPIC -Xptxas -v -gencode arch=compute_$capability,code=sm_$capability -I$root" \
      "-c $f -o objects/$(basename "$f" .cu).cu.o 2>objects/$(basename "$f" .cu).log"
  done
  for f in "$root"/kernels/cuda/*.cpp "$root"/tests/cuda/*.cpp "$root"/kernels/cuda_{loader,support}.cpp; do
    echo "${cxx[*]} -I$cuda/include -c $f -o $(object "$f")"
  done
  for f in "${base[@]}"; do echo "${cxx[*]} -c $root/base/$f.cpp -o objects/base_$f.cpp.o"; done
}
started=$(date +%s)
commands | xargs -d '\n' -P "$(nproc)" -I{} bash -c '{} || { echo "failed: {}" >&2; cat objects/*.log >&2; exit 255; }'
libraries=$cuda/lib64
[ -e "$libraries/libcudart_static.a" ] || libraries=$cuda/targets/x86_64-linux/lib
[ -e "$libraries/libcudart_static.a" ] || libraries=$cuda/lib
g++ -shared objects/*.cu.o objects/kernels_cuda_{cuda_device,gemm,types}.cpp.o objects/kernels_cuda_support.cpp.o \
  objects/base_*.o -L"$libraries" -Wl,-rpath,"$libraries" -lcudart_static -lcublasLt -ldl -lrt -lpthread \
  -o lib/triax/libtriax_cuda.so
tests=()
for f in "$root"/tests/cuda/*.cpp; do [ "$(basename "$f")" = measure.cpp ] || tests+=("$(object "$f")"); done
g++ "${tests[@]}" objects/kernels_cuda_loader.cpp.o objects/base_*.o ${GTEST_LIBRARY:+-L"$GTEST_LIBRARY"} -lgtest \
  -ldl -lpthread -o bin/cuda_tests
g++ objects/tests_cuda_measure.cpp.o objects/kernels_cuda_loader.cpp.o objects/base_*.o -ldl -o bin/cuda_measure
echo "built for $capability in $(($(date +%s) - started)) s"
grep -hE '[1-9][0-9]* bytes spill' objects/*.log && echo "spills: see objects/*.log" || echo "no kernel spills registers"
status=0
TRIAX_TEST_DEVICE=cuda bin/cuda_tests || status=$?
[ "$status" -ne 77 ] || exit 77
bin/cuda_measure
exit $status
