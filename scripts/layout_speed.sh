#!/usr/bin/env bash
# Tokens/s of one model in several layouts on this machine, in one run: layouts take turns, medians and ratios are printed.
#   scripts/layout_speed.sh [triax] [model] [fp32|bf16] [iterations a turn] [turns] [layouts, a regular expression] [micro-batch]
# The table of docs/performance.md is made by this script. Data are mock: only speed is measured.
set -euo pipefail
triax=${1:-build/cpu/bin/triax}
model=${2:-llama-10m}
precision=${3:-fp32}
iterations=${4:-6}
turns=${5:-2}
wanted=${6:-.}
micro=${7:-1}
# The presets are bf16.
precision_flag=--$precision
[ "$precision" = fp32 ] && precision_flag=--no-bf16
# The last stage also holds the head, so it gets fewer layers: the best split of these models.
case $model in
  llama-10m) split="--decoder-first-pipeline-num-layers 4" ;;
  gpt2-124m) split="--decoder-first-pipeline-num-layers 9" ;;
  *) split="" ;;
esac
case $model in
  # Five heads cannot be cut in two: four heads of 80 have the same parameters and FLOPs.
  llama-10m) batch="--micro-batch-size 4 --global-batch-size 32 --group-query-attention --num-attention-heads 4
    --num-query-groups 4 --kv-channels 80" ;;
  *) batch="--seq-length 256 --micro-batch-size $micro --global-batch-size $((8 * micro))" ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# name | ranks | threads a rank | options.
layouts=$(cat <<TABLE
one rank, 2 threads|1|2|
tp2|2|1|--tensor-model-parallel-size 2
tp2 + sequence parallel|2|1|--tensor-model-parallel-size 2 --sequence-parallel
pp2|2|1|--pipeline-model-parallel-size 2 $split
dp2|2|1|
dp2, ZeRO 3|2|1|--zero-stage 3
tp2 x pp2 x dp2, 8 ranks|8|1|--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2
TABLE
)
# The first row is what the others are compared with.
layouts=$(grep -E "^one rank|$wanted" <<<"$layouts")

for turn in $(seq "$turns"); do
  n=0
  while IFS='|' read -r name ranks threads options; do
    n=$((n + 1))
    # shellcheck disable=SC2086
    OMP_NUM_THREADS=$threads mpiexec -n "$ranks" "$triax" train --model "$model" $precision_flag --mock-data $batch \
      --train-iters "$iterations" --lr 1e-4 --eval-iters 0 --hidden-dropout 0 --attention-dropout 0 --seed 1 \
      --threads "$threads" --run-dir "$work/$n-$turn" $options >"$work/log" 2>&1 </dev/null || { cat "$work/log"; exit 1; }
    # The first step of a turn pays for page faults and primitive creation.
    grep -o '"tokens_per_s": *[0-9.e+-]*' "$work/$n-$turn/metrics.jsonl" | tail -n +2 | sed 's/.*: *//' >>"$work/$n.speeds"
  done <<<"$layouts"
done

median() { sort -g "$1" | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }
base=$(median "$work/1.speeds")
printf '%s, %s, %s, %s turns of %s steps, %s cores\n' "$model" "$precision" "$batch" "$turns" "$iterations" "$(nproc)"
printf '%-28s %12s %8s\n' layout 'tokens/s' ratio
n=0
while IFS='|' read -r name _; do
  n=$((n + 1))
  awk -v name="$name" -v speed="$(median "$work/$n.speeds")" -v base="$base" \
    'BEGIN {printf "%-28s %12.0f %8.3f\n", name, speed, speed / base}'
done <<<"$layouts"
