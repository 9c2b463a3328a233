#!/usr/bin/env bash
# The same model trained by Triax and by PyTorch on this machine's CPU, in turn: median tokens/s of each and the ratio.
#   scripts/compare_torch.sh [-n steps] [-t turns] [-j threads] [-p python[,python...]] [-c] [-a] [triax] [case...]
# Cases: 10m-fp32 10m-bf16 gpt2-fp32 gpt2-bf16 (all four without any) and llmc-fp32, GPT-2 with B 4, T 64 as in llm.c's
# CPU trainer. -c adds a row through torch.compile. A Python without torch is left out and said so. Both sides take the
# same shapes, threads, random tokens, gradient clipping and AdamW, no dropout; bf16 is autocast there and bf16 weights
# with fp32 masters here. GPT-2 has 50304 words there too: Triax pads 50257 to them, and torch is faster with them; it
# has as many positions as tokens, here there are 1024, which the first column of numbers shows.
# torch multiplies fp32 by Intel's MKL, which gives other makers' processors slower code: half the speed on AMD's Zen 5.
# A library loaded before it answers that the processor is Intel's. -a leaves MKL as it is installed. The waits of OpenMP
# threads are torch's own, so the machine must be idle.
# The median is over all steps but the first two of each turn, which pay for page faults and the making of primitives.
set -euo pipefail
steps=6 turns=2 threads=$(nproc) pythons=python3 compile='' as_installed=''
while getopts n:t:j:p:ca option; do
  case $option in
    n) steps=$OPTARG ;;
    t) turns=$OPTARG ;;
    j) threads=$OPTARG ;;
    p) pythons=$OPTARG ;;
    c) compile=1 ;;
    a) as_installed=1 ;;
    *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))
[ "$steps" -ge 3 ] || { echo "compare_torch.sh: -n $steps: at least 3, two of them are not counted" >&2; exit 2; }
triax=${1:-build/cpu/bin/triax}
[ -x "$triax" ] || { echo "compare_torch.sh: no program at $triax; give its path first" >&2; exit 2; }
shift $(($# > 0))
[ $# -gt 0 ] || set -- 10m-fp32 10m-bf16 gpt2-fp32 gpt2-bf16
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

usable=()
for python in ${pythons//,/ }; do
  if "$python" -c 'import torch' 2>"$work/why"; then
    usable+=("$python")
  else
    echo "no torch in $python: $(tail -1 "$work/why")"
  fi
done

preload=''
if [ -z "$as_installed" ] && [ ${#usable[@]} -gt 0 ] && ! grep -q GenuineIntel /proc/cpuinfo; then
  echo 'int mkl_serv_intel_cpu_true(void) { return 1; }' >"$work/mkl.c"
  if cc -shared -fPIC -o "$work/mkl.so" "$work/mkl.c" 2>"$work/why"; then
    preload=$work/mkl.so
  else
    echo "MKL stays as it is installed, no compiler: $(tail -1 "$work/why")"
  fi
fi

median() { sort -g "$1" | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }

run_triax() {  # file of milliseconds
  rm -rf "$work/run"
  # shellcheck disable=SC2086
  OMP_NUM_THREADS=$threads "$triax" train $ours --threads "$threads" --mock-data --train-iters "$steps" --lr 1e-4 \
    --eval-iters 0 --hidden-dropout 0 --attention-dropout 0 --seed 1 --run-dir "$work/run" >"$work/log" 2>&1 ||
    { cat "$work/log"; exit 1; }
  grep -o '"parameters": *[0-9]*' "$work/run/run.json" | sed 's/.*: *//' >"$1.parameters"
  grep -o '"step_ms": *[0-9.e+-]*' "$work/run/metrics.jsonl" | tail -n +3 | sed 's/.*: *//' >>"$1"
}

run_torch() {  # python, file of milliseconds, more options
  # shellcheck disable=SC2086
  LD_PRELOAD=$preload OMP_NUM_THREADS=$threads "$1" "$here/compare_torch.py" $theirs --threads "$threads" \
    --steps "$steps" ${3:-} >"$work/out" 2>"$work/log" || { cat "$work/log"; exit 1; }
  tail -n +3 "$work/out" | cut -d' ' -f1 >>"$2"
  grep '^#' "$work/log" | sed 's/^# //; s/,.*//' >"$2.name"
  grep -o '[0-9]* parameters' "$work/log" | sed 's/ .*//' >"$2.parameters"
}

printf '%-10s %-44s %10s %10s %10s %8s\n' case program parameters 'ms/step' 'tokens/s' ratio
for name in "$@"; do
  case $name in
    10m-*) ours="--model llama-10m --micro-batch-size 8 --global-batch-size 8" tokens=2048
      theirs="--llama --layers 6 --hidden 320 --heads 5 --ffn 832 --vocab 8192 --seq 256 --batch 8" ;;
    gpt2-*) ours="--model gpt2-124m --seq-length 256 --micro-batch-size 4 --global-batch-size 4" tokens=1024
      theirs="--layers 12 --hidden 768 --heads 12 --ffn 3072 --vocab 50304 --seq 256 --batch 4" ;;
    llmc-*) ours="--model gpt2-124m --seq-length 64 --micro-batch-size 4 --global-batch-size 4" tokens=256
      theirs="--layers 12 --hidden 768 --heads 12 --ffn 3072 --vocab 50304 --seq 64 --batch 4" ;;
    *) echo "compare_torch.sh: unknown case $name" >&2; exit 2 ;;
  esac
  case $name in
    *-fp32) ours="$ours --no-bf16" ;;
    *-bf16) ours="$ours --bf16" theirs="$theirs --bf16" ;;
    *) echo "compare_torch.sh: case $name: ends in -fp32 or -bf16" >&2; exit 2 ;;
  esac
  for _ in $(seq "$turns"); do
    run_triax "$work/$name.triax"
    for i in "${!usable[@]}"; do
      run_torch "${usable[$i]}" "$work/$name.torch$i"
      [ -z "$compile" ] || run_torch "${usable[$i]}" "$work/$name.torch$i.compiled" --compile
    done
  done
  ms=$(median "$work/$name.triax")
  awk -v n="$name" -v ms="$ms" -v t="$tokens" -v c="$(cat "$work/$name.triax.parameters")" \
    'BEGIN {printf "%-10s %-44s %10d %10.1f %10.0f\n", n, "triax", c, ms, t * 1e3 / ms}'
  for file in "$work/$name".torch*.name; do
    [ -f "$file" ] || continue
    label=$(cat "$file")
    [[ $file == *compiled* ]] && label="$label compiled"
    [ -z "$preload" ] || label="$label, MKL unlocked"
    awk -v n="$name" -v p="$label" -v ours="$ms" -v ms="$(median "${file%.name}")" -v t="$tokens" \
      -v c="$(cat "${file%.name}.parameters")" \
      'BEGIN {printf "%-10s %-44s %10d %10.1f %10.0f %8.2f\n", n, p, c, ms, t * 1e3 / ms, ms / ours}'
  done
done
