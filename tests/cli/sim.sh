#!/usr/bin/env bash
# `triax sim` as a user runs it: sim.sh TRIAX SOURCE. Faults, forms, sums, what-if questions, determinism, size.
. "$(dirname "$0")/expect.sh"

sim() { "$triax" sim "$@"; }
small=(--model t1 --hw a100 --pipeline-model-parallel-size 2 --data-parallel-size 4 --num-microbatches 8 --zero-stage 1
  --micro-batch-size 1)
gpt3=(--model gpt3-175b --hw selene --tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 --micro-batch-size 1
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1)

expect 0 'usage: triax sim' sim --help
expect 0 'rtx4090 ' sim --list-hw
expect 0 "a100-40gb " "$triax" --list-hw
expect 0 'pp_comm          waits in which the message is on the wire' sim --describe
expect 2 'sim: needs a model' sim --hw a100
expect 2 '--hw is not given' sim --model t0
expect 2 '--hw a100-80: no machine of that name; did you mean a100-80gb?' sim --model t0 --hw a100-80
expect 2 '--hw no/such.json: cannot be read' sim --model t0 --hw no/such.json
expect 2 'v100-dgx2: has no peak for bf16' sim --model t0 --hw v100
expect 2 '--scale-bw pcie: a100-80gb has no such link; it has nvlink, infiniband' sim --model t0 --hw a100 --scale-bw pcie=2
expect 2 'must be LINK=X' sim --model t0 --hw a100 --scale-bw nvlink
expect 2 'must be a positive number' sim --model t0 --hw a100 --scale-flops 0
expect 2 'must be a positive number from 0.001 to 1000' sim --model t0 --hw a100 --scale-flops 1e-300
expect 2 '--svg: not with --verify' sim --verify . --hw a100 --svg a.svg
# What the help gives as an example runs.
example=$(sim --help | sed -n '/triax sim --model/,/[^\\]$/p' | tr -d '\\\n' | sed 's/^ *triax sim//')
# shellcheck disable=SC2086
expect 0 'gpt3-175b on a100-80gb' sim $example
expect 2 'must be rank=N:FACTOR with a rank from 0 to 7' sim "${small[@]}" --straggler rank=8:1.3
expect 2 '--replica 4: must be from 0 to 3' sim "${small[@]}" --replica 4
expect 2 '--world-size 7: must be tp x pp x d' sim --model t0 --hw a100 --tensor-model-parallel-size 2 --world-size 7
expect 2 'must divide --num-attention-heads' sim --model t0 --hw a100 --tensor-model-parallel-size 3
expect 3 'DOES NOT FIT' sim --model gpt3-175b --hw a100 --micro-batch-size 1

# The same input gives the same bytes; the program is the one that every command prints.
sim "${small[@]}" > "$work/a" && sim "${small[@]}" > "$work/b" && cmp -s "$work/a" "$work/b" || fault 'sim differs from itself'
sim "${small[@]}" --jitter 0.02 --format json > "$work/a" && sim "${small[@]}" --jitter 0.02 --format json > "$work/b"
cmp -s "$work/a" "$work/b" || fault 'sim --jitter differs from itself'
hash=$("$triax" program hash --model t1 --pipeline-model-parallel-size 2 --data-parallel-size 4 --num-microbatches 8 \
  --zero-stage 1 --micro-batch-size 1)
expect 0 "program $hash" sim "${small[@]}"

# CSV: the parts of every line sum to its step, to a picosecond.
sums() {
  sim "$@" --format csv | awk -F, '
    NR == 1 { for (i = 2; i <= NF; i++) if ($i == "step_s") last = i; next }
    { s = 0; for (i = 2; i < last; i++) s += $i; d = s - $last; if (d > 1e-12 * NF || d < -1e-12 * NF) exit 1 }
    END { if (NR < 3) exit 1 }' || fault "sim $*: parts do not sum to the step"
}
sums "${small[@]}"
sums "${small[@]}" --jitter 0.05 --straggler rank=5:1.3 --replica 2
sums "${gpt3[@]}" --world-size 64 --global-batch-size 64 --num-virtual-stages-per-pipeline-rank 3

value() {  # NAME OPTIONS...: a number at the top of the JSON
  local name=$1
  shift
  sim "$@" --format json | sed -n "s/^  \"$name\": \([0-9]*\).*/\1/p"
}
base=$(value step_ps "${gpt3[@]}" --world-size 64 --global-batch-size 64)
[ "$(value step_ps "${gpt3[@]}" --world-size 64 --global-batch-size 64 --scale-bw nvlink=2)" -lt "$base" ] || fault 'faster NVLink is no faster'
[ "$(value step_ps "${gpt3[@]}" --world-size 64 --global-batch-size 64 --scale-bw ib=0.1)" -gt "$base" ] || fault 'slower network is no slower'
[ "$(value step_ps "${gpt3[@]}" --world-size 64 --global-batch-size 64 --scale-flops 1.5)" -lt "$base" ] || fault 'faster devices are no faster'
[ "$(value step_ps "${gpt3[@]}" --world-size 64 --global-batch-size 64 --straggler rank=5:1.3)" -gt "$base" ] || fault 'a straggler costs nothing'
# Twice the published step of Korthikanti 2022 table 5 (18.13 s, another version of the layout) would be a wrong model.
[ "$base" -gt 12000000000000 ] && [ "$base" -lt 27000000000000 ] || fault "GPT-3 175B on 64 A100: $base ps"

# 16384 devices, under 1 GB of memory.
(ulimit -v 1000000; expect 0 '(16384 ranks)' sim --model gpt3-175b --hw h100 --tensor-model-parallel-size 8 --sequence-parallel \
  --pipeline-model-parallel-size 16 --world-size 16384 --global-batch-size 16384 --micro-batch-size 1 --train-tokens 300e9)

sim "${small[@]}" --chrome "$work/step.json" --svg "$work/step.svg" > /dev/null || fault 'sim --chrome --svg'
expect 0 F "$triax" trace summary "$work/step.json"
grep -q '</svg>' "$work/step.svg" || fault 'no SVG'
# A real run held against its prediction: memory to the byte.
"$mpiexec" -n 2 "$triax" train --model t1 --no-bf16 --mock-data --pipeline-model-parallel-size 2 --micro-batch-size 1 \
  --global-batch-size 8 --lr 1e-3 --train-iters 3 --eval-iters 0 --run-dir real >/dev/null 2>&1 || fault 'the real run failed'
"$triax" sim --verify real --hw rtx4090 >verified || fault "sim --verify: $(cat verified)"
awk '$1 == "memory" { same = $2 == $3 } END { exit !same }' verified || fault "memory predicted and measured: $(grep memory verified)"

exit $((faults > 0))
