#!/usr/bin/env bash
# What a machine with a GPU can tell within 8 minutes: the kernels' tests there, how fast each kernel is against the GPU's own
# copy and GEMM, training of a 124M and a 1.3B model with tokens/s and MFU, the demo, and `bench all` into hw.json. Parts for
# which no time is left are named and left out. `make check-gpu` probes, builds the program where MPI and HDF5 are, and runs.
# usage: check_gpu.sh probe                ends with 5, and says why, where no GPU can be used
#        check_gpu.sh run FOLDER PROGRAM   PROGRAM: a build folder with bin/triax, bin/cuda_tests, bin/cuda_measure; without
#                                          them the kernels alone are built into FOLDER, which needs nvcc with cuBLASLt, g++,
#                                          the headers of fmt and GoogleTest with its library, neither MPI nor HDF5
#        check_gpu.sh rehearse FOLDER PROGRAM   the parts after the build on the emulated GPU, with toys
#   CHECK_GPU_STARTED: seconds since the epoch from which the 8 minutes count; FMT_INCLUDE, GTEST_INCLUDE, GTEST_LIBRARY:
#   where those are, when not on the system; CUDA_ARCHITECTURE: 80, 90a, ...
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
started=${CHECK_GPU_STARTED:-$(date +%s)}
limit=480
status=0

left() { echo $((started + limit - $(date +%s))); }
# part NAME SECONDS: whether there is time for a part that takes about so long.
part() {
  [ "$(left)" -ge "$2" ] && return
  echo "check_gpu: $1 is left out: $(left) s of $limit are left, it takes about $2"
  status=1
  return 1
}

probe() {
  local need="it needs an NVIDIA GPU of compute capability 8.0 or newer with a driver for CUDA 12.2 or newer (535)"
  local words capability
  if ! command -v nvidia-smi >/dev/null; then
    echo "check_gpu: no GPU: nvidia-smi is not found, so this machine has no driver; $need. Nothing was built." >&2
    exit 5
  fi
  words=$(timeout 30 nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>&1) && [ -n "$words" ] || {
    echo "check_gpu: no GPU answers: nvidia-smi says '$(head -1 <<<"$words")'; $need. Nothing was built." >&2
    exit 5
  }
  capability=$(head -1 <<<"$words" | tr -d .)
  if [ "$capability" -lt 80 ]; then
    echo "check_gpu: the GPU is of compute capability $(head -1 <<<"$words"); $need. Nothing was built." >&2
    exit 5
  fi
  echo "GPUs: $(timeout 30 nvidia-smi -L | head -8)"
}

# objects/kernels_cuda_gemm.cpp.o of kernels/cuda/gemm.cpp.
object() { local path=${1#"$root"/}; echo "objects/${path//\//_}.o"; }

# The tests that need the CPU device beside the GPU need its libraries, and the program's build.
alone() { [[ ! $1 =~ /(measure|accuracy|compression)\.cpp$ ]]; }

build_kernels() {
  command -v nvcc >/dev/null || { echo "check_gpu: nvcc is not in PATH" >&2; exit 2; }
  local cuda capability base libraries f
  cuda=$(cd "$(dirname "$(readlink -f "$(command -v nvcc)")")/.." && pwd)
  capability=$("$root/scripts/gpu_architecture.sh")
  local cxx=(g++ -std=c++20 -O2 -fPIC -I"$root" -DFMT_HEADER_ONLY ${FMT_INCLUDE:+-I"$FMT_INCLUDE"} ${GTEST_INCLUDE:+-I"$GTEST_INCLUDE"})
  base=(dtype error memory philox tensor)
  mkdir -p objects bin lib/triax
  {  # one line per object: its name, then the command
    for f in "$root"/kernels/cuda/*.cu; do
      echo "$root/scripts/kernel_resources.sh keep nvcc -std=c++20 -O3 -Xcompiler -fPIC -Xptxas -v -gencode" \
        "arch=compute_$capability,code=sm_$capability -I$root -c $f -o objects/$(basename "$f").o"
    done
    for f in "$root"/kernels/cuda/*.cpp "$root"/tests/cuda/*.cpp "$root"/kernels/{compression,cuda_loader,cuda_support,device}.cpp; do
      alone "$f" || [ "$f" = "$root/tests/cuda/measure.cpp" ] || continue
      echo "${cxx[*]} -I$cuda/include -c $f -o $(object "$f")"
    done
    for f in "${base[@]}"; do echo "${cxx[*]} -c $root/base/$f.cpp -o objects/base_$f.cpp.o"; done
  } | xargs -d '\n' -P "$(nproc)" -I{} bash -c '{} || { echo "failed: {}" >&2; exit 255; }'
  for libraries in "$cuda/lib64" "$cuda/targets/x86_64-linux/lib" "$cuda/lib"; do
    [ ! -e "$libraries/libcudart_static.a" ] || break
  done
  g++ -shared objects/*.cu.o objects/kernels_cuda_*.cpp.o objects/kernels_{cuda_support,device}.cpp.o \
    objects/base_*.o -L"$libraries" -Wl,-rpath,"$libraries" -lcudart_static -lcublasLt -ldl -lrt -lpthread \
    -o lib/triax/libtriax_cuda.so
  local tests=() common
  common=(objects/kernels_{compression,cuda_loader,device}.cpp.o objects/base_*.o)
  for f in "$root"/tests/cuda/*.cpp; do alone "$f" && tests+=("$(object "$f")"); done
  g++ "${tests[@]}" "${common[@]}" ${GTEST_LIBRARY:+-L"$GTEST_LIBRARY"} -lgtest -ldl -lpthread -o bin/cuda_tests
  g++ objects/tests_cuda_measure.cpp.o "${common[@]}" -ldl -o bin/cuda_measure
  "$root/scripts/kernel_resources.sh" check "$root/kernels/cuda" objects "$capability" || status=1
}

# Value of a key in the last line of a run's metrics, and the median over its lines but the first two.
values() { sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p" "$2"; }
median() { values "$1" "$2" | tail -n +3 | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
last() { values "$1" "$2" | tail -1; }

# train NAME OPTIONS: a run, and its row of the table.
train() {
  local name=$1 metrics=$runs/$1/metrics.jsonl peak
  shift
  timeout "$(left)" "$triax" train --device "$device" --mock-data --eval-iters 0 --run-dir "$runs/$name" --lr 1e-4 \
    --log-throughput "$@" >"$runs/$name.out" 2>"$runs/$name.err" || {
    echo "check_gpu: $name failed:"
    tail -5 "$runs/$name.err"
    status=1
    return
  }
  peak=$(sed -n 's/.*peak for MFU \([0-9.]*\).*/\1/p' "$runs/$name.err" | head -1)
  awk -v name="$name" -v tokens="$(median tokens_per_s "$metrics")" -v tflops="$(median model_tflops "$metrics")" \
    -v peak="${peak:-0}" -v memory="$(last peak_memory_bytes "$metrics")" -v loss="$(last lm_loss "$metrics")" 'BEGIN {
      printf "| %s | %.0f | %.3g | %s of %.3g | %.1f | %.4f |\n", name, tokens, tflops,
        (peak > 0 ? sprintf("%.1f %%", 100 * tflops / peak) : "?"), peak, memory / 2^30, loss }'
}

train_models() {
  echo
  echo "| training on one GPU | tokens/s | TFLOP/s | MFU, against its own GEMM | peak GiB | loss |"
  echo "|---|---|---|---|---|---|"
  if [ "$device" = cuda-emulated ]; then
    train toy --num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 16 \
      --vocab-size 60 --make-vocab-size-divisible-by 4 --micro-batch-size 1 --global-batch-size 2 --train-iters 5 --peak-tflops 1
    return
  fi
  part "gpt2-124m" 40 && train gpt2-124m --model gpt2-124m --bf16 --micro-batch-size 16 --global-batch-size 64 \
    --train-iters 20
  part "gpt-1.3b" 60 && train gpt-1.3b --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 \
    --max-position-embeddings 2048 --vocab-size 50304 --bf16 --hidden-dropout 0 --attention-dropout 0 \
    --micro-batch-size 4 --global-batch-size 16 --train-iters 12
  return 0
}

run_demo() {
  if TRIAX_DEVICE=$device TRIAX_DEMO_LAYOUT=one timeout "$(left)" "$root/scripts/demo.sh" "$triax" "$runs/demo" >"$runs/demo.out" 2>&1
  then
    sed -n '/validation loss\|bits per byte/p' "$runs/demo.out"
  else
    echo "check_gpu: the demo failed:"
    tail -5 "$runs/demo.out"
    status=1
  fi
}

# gpus: how many ranks take part, one for each.
gpus() { if [ "$device" = cuda-emulated ]; then echo 2; else timeout 30 nvidia-smi -L | grep -c '^GPU'; fi; }

# bench_all SECONDS: hw.json of all GPUs, and each of its figures with its share of the machine's best. One GPU has no link.
bench_all() {
  local run=("$triax" bench all)
  local count
  count=$(gpus)
  if [ "$count" -gt 1 ]; then run=("${MPIEXEC:-mpiexec}" -n "$count" "${run[@]}"); else run+=(--no-links); fi
  if timeout "$(left)" "${run[@]}" --device "$device" --budget "${1}s" --out "$runs/hw.json" "${@:2}" >"$runs/bench.out" 2>&1; then
    echo
    echo "hw.json of this machine, for triax plan, sim and mem: $runs/hw.json"
    "$triax" bench show "$runs/hw.json"
  else
    echo "check_gpu: bench all --device $device: $(tail -1 "$runs/bench.out")"
    status=1
  fi
}

program() {
  export OMP_NUM_THREADS=1
  rm -rf "$runs"
  mkdir -p "$runs"
  train_models
  if [ "$device" = cuda-emulated ]; then
    bench_all 8 --dtypes fp32
    return 0
  fi
  part "the demo" 45 && run_demo
  part "bench all" 75 && bench_all 60
  return 0
}

mode=${1:-}
case $mode in
  probe) probe; exit ;;
  run | rehearse) ;;
  *) sed -n '/^# usage/,/^#   CHECK_GPU/p' "$0" >&2; exit 2 ;;
esac
mkdir -p "${2:?}"
folder=$(cd "$2" && pwd)
built=$(realpath -m "${3:?}")
if [ "$mode" = run ]; then device=cuda; else device='cuda-emulated'; fi
runs=$folder/runs
triax=$built/bin/triax
bin=$built/bin
cd "$folder"
if [ "$mode" = run ]; then
  probe
  if [ ! -x "$bin/cuda_tests" ] || [ ! -x "$bin/cuda_measure" ]; then
    bin=$folder/bin
    build_kernels
    echo "kernels built for $("$root/scripts/gpu_architecture.sh"), $(left) s of $limit are left"
  fi
fi
filter=()
[ "$mode" = run ] || filter=("--gtest_filter=CudaElementwise.*:CudaAdamW.*")
if part "tests of the kernels" 60; then
  TRIAX_TEST_DEVICE=$device timeout "$(left)" "$bin/cuda_tests" "${filter[@]}" >kernels.out 2>&1 || status=$?
  grep -E '^\[  (FAILED|PASSED)|^SKIP' kernels.out | sort -u || true
  [ "$status" -ne 77 ] || exit 77
fi
part "speeds of the kernels" 60 && { timeout "$(left)" "$bin/cuda_measure" "$device" || status=1; }
if [ -x "$triax" ]; then
  program
else
  echo "check_gpu: $triax is not there: nothing is trained. Building it needs, besides the above, MPI (MPICH) and a"
  echo "parallel HDF5 made with it, with the other libraries of scripts/dependencies.txt: install them ('make setup' names"
  echo "the packages) and run 'make check-gpu', or bring build/cuda from a machine with the same system and CUDA."
fi
echo "check_gpu: $((limit - $(left))) s"
exit $status
