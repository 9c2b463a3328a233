#!/usr/bin/env bash
# Where the time of a training step goes: shares of one thread's time by kind of work, then every kind of product that
# the GEMM library multiplies, with the share of the step and GFLOP/s on all threads.
#   scripts/step_profile.sh [-n steps] [-j threads of the second table] [triax] [10m-fp32|10m-bf16|gpt2-fp32|gpt2-bf16]
# The shares are what `perf` counts in n + 2 steps minus what it counts in 2: start and first steps cancel. GEMM is the
# library with the code that it generates, and our own products. The second table comes from DNNL_VERBOSE and so lacks
# our own products, the weight gradients of bf16 on AVX512-BF16.
set -euo pipefail
steps=4 threads=$(nproc)
while getopts n:j: option; do
  case $option in
    n) steps=$OPTARG ;;
    j) threads=$OPTARG ;;
    *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))
triax=${1:-build/cpu/bin/triax}
name=${2:-gpt2-fp32}
[ -x "$triax" ] || { echo "step_profile.sh: no program at $triax; give its path first" >&2; exit 2; }
case $name in
  10m-*) options=(--model llama-10m --micro-batch-size 8 --global-batch-size 8) ;;
  gpt2-*) options=(--model gpt2-124m --seq-length 256 --micro-batch-size 4 --global-batch-size 4) ;;
  *) echo "step_profile.sh: unknown case $name" >&2; exit 2 ;;
esac
case $name in
  *-fp32) options+=(--no-bf16) ;;
  *-bf16) options+=(--bf16) ;;
  *) echo "step_profile.sh: case $name: ends in -fp32 or -bf16" >&2; exit 2 ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

train=("$triax" train "${options[@]}" --mock-data --lr 1e-4 --eval-iters 0 --hidden-dropout 0 --attention-dropout 0
  --seed 1 --log-interval 1 --peak-tflops 1)
count() {  # iterations: samples of each kind of work
  OMP_NUM_THREADS=1 perf record -q -F 400 -o "$work/perf" -- "${train[@]}" --threads 1 --train-iters "$1" \
    --run-dir "$work/run-$1" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
  # Names as the compiler writes them hold the types of the arguments, which tell the kernels apart.
  perf report -i "$work/perf" --no-demangle -n --sort dso,symbol -t '|' 2>/dev/null | awk -F '|' '
    !/^#/ && NF >= 4 {
      n = $2; dso = $3; s = $4
      kind = dso ~ /kernel/ ? "kernel" : "others"
      if (dso ~ /JIT|anon|\/\/|dnnl|openblas|perf-/ || s ~ /6TargetI|8GemmArgs|pack_(straight|rows_of_a|group|transposed)/)
        kind = "GEMM"
      else if (s ~ /AttentionArgs|multiply_tile/) kind = "attention"
      else if (s ~ /gelu|swiglu/) kind = "SwiGLU, GELU"
      else if (s ~ /CrossEntropyArgs/) kind = "cross-entropy"
      else if (s ~ /adamw|sum_of_squares|sgd/) kind = "AdamW, norm of gradients"
      else if (s ~ /Norm(Grad)?Args|rotary|RotaryArgs|BiasDropout|column_sum|isa_.*(copy|add|scale)I|mem(cpy|set|move)/)
        kind = "norms, rotary, biases, copies"
      sum[kind] += n
    }
    END {for (k in sum) print sum[k] "|" k}'
}

if command -v perf >/dev/null; then
  count 2 >"$work/short"
  count $((steps + 2)) >"$work/long"
  awk -F '|' -v name="$name" '
    NR == FNR {n[$2] = -$1; next}
    {n[$2] += $1}
    END {
      for (k in n) if (n[k] > 0) all += n[k]
      for (k in n) if (n[k] > 0) printf "%-10s %-32s %5.1f %%\n", name, k, 100 * n[k] / all
    }' "$work/short" "$work/long" | sort -k1,1 -s -t '%' -r | sort -s -t '%' -k1.44,1.49gr
else
  echo "step_profile.sh: no perf (Debian linux-perf): shares are left out"
fi

OMP_NUM_THREADS=$threads DNNL_VERBOSE=1 "${train[@]}" --threads "$threads" --train-iters $((steps + 2)) \
  --run-dir "$work/verbose" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
awk -F, -v steps="$steps" -v name="$name" '
  /^(onednn|dnnl)_verbose,.*exec,.*,matmul,/ && step >= 2 {
    split($(NF - 1), shape, /[x:]/)  # m x k : k x n : m x n
    a = $0 ~ /src_[a-z0-9]*::blocked:ba/ ? "^T" : ""
    b = $0 ~ /wei_[a-z0-9]*::blocked:ba/ ? "^T" : ""
    key = sprintf("A%s B%s, m n k %d %d %d", a, b, shape[1], shape[4], shape[2])
    ms[key] += $NF
    flop[key] += 2.0 * shape[1] * shape[4] * shape[2]
    all += $NF
  }
  /elapsed time per iteration/ {
    step++
    if (step > 2) {
      match($0, /\(ms\): [0-9.]+/)
      total += substr($0, RSTART + 6, RLENGTH - 6)
    }
  }
  END {
    printf "%-10s %d steps of %.1f ms, %.1f %% of them in the products of the library\n", name, steps, total / steps,
      100 * all / total
    for (k in ms) printf "%-10s %-34s %5.1f %% of the step %6.0f GFLOP/s\n", name, k, 100 * ms[k] / total,
      flop[k] / ms[k] / 1e6 | "sort -k10,10gr"
  }' "$work/log"
