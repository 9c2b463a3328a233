#!/usr/bin/env bash
# The kernels of the emulated GPU on random ragged shapes, others for each seed, in several random orders of warps, lanes,
# asynchronous copies and streams: every test passes, and an output's bits do not depend on the order.
# usage: check_emulated.sh BUILD-FOLDER [SEEDS]   `make check-asan` gives a build with sanitizers; 3 seeds when not said
set -euo pipefail
build=${1:?usage: check_emulated.sh BUILD-FOLDER [SEEDS]} seeds=${2:-3}
tests=$build/bin/cuda_tests
[ -x "$tests" ] || { echo "check_emulated: there is no $tests: build the target cuda_tests first" >&2; exit 2; }
export TRIAX_TEST_DEVICE=cuda-emulated ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
faults=0

# one NAME SEED SHAPES FILTER: runs tests; their output stays in $work/NAME.
one() {
  local name=$1 seed=$2 shapes=$3 filter=$4
  if TRIAX_SIMT_SEED=$seed TRIAX_STREAM_SEED=$seed TRIAX_SHAPES_SEED=$shapes "$tests" --gtest_filter="$filter" \
      >"$work/$name" 2>&1; then
    echo "$name: $(grep -E '^\[  PASSED  \]' "$work/$name")"
  else
    faults=$((faults + 1))
    echo "$name: FAILED"
    grep -vE '^\[ (RUN  |     OK) ' "$work/$name" | tail -n 60
  fi
}
bits() { sed -n 's/^\(.*\) [0-9.e+-]*, [0-9.a-z-]* of the CPU.s, bits /\1 /p' "$work/$1"; }

for capability in 8.6 9.0; do
  export TRIAX_EMULATED_COMPUTE_CAPABILITY=$capability
  filter='-CudaTraffic.*' shapes='CudaAccuracy.*'
  if [ $capability = 9.0 ]; then  # what it has kernels of its own for
    filter='CudaAttention.*:CudaFp8.*:CudaAccuracy.Attention' shapes='CudaAccuracy.Attention'
  fi
  for ((seed = 1; seed <= seeds; seed++)); do
    one "compute capability $capability, seed $seed" "$seed" "$seed" "$filter"
  done
  # The same shapes in other orders.
  outputs=0
  for ((seed = 1; seed <= seeds; seed++)); do
    one "compute capability $capability, order $seed" "$seed" 0 "$shapes"
    bits "compute capability $capability, order $seed" >"$work/bits.$seed"
    outputs=$(wc -l <"$work/bits.$seed")
    if [ "$outputs" -eq 0 ] || ! diff "$work/bits.1" "$work/bits.$seed"; then
      faults=$((faults + 1))
      echo "the bits above differ between orders 1 and $seed"
    fi
  done
  echo "compute capability $capability: $outputs outputs have the same bits in $seeds orders"
done
[ $faults -eq 0 ] || { echo "check_emulated: $faults faults"; exit 1; }
