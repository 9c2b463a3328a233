#!/usr/bin/env bash
# The binary as a user runs it: triax.sh TRIAX SOURCE. Dispatch, exit codes, refusals printed once, a run directory that
# repeats its run.
. "$(dirname "$0")/expect.sh"
source_dir=$2

# expect_once TEXT COMMAND...: exactly one line has the text, however many ranks there are.
expect_once() {
  local text=$1
  shift
  local lines
  lines=$("$@" 2>&1 | grep -cF -- "$text")
  [ "$lines" -eq 1 ] || fault "$*: \"$text\" stands in $lines lines"
}

ranks() { "$mpiexec" -n "$@"; }
train=("$triax" train --config "$source_dir/configs/parity-t1.cfg")

expect 0 'usage: triax COMMAND' "$triax" --help
expect 2 'usage: triax COMMAND' "$triax"
expect 0 'compiler' "$triax" --version
expect 0 'llama3-70b' "$triax" --list-models
expect 0 'llama3-70b' "$triax" train --list-models
expect 2 'did you mean options?' "$triax" optins
expect 0 '--micro-batch-size N' "$triax" train --help
expect 0 '--eval-split' "$triax" train --help
expect 2 'takes --markdown, --man, --completion bash, or nothing' "$triax" options --html
"$triax" options --markdown >from-megatron.md
cmp from-megatron.md "$source_dir/docs/from-megatron.md" || fault 'docs/from-megatron.md is not current'
"$triax" options >/dev/full 2>full.txt && fault 'a full disk looks like success'

expect 0 '4 ranks on 1 node(s): tensor 2 x pipeline 2 x data 1' ranks 4 "$triax" topo \
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2
expect 0 'tp   {0,1} {2,3}' ranks 4 "$triax" topo --tensor-model-parallel-size 2
expect 0 'on 2 node(s)' ranks 4 "$triax" topo --fake-nodes 2
expect 2 'must divide the 4 ranks' ranks 4 "$triax" topo --tensor-model-parallel-size 3

# Refusals: before anything is made, exit code 2, said once by all ranks together.
expect 2 'did you mean --hidden-size?' ranks 2 "${train[@]}" --hidden 7
expect 2 '2 faults in the run:' ranks 2 "${train[@]}" --min-lr 1 --micro-batch-size 3
expect_once 'faults in the run' ranks 4 "${train[@]}" --min-lr 1 --micro-batch-size 3
expect 2 'must divide the 2 dp ranks' ranks 2 "${train[@]}" --use-distributed-optimizer --zero-shard-group 3
expect 2 'or --mock-data for made-up tokens' ranks 2 "${train[@]}" --no-mock-data
[ ! -e runs ] || fault 'a refused run left a run directory'

# A run leaves its directory; resolved.cfg alone repeats it to the last bit.
layout=(--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --sequence-parallel --train-iters 4)
expect 0 'run ended: finished at iteration 4' ranks 4 "${train[@]}" "${layout[@]}" --run-dir first --use-mcore-models
for file in run.json resolved.cfg metrics.jsonl summary.json; do
  [ -s first/$file ] || fault "first/$file is missing"
done
ls first/tensorboard/events.out.tfevents.* >/dev/null || fault 'no TensorBoard file'
[ "$(grep -c '"iteration"' first/metrics.jsonl)" -eq 4 ] || fault 'metrics.jsonl has not 4 lines'
cp first/resolved.cfg again.cfg
expect 0 'finished at iteration 4' ranks 4 "$triax" train --config again.cfg --run-dir second
losses() { grep -o '"iteration":[0-9]*,"lm_loss":[^,]*,"grad_norm":[^,]*' "$1/metrics.jsonl"; }
[ -n "$(losses first)" ] || fault 'no losses in metrics.jsonl'
[ "$(losses first)" = "$(losses second)" ] || fault "losses differ: $(losses first) and $(losses second)"
cmp first/resolved.cfg second/resolved.cfg || fault 'resolved.cfg differs'
expect 2 'holds another run' ranks 4 "${train[@]}" "${layout[@]}" --run-dir first
expect 0 'finished' ranks 4 "${train[@]}" "${layout[@]}"
ls -d runs/t1-tp2-pp2-dp1-20* >/dev/null || fault 'no run directory of the default name'

# One log line: Megatron-LM's, as its tools read it.
"$mpiexec" -n 1 "${train[@]}" --train-iters 1 --run-dir third 2>/dev/null |
  grep -qE '^ \[[0-9-]+ [0-9:.]+\] iteration +1/ +1 \| consumed samples: +8 \| elapsed time per iteration \(ms\): [0-9.]+ \| throughput per GPU \(TFLOP/s/GPU\): [0-9.]+ \| learning rate: 1\.000000E-03 \| global batch size:     8 \| lm loss: [0-9.]+E\+00 \| loss scale: 1\.0 \| grad norm: [0-9.]+ \| number of skipped iterations:   0 \| number of nan iterations:   0 \|' ||
  fault 'the log line is not Megatron-LM'"'"'s'

# What a file holds does not steer the terminal: bytes that are no text are spelled, letters are not.
printf 'lr = \033[31m1\r2\n\033]0;x\007 novel\n\377\302\233 caf\303\251\nkey\010 = 1\n' >steer.cfg
head -c 5000 /dev/zero | tr '\0' 'y' >>steer.cfg
"${train[@]}" --config steer.cfg 2>steer.err
[ $? -eq 2 ] || fault "a configuration that steers the terminal: $(cat -v steer.err)"
for text in '\x1b[31m1\x0d2' "steer.cfg:2: '\x1b]0;x\x07 novel' is not" "steer.cfg:3: '\xff\xc2\x9b café' is not" 'key\x08' "yyy...' is not"; do
  grep -qF -- "$text" steer.err || fault "no '$text' in: $(cat -v steer.err)"
done
LC_ALL=C grep -q $'[\001-\010\013-\037\177\233\377]' steer.err && fault "bytes that steer: $(cat -v steer.err)"

[ $faults -eq 0 ] && echo "ok: triax"
exit $((faults > 0))
