#!/usr/bin/env bash
# triax train and sample as a user runs them: files of a run, checkpoints read by h5dump, evaluation, text, stopping,
# exit codes.
triax=$1
source_dir=$2
mpiexec=${MPIEXEC:-mpiexec}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export OMP_NUM_THREADS=1
failed=0
fail() { echo "FAILED: $*"; failed=1; }
expect_code() { [ "$2" -eq "$1" ] || fail "$3: exit code $2, expected $1"; }

head -c 120000 "$source_dir/data/demo/pride_and_prejudice.txt" >text.txt
"$triax" data train-tokenizer --input text.txt --vocab-size 512 --output-prefix tok >/dev/null || fail "train-tokenizer"
"$triax" data build --input text.txt --document-separator '\n\n' --tokenizer-type GPT2BPETokenizer --vocab-file tok-vocab.json \
  --merge-file tok-merges.txt --append-eod --output-prefix novel >/dev/null || fail "data build"

model="--num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 64 --max-position-embeddings 64 --swiglu
  --normalization RMSNorm --position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights
  --micro-batch-size 2 --global-batch-size 8 --lr 3e-3 --lr-decay-style constant --data-path novel_text_document
  --split 80,20,0 --eval-iters 2 --eval-interval 100 --peak-tflops 1"
train() { # ranks, then options; output in out and err
  local ranks=$1
  shift
  # shellcheck disable=SC2086
  "$mpiexec" -n "$ranks" "$triax" train $model "$@" >out 2>err
}

# A run: its lines, its files, and weights that another layout evaluates to the same loss.
train 4 --fp64 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --train-iters 12 --log-interval 4 \
  --run-dir run --save weights --check replicas
expect_code 0 $? "train on 4 ranks"
[ "$(grep -c '^ \[.* iteration ' out)" -eq 4 ] || fail "log lines at 1, 4, 8, 12: $(cat out)"
[ "$(grep -c '"lm_loss":' run/metrics.jsonl)" -eq 13 ] || fail "12 iterations and 1 evaluation in metrics.jsonl"
for file in run.json resolved.cfg summary.json; do [ -s "run/$file" ] || fail "run/$file is missing"; done
ls run/tensorboard/events.out.tfevents.* >/dev/null 2>&1 || fail "no TensorBoard file"
grep -q 'bits per byte' out || fail "no bits per byte"
grep -q 'tp  *all_reduce' out || fail "no table of communication"
validation=$(grep 'validation loss' out)

train 1 --fp64 --skip-train --load weights --run-dir evaluated
expect_code 0 $? "skip-train on 1 rank"
[ "$(grep 'validation loss' out)" = "$validation" ] || fail "evaluation from one rank: $(cat out) is not $validation"

# One program: what `triax program hash` says before a run is what the run executes and records.
mock="--model t0 --mock-data --pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 16"
# shellcheck disable=SC2086
hash=$("$triax" program hash $mock --world-size 4 --pipeline-schedule zb-h1) || fail "program hash"
# shellcheck disable=SC2086
"$mpiexec" -n 4 "$triax" train $mock --pipeline-schedule zb-h1 --train-iters 2 --lr 1e-3 --eval-iters 0 \
  --run-dir hashed >out 2>err || fail "zb-h1 on 4 ranks: $(cat err)"
[ -n "$hash" ] && grep -q "$hash" hashed/run.json || fail "program hash $hash is not in run.json"
grep -q 'pipeline zb-h1 p2 v1 m8, measured step 2: bubble' out || fail "no line about the bubble: $(cat out)"
"$triax" trace summary hashed/trace/measured-2.json >/dev/null || fail "the run's trace cannot be read back"
[ -s hashed/trace/measured-2.svg ] || fail "no picture of the pipeline"

# Threads that wait give their core away soon, unless the user says how they wait.
# shellcheck disable=SC2086
env -u OMP_NUM_THREADS -u GOMP_SPINCOUNT -u OMP_WAIT_POLICY "$triax" train $mock --pipeline-model-parallel-size 1 \
  --train-iters 1 --lr 1e-3 --eval-iters 0 --threads 2 --run-dir waits >out 2>err || fail "two threads: $(cat err)"
grep -q '"GOMP_SPINCOUNT": "2000"' waits/run.json || fail "waiting threads keep their cores: $(cat waits/run.json)"
# shellcheck disable=SC2086
env -u OMP_NUM_THREADS GOMP_SPINCOUNT=7 "$triax" train $mock --pipeline-model-parallel-size 1 --train-iters 1 --lr 1e-3 \
  --eval-iters 0 --threads 2 --run-dir waits7 >out 2>err || fail "two threads: $(cat err)"
grep -q '"GOMP_SPINCOUNT": "7"' waits7/run.json || fail "the user's GOMP_SPINCOUNT is gone"

# The file, read by another tool.
index=weights/iter_0000012/index.h5
h5dump -H $index >header.txt || fail "h5dump cannot read the header"
grep -q 'DATASET "model.layers.1.mlp.down_proj.weight"' header.txt || fail "tensor name in the file"
grep -A2 'DATASET "lm_head.weight"' header.txt | grep -q '( 512, 32 )' || fail "true vocabulary in the file"
h5dump -a /model.num_layers $index | grep -q '(0): 2' || fail "model configuration in the file"
h5dump -d /weight/model.norm.weight $index | grep -q '(0): [01]\.' || fail "values in the file"

# Text: the same from any layout with the same seed, another with another seed.
say() { "$mpiexec" -n "$1" "$triax" sample --load weights --prompt 'It is a truth' --max-new-tokens 20 "${@:2}" 2>>err; }
one=$(say 1 --seed 7) || fail "sample"
[ "$one" = "$(say 1 --seed 7)" ] || fail "sample is not repeatable"
[ "$one" = "$(say 2 --seed 7 --pipeline-model-parallel-size 2)" ] || fail "sample differs on pp 2"
[ "$one" = "$(say 2 --seed 7 --tensor-model-parallel-size 2)" ] || fail "sample differs on tp 2"
[ "$one" != "$(say 1 --seed 8)" ] || fail "the seed has no effect"
case $one in 'It is a truth'*) ;; *) fail "the prompt does not lead: $one" ;; esac
"$triax" data train-tokenizer --input text.txt --vocab-size 400 --output-prefix other >/dev/null 2>&1
say 1 --vocab-file other-vocab.json --merge-file other-merges.txt >/dev/null
expect_code 2 $? "sample with another tokenizer"

# bf16 weights are 2-byte floats of the file.
train 2 --bf16 --train-iters 2 --save bf16 --run-dir bf16-run
expect_code 0 $? "train in bf16"
h5dump -H -d /weight/model.norm.weight bf16/iter_0000002/index.h5 | grep -q '16-bit' || fail "bf16 is not stored as 2 bytes"
h5dump -d /weight/model.norm.weight bf16/iter_0000002/index.h5 | grep -q '(0): [01]' || fail "bf16 values are not readable"

# Stopping.
train 2 --train-iters 50 --exit-interval 3 --save stopped --run-dir exit-interval
expect_code 0 $? "--exit-interval"
h5dump -a /iteration stopped/iter_0000003/index.h5 | grep -q '(0): 3' || fail "--exit-interval did not save iteration 3"
# It is not complete: the same command goes on, with another interval or evaluation too, and the last start completes it.
chain=(--train-iters 5 --save chain --load chain --run-dir chain-run)
for start in "3 --exit-interval 3" "4 --exit-interval=2 --eval-iters 1" "5"; do
  # shellcheck disable=SC2086
  train 2 "${chain[@]}" ${start#?}
  expect_code 0 $? "start of a chain that ends at ${start%% *}"
  marker=$([ "${start%% *}" = 5 ] && echo completed || echo paused)
  [ "$(cat chain-run/$marker)" = "iteration ${start%% *}" ] || fail "no $marker marker at ${start%% *}: $(ls chain-run)"
  [ "$(ls chain-run | grep -c -E '^(completed|paused)$')" -eq 1 ] || fail "two markers: $(ls chain-run)"
done
[ "$(grep -c '"step_ms"' chain-run/metrics.jsonl)" -eq 5 ] || fail "a chain of three starts: $(cat chain-run/metrics.jsonl)"
train 2 --train-iters 100000 --exit-duration-in-mins 0.02 --save stopped2 --run-dir exit-duration
expect_code 75 $? "--exit-duration-in-mins"
# shellcheck disable=SC2086
"$mpiexec" -n 2 "$triax" train $model --train-iters 1000000 --save stopped3 --run-dir signal --inject slow-save:1 >out 2>err &
job=$!
for _ in $(seq 200); do [ "$(cat signal/metrics.jsonl 2>/dev/null | wc -l)" -ge 2 ] && break; sleep 0.1; done
rank=$(pgrep -P "$(pgrep -P $job | head -1)" | tail -1) # one rank only
kill -USR1 "$rank"
sleep 0.5
kill -TERM "$rank" # while it saves
wait $job
expect_code 75 $? "SIGUSR1 to one rank"
"$triax" ckpt verify stopped3 >verified || fail "a signal did not save: $(cat verified)"
last=$(sed -n '$s/.*"iteration":\([0-9]*\),.*/\1/p' signal/metrics.jsonl)
[ "$(cat stopped3/latest_checkpointed_iteration.txt)" = "$last" ] || fail "iteration $last is not the one saved"

# Refusals and caught faults.
train 1 --train-iters 1 --hw dgx --run-dir machine
expect_code 2 $? "an unknown machine"
grep -q -- '--hw dgx: no machine of that name' err || fail "the machine is not named: $(cat err)"
for pair in 'lr 1e-3 2e-3 0.001 0.002' 'seed 7 8 7 8' 'tensor-model-parallel-size 1 2 1 2'; do
  read -r name a b in_a in_b <<<"$pair"
  # shellcheck disable=SC2086
  "$mpiexec" -n 1 "$triax" train $model --train-iters 2 --run-dir other-a --$name $a : \
    -n 1 "$triax" train $model --train-iters 2 --run-dir other-b --$name $b >out 2>err
  expect_code 2 $? "another --$name on one rank"
  grep -q -- "--$name: $in_a on rank 0, $in_b on rank 1: give all ranks the same options" err || fail "$(cat err)"
  [ "$(grep -c 'on rank 0' err)" -eq 1 ] || fail "another --$name is told by each rank: $(cat err)"
done
train 2 --train-iters 5 --load nowhere --run-dir again
expect_code 2 $? "--load of nothing"
[ "$(grep -c 'there is no checkpoint' err)" -eq 1 ] || fail "a fault is printed once per rank: $(cat err)"
train 2 --train-iters 5 --check replicas --inject skip-sync:dp --run-dir sabotage
expect_code 5 $? "skipped sum over dp"
grep -q 'check replicas' err || fail "the replica check did not speak"
# What stdout did not take is no success, and leaves no completion marker.
# shellcheck disable=SC2086
"$triax" train $model --train-iters 2 --run-dir full >/dev/full 2>err
expect_code 5 $? "stdout on a full disk"
grep -q 'standard output cannot be written' err || fail "a full disk is not named: $(cat err)"
[ ! -e full/completed ] || fail "a completion marker beside exit code 5"
# Four processes that would be four worlds: a wrong launch, and no lost rank.
# shellcheck disable=SC2086
SLURM_NTASKS=4 "$triax" train $model --train-iters 1 --run-dir worlds >out 2>err
expect_code 2 $? "Slurm's tasks without a process manager"
grep -q "Start with 'srun --mpi=pmi2 -n 4 triax" err && [ "$(wc -l <err)" -eq 1 ] || fail "more than the remedy: $(cat err)"
# What fails while a failure is told does not take its place.
mkdir -p twice/summary.json.tmp # where the summary would be written
train 1 --train-iters 2 --run-dir twice --metrics-file /dev/full
expect_code 5 $? "metrics on a full disk"
grep -q '^rank 0 .*: /dev/full: writing failed' err || fail "the first failure is not told: $(cat err)"
# A model that no host holds; a directory that cannot be made; files that are no configuration.
train 1 --train-iters 1 --run-dir huge --hidden-size 1000000 --ffn-hidden-size 4000000 --num-layers 500
expect_code 5 $? "a model of terabytes"
grep -q "out of memory (std::bad_alloc): 'triax mem'" err || fail "no word about memory: $(cat err)"
train 1 --train-iters 1 --run-dir err/run
expect_code 2 $? "a run directory within a file"
grep -q -- '--run-dir err/run: cannot be made (Not a directory); name a directory that can be' err || fail "no remedy: $(cat err)"
for file in "$triax" .; do
  train 1 --train-iters 1 --config "$file"
  expect_code 2 $? "--config $file"
  grep -qE ' (is no text|cannot be read); give the path of a file of key = value lines$' err || fail "--config: $(cat err)"
done
train 1 --train-iters 1 --config /dev/zero
expect_code 2 $? "a configuration without end"
for option in --async-save '--save-interval 2' '--keep-latest 1'; do
  # shellcheck disable=SC2086
  train 1 --train-iters 1 $option
  expect_code 2 $? "$option without --save"
  grep -q -- "--save is not given: ${option% *} is about it" err || fail "$option without --save: $(cat err)"
done
train 1 --skip-train --train-iters 1 --save-interval 2 --load nowhere
! grep -q 'is about it' err || fail "an evaluation that saves nothing needs --save: $(cat err)"
train 1 --train-iters 1 --config text.txt
expect_code 2 $? "a novel as configuration"
grep -qE '^  \.\.\. and [0-9]+ more$' err && [ "$(wc -l <err)" -eq 22 ] || fail "faults without end: $(wc err)"
exit $failed
