#!/usr/bin/env bash
# What a machine with a GPU can tell within 8 minutes: builds the CUDA module for it, runs the kernels' tests there, prints
# how fast each kernel is against the GPU's own copy and GEMM, and, where the whole program was built, trains: the demo
# on one rank, then a model of 124M and one of 1.3B parameters with tokens/s and MFU. `make check-gpu` builds the program
# first where MPI and HDF5 are.
# The kernels' part needs nvcc with cuBLASLt, g++, the headers of fmt and GoogleTest with its library; neither MPI nor HDF5.
# usage: check_gpu.sh [BUILD-FOLDER [TRIAX]]
#   FMT_INCLUDE, GTEST_INCLUDE, GTEST_LIBRARY: where those are, when not on the system; CUDA_ARCHITECTURE: 80, 90a, ...
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build/gpu}
triax=${2:-$root/build/cuda/bin/triax}
mkdir -p "$build"/{bin,lib/triax,objects}
cd "$build"
command -v nvcc >/dev/null || { echo "check_gpu: nvcc is not in PATH" >&2; exit 2; }
cuda=$(cd "$(dirname "$(readlink -f "$(command -v nvcc)")")/.." && pwd)
capability=$("$root/scripts/gpu_architecture.sh")
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
  for f in "$root"/kernels/cuda/*.cpp "$root"/tests/cuda/*.cpp "$root"/kernels/{cuda_loader,cuda_support,device}.cpp; do
    echo "${cxx[*]} -I$cuda/include -c $f -o $(object "$f")"
  done
  for f in "${base[@]}"; do echo "${cxx[*]} -c $root/base/$f.cpp -o objects/base_$f.cpp.o"; done
}
started=$(date +%s)
commands | xargs -d '\n' -P "$(nproc)" -I{} bash -c '{} || { echo "failed: {}" >&2; cat objects/*.log >&2; exit 255; }'
libraries=$cuda/lib64
[ -e "$libraries/libcudart_static.a" ] || libraries=$cuda/targets/x86_64-linux/lib
[ -e "$libraries/libcudart_static.a" ] || libraries=$cuda/lib
g++ -shared objects/*.cu.o objects/kernels_cuda_{copies,cuda_device,gemm,types}.cpp.o objects/kernels_{cuda_support,device}.cpp.o \
  objects/base_*.o -L"$libraries" -Wl,-rpath,"$libraries" -lcudart_static -lcublasLt -ldl -lrt -lpthread \
  -o lib/triax/libtriax_cuda.so
tests=()
for f in "$root"/tests/cuda/*.cpp; do [ "$(basename "$f")" = measure.cpp ] || tests+=("$(object "$f")"); done
g++ "${tests[@]}" objects/kernels_{cuda_loader,device}.cpp.o objects/base_*.o ${GTEST_LIBRARY:+-L"$GTEST_LIBRARY"} -lgtest \
  -ldl -lpthread -o bin/cuda_tests
g++ objects/tests_cuda_measure.cpp.o objects/kernels_{cuda_loader,device}.cpp.o objects/base_*.o -ldl -o bin/cuda_measure
echo "built for $capability in $(($(date +%s) - started)) s"
grep -hE '[1-9][0-9]* bytes spill' objects/*.log && echo "spills: see objects/*.log" || echo "no kernel spills registers"
status=0
TRIAX_TEST_DEVICE=cuda bin/cuda_tests || status=$?
[ "$status" -ne 77 ] || exit 77
bin/cuda_measure

# ---- The whole program ----------------------------------------------------------------------------------------------
if [ ! -x "$triax" ]; then
  echo "check_gpu: $triax is not there: nothing is trained. Building it needs, besides the above, MPI (MPICH) and a"
  echo "parallel HDF5 made with it, with the other libraries of scripts/dependencies.txt: install them ('make setup' names"
  echo "the packages) and run 'make check-gpu', or bring build/cuda from a machine with the same system and CUDA."
  exit $status
fi
export OMP_NUM_THREADS=1
runs=$build/runs
rm -rf "$runs"
mkdir -p "$runs"
# Value of a key in the last line of a run's metrics, and the median over its lines but the first two.
median() { sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p" "$2" | tail -n +3 | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
last() { sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p" "$2" | tail -1; }
train() { # name, options
  local name=$1
  shift
  "$triax" train --device cuda --mock-data --eval-iters 0 --run-dir "$runs/$name" --lr 1e-4 --log-throughput "$@" \
    >"$runs/$name.out" 2>"$runs/$name.err" || { echo "check_gpu: $name failed:"; tail -5 "$runs/$name.err"; return 1; }
}
echo
echo "| training on one GPU | tokens/s | TFLOP/s | MFU, against its own GEMM | peak GiB | loss |"
echo "|---|---|---|---|---|---|"
row() { # name
  local metrics=$runs/$1/metrics.jsonl peak
  peak=$(sed -n 's/.*peak for MFU \([0-9.]*\).*/\1/p' "$runs/$1.err" | head -1)
  awk -v name="$1" -v tokens="$(median tokens_per_s "$metrics")" -v tflops="$(median model_tflops "$metrics")" \
    -v peak="$peak" -v memory="$(last peak_memory_bytes "$metrics")" -v loss="$(last lm_loss "$metrics")" 'BEGIN {
      printf "| %s | %.0f | %.1f | %.1f %% of %.0f | %.1f | %.4f |\n", name, tokens, tflops, 100 * tflops / peak, peak,
        memory / 2^30, loss }'
}
train gpt2-124m --model gpt2-124m --bf16 --micro-batch-size 16 --global-batch-size 64 --train-iters 20 &&
  row gpt2-124m || status=1
train gpt-1.3b --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 \
  --max-position-embeddings 2048 --vocab-size 50304 --bf16 --hidden-dropout 0 --attention-dropout 0 \
  --micro-batch-size 4 --global-batch-size 16 --train-iters 12 && row gpt-1.3b || status=1
TRIAX_DEVICE=cuda TRIAX_DEMO_LAYOUT=one "$root/scripts/demo.sh" "$triax" "$runs/demo" >"$runs/demo.out" 2>&1 ||
  { echo "check_gpu: the demo failed:"; tail -5 "$runs/demo.out"; status=1; }
sed -n '/validation loss\|bits per byte/p' "$runs/demo.out"
exit $status
