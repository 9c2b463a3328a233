#!/usr/bin/env bash
# `triax plan` as a user runs it: plan.sh TRIAX SOURCE. Answers, formats, emitted files that run, trials, faults.
. "$(dirname "$0")/expect.sh"

plan() { "$triax" plan "$@"; }
llama=(--model llama2-13b --hw a100 --global-batch-size 64)

expect 0 'usage: triax plan' plan --help
expect 0 'simulated op by op' plan --describe
expect 0 'published, unmeasured' plan --list-hw
expect 2 '--hw is not given' plan --model t0
expect 2 'did you mean a100-80gb?' plan --model t0 --hw a100-80g --gpus 8 --global-batch-size 8
expect 2 'needs a model' plan --hw a100 --gpus 8
expect 2 '--global-batch-size is not given' plan --model llama2-7b --hw a100 --gpus 8
expect 2 '--gpus is not given' plan "${llama[@]}"
expect 2 'must be 8, 8,16 or 8..64' plan "${llama[@]}" --gpus 8..4
expect 2 'must be of gpipe, 1f1b' plan "${llama[@]}" --gpus 8 --schedules fast
expect 2 'must be whole numbers from 0 to 3' plan "${llama[@]}" --gpus 8 --zero 4
expect 2 'must be whole numbers' plan "${llama[@]}" --gpus 8 --tp 1,,2
expect 2 'its value is none of --tp' plan "${llama[@]}" --gpus 8 --tensor-model-parallel-size 2 --tp 1,4
expect 2 'did you mean a100?' plan --model t0 --hw a1000 --gpus 8 --global-batch-size 8
expect 2 'nofile.json: cannot be read' plan --model t0 --hw nofile.json --gpus 8 --global-batch-size 8
expect 2 'above 0 and at most 1' plan "${llama[@]}" --gpus 8 --max-mem 1.2

expect 0 'why: communication against computing' plan "${llama[@]}" --gpus 16
expect 0 'other values' plan "${llama[@]}" --gpus 16
expect 3 'devices hold it' plan "${llama[@]}" --gpus 1
# An option of the run fixes its axis, a list restricts it.
plan "${llama[@]}" --gpus 16 --tensor-model-parallel-size 4 --zero 1 --format csv --top 50 >fixed.csv || fault "csv"
awk -F, 'NR > 1 && ($3 != 4 || $8 != 1) { exit 1 }' fixed.csv || fault "a fixed axis moved"
[ "$(wc -l <fixed.csv)" -gt 2 ] || fault "nothing but a header"
# Every other option is the run's own: kept in what is emitted, or refused by name, never replaced.
expect 0 'written' plan "${llama[@]}" --gpus 16 --recompute-granularity full --recompute-method block --recompute-num-layers 2 \
  --pp 1,2 --emit kept
grep -qx 'recompute-num-layers = 2' kept/run.cfg || fault "run.cfg: $(grep recompute kept/run.cfg)"
closed=$(sed -n 's/.*"closed_form_step_s": \([0-9.]*\).*/\1/p' kept/plan.json | head -1)
step=$(sed -n 's/.*"step_s": \([0-9.]*\).*/\1/p' kept/plan.json | head -1)
awk -v a="$closed" -v b="$step" 'BEGIN { exit !(a / b < 1.05 && a / b > 0.95) }' || fault "closed form $closed, simulated $step"
# What was emitted is a question again, and so is what a run resolved: options that are off ask for nothing.
grep -qx 'zero-hpz-partition-size = 1' kept/run.cfg || fault 'run.cfg names no option that is off'
expect 0 'zero3 b2 full-recompute' plan --config kept/run.cfg --hw a100 --gpus 16
for option in '--num-layers-per-virtual-pipeline-stage 2' '--zero-stage 3 --zero-hpz-partition-size 8' \
  '--decoder-first-pipeline-num-layers 6'; do
  # shellcheck disable=SC2086
  expect 2 'prices one' plan "${llama[@]}" --gpus 16 $option
done
expect 2 'takes none of the layouts that fit' plan "${llama[@]}" --gpus 16 --zero 2 --grad-compression topk --tp 1 --pp 1
expect 0 'changes the run but not the predicted time' plan "${llama[@]}" --gpus 16 --grad-compression int8 --zero 0
expect 0 'zero3' plan "${llama[@]}" --gpus 16 --zero-stage 3 --zero-reshard-after backward --tp 1 --pp 1
expect 0 'llama3-70b' plan --list-models
expect 2 'not with --verify' plan --hw a100 --verify nowhere --gpus 8
# The same question, the same bytes.
plan "${llama[@]}" --gpus 16 --format json >a.json && plan "${llama[@]}" --gpus 16 --format json >b.json
cmp -s a.json b.json || fault "two answers to one question"
plan "${llama[@]}" --gpus 16..64 --format csv >range.csv || fault "range"
[ "$(tail -n +2 range.csv | cut -d, -f1 | tr '\n' ' ')" = "16 32 64 " ] || fault "range.csv: $(cat range.csv)"

# What is emitted runs, as it was planned: two ranks of this machine.
tiny=(--model t1 --hw rtx4090 --gpus 2 --global-batch-size 8 --fp64)
expect 0 'mean error' plan "${tiny[@]}" --emit out --try 2 --launcher "$mpiexec -n {ranks}"
bash -n out/run.slurm || fault "run.slurm does not parse"
grep -q '^#SBATCH --ntasks-per-node=2$' out/run.slurm || fault "run.slurm: tasks"
[ -s out/try-1/run/metrics.jsonl ] || fault "the trial left no metrics"
expect 0 '1 layouts divide' plan --config out/try-1/run/resolved.cfg --hw rtx4090 --gpus 2
# A trial takes nothing from the checkpoints of the run that is planned, and puts nothing among them.
mkdir mine && echo 50 >mine/latest_checkpointed_iteration.txt
printf 'save = mine\nload = mine\nsave-interval = 5\nkeep-latest = 1\nasync-save = true\nmetrics-file = mine.jsonl\n' >mine.cfg
expect 0 'mean error' plan "${tiny[@]}" --config mine.cfg --emit tried --try 1 --launcher "$mpiexec -n {ranks}"
[ "$(ls mine)$(cat mine/*)" = latest_checkpointed_iteration.txt50 ] || fault "a trial wrote among checkpoints: $(ls mine)"
[ ! -e mine.jsonl ] || fault 'a trial wrote the metrics of the run'
# The file says how many ranks it is for, and the simulator agrees to the last digit.
step() { grep -o '"step_s": [0-9.e-]*' "$1" | head -1; }
grep -q 'from --world-size 2$' out/run.cfg || fault "run.cfg does not say for how many ranks it is"
"$triax" sim --config out/run.cfg --world-size 2 --hw rtx4090 --format json >sim.json || fault "sim does not take run.cfg"
[ "$(step sim.json)" = "$(step out/plan.json)" ] || fault "plan says $(step out/plan.json), sim $(step sim.json)"
first=$(sed -n 's/^# \(.*\): predicted step .*/\1/p' out/run.cfg)
grep -qF "\"layout\": \"$first\"" out/plan.json || fault "run.cfg holds $first, plan.json does not"
expect 0 '' "$mpiexec" -n 2 "$triax" train --config out/run.cfg --mock-data --train-iters 2 --run-dir again
exit $((faults > 0))
