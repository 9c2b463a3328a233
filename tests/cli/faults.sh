#!/usr/bin/env bash
# faults.sh TRIAX SOURCE_DIR [FIRST COUNT]: random faults FIRST to FIRST+COUNT-1 of a fixed sequence, each in a job of 4
# ranks. Each must end the job with a failure, name the rank, leave no completion marker; the same command, given again,
# must end with the bits of a run that nothing disturbed. Then single cases about signals and options.
source "$(dirname "$0")/expect.sh"
first=${3:-0}
count=${4:-20}
deadline_s=2
limit_s=40 # a job that takes longer hangs: the deadline, 5 s, and a machine under load
iterations=6
options="--model t0 --mock-data --micro-batch-size 1 --global-batch-size 8 --lr 1e-3 --lr-decay-style constant
  --eval-iters 0 --peak-tflops 1 --train-iters $iterations --save-interval 2 --no-tensorboard
  --distributed-timeout-minutes $(awk "BEGIN { print $deadline_s / 60 }")"
layouts=(dp4 tp2pp2 zero3 pp4)
kinds=(kill stop exit throw hang segv)
phases=(start load data forward backward message reduce optimizer report save finish)

layout_options() {
  case $1 in
    dp4) echo "" ;;
    tp2pp2) echo "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2" ;;
    zero3) echo "--zero-stage 3" ;;
    pp4) echo "--pipeline-model-parallel-size 4" ;;
  esac
}

# launch LAYOUT NAME OPTIONS...: a job that goes on with its own checkpoints in NAME-save; output in NAME.out, NAME.err.
launch() {
  local layout=$1 name=$2
  shift 2
  # shellcheck disable=SC2046,SC2086
  timeout $limit_s "$mpiexec" -n 4 "$triax" train $options $(layout_options "$layout") --run-dir "$name" \
    --save "$name-save" --load "$name-save" "$@" >"$name.out" 2>"$name.err"
}

# The numbers of the last iteration, as written.
last_of() { grep "\"iteration\":$iterations," "$1/metrics.jsonl" | grep -o '"\(lm_loss\|grad_norm\)":[^,]*'; }

# draw LIMIT: next number of the sequence, in $drawn (Park and Miller's generator).
state=1
draw() {
  state=$((state * 48271 % 2147483647))
  drawn=$((state / 7 % $1))
}

# What fault number $1 is: layout kind phase rank step occurrence.
choose() {
  state=$(($1 * 7919 + 20261))
  draw 4 && draw 4 && layout=${layouts[drawn]}
  while true; do
    draw 11 && phase=${phases[drawn]}
    draw 6 && kind=${kinds[drawn]}
    [[ $phase = message && ($layout = dp4 || $layout = zero3) ]] && continue
    break
  done
  draw 4 && rank=$drawn
  draw 4 && step=$((drawn + 2))
  draw 2 && nth=$((drawn + 1))
  case $phase in forward | backward | message) ;; *) nth=1 ;; esac
}

prepare() { # runs nothing disturbs, and what a fault while loading loads
  for layout in "${layouts[@]}"; do
    launch "$layout" "$layout" || fault "$layout undisturbed: $(cat "$layout.err")"
    cp -r "$layout-save" "$layout-loadable"
    rm -r "$layout-loadable/iter_0000006" && echo 4 >"$layout-loadable/latest_checkpointed_iteration.txt"
  done
}

one_fault() {
  choose "$1"
  strike "fault-$1"
}

# strike NAME: one job with the fault that $layout, $kind, $phase, $rank, $step and $nth say, and one that goes on.
strike() {
  local name=$1 spec="fault:$kind:$phase:$rank:$step:$nth"
  local what="$name, $layout, --inject $spec"
  [ $phase = load ] && cp -r "$layout-loadable" "$name-save"
  local begin
  begin=$(date +%s%N)
  launch "$layout" "$name" --inject "$spec"
  local code=$?
  local took=$((($(date +%s%N) - begin) / 1000000))
  [ $took -gt $worst ] && worst=$took && worst_what=$what
  [ $code -eq 5 ] || fault "$what: exit code $code, not 5: $(cat "$name.err")"
  [ ! -e "$name/completed" ] || fault "$what: left a completion marker"
  if [ $phase = start ]; then
    grep -q "^rank $rank (\|no answer from world rank $rank (" "$name.err" || fault "$what: rank $rank is not named: $(cat "$name.err")"
  else
    grep -q "^at fault: rank $rank (" "$name.err" || fault "$what: rank $rank is not named: $(cat "$name.err")"
    "$triax" trace blame "$name" | grep -q "^at fault: rank $rank (" || fault "$what: trace blame names another"
    [ "$(grep -c '^at fault' "$name.err")" -eq 1 ] || fault "$what: reported more than once"
  fi
  # A fault strikes in the first attempt only; before there is a run.json no attempt is on record.
  local again=(--inject "$spec")
  case $phase in start | load | data) again=() ;; esac
  launch "$layout" "$name" "${again[@]}" || fault "$what: does not go on: $(cat "$name.err")"
  [ "$(cat "$name/completed" 2>&1)" = "iteration $iterations" ] || fault "$what: no completion marker in the end"
  [ "$(last_of "$name")" = "$(last_of "$layout")" ] || fault "$what: ends with $(last_of "$name"), undisturbed $(last_of "$layout")"
  rm -rf "$name" "$name-save"
}

prepare
worst=0
worst_what=
for ((i = first; i < first + count; ++i)); do one_fault $i; done
echo "$count faults; the longest took $worst ms: $worst_what"
[ "$first" -eq 0 ] || exit $((faults > 0))

# A file system that does not answer, under one rank: while all others go on meeting it, and under a save in the background.
layout=tp2pp2 kind=hang phase=save rank=3 step=3 nth=1 && strike hang-save
launch dp4 hang-async --async-save --inject fault:hang:save:1:2
code=$?
[ $code -eq 5 ] || fault "a save in the background that hangs: exit code $code: $(cat hang-async.err)"
grep -q '^at fault: rank 1 (.* failed: the disk or file system has not answered for' hang-async.err || fault "hang-async: $(cat hang-async.err)"

# A file that does not answer when it is first looked at, before the ranks have met: a pipe that nobody writes into.
cp -r dp4-save silent-save
tracker=latest_checkpointed_iteration.txt
for file in $tracker iter_000000$iterations/index.h5; do
  mv "silent-save/$file" kept && mkfifo "silent-save/$file"
  launch dp4 silent
  code=$?
  [ $code -eq 5 ] || fault "$file that does not answer: exit code $code: $(cat silent.err)"
  grep -q -- '--load silent-save: the disk or file system has not answered for .* s (--distributed-timeout-minutes' silent.err ||
    fault "$file that does not answer: $(cat silent.err)"
  rm "silent-save/$file" && mv kept "silent-save/$file"
done
launch dp4 silent || fault "after a file answers again: $(cat silent.err)"

# The report itself reads files that do not answer: the job ends all the same.
launch dp4 mute --inject slow:0:50,fault:kill:forward:2:12 --train-iters 20 &
job=$!
for _ in $(seq 200); do grep -q '"iteration":1,' mute/metrics.jsonl 2>/dev/null && break; sleep 0.05; done
mkfifo mute/flight/rank-99999.flight
wait $job
code=$?
[ $code -eq 5 ] || fault "a report that cannot be made: exit code $code: $(cat mute.err)"
grep -q '^rank 2 (.*) was killed by signal 9' mute.err && fault "the report was made: $(cat mute.err)"

# A launcher that ignores SIGCHLD, and hands that down.
one() { timeout $limit_s "$@" $options --run-dir "$name" --save "$name-save" --load "$name-save" >"$name.out" 2>"$name.err"; }
# shellcheck disable=SC2086
name=deaf one env --ignore-signal=CHLD "$triax" train || fault "SIGCHLD ignored: $? $(cat deaf.err)"

# Last words that nobody takes.
for name in full-kill full-throw; do
  # shellcheck disable=SC2086
  "$triax" train $options --run-dir $name --save $name-save --inject "fault:${name#full-}:forward:0:2" \
    >/dev/null 2>/dev/full
  code=$?
  [ $code -eq 5 ] || fault "$name: exit code $code, not 5"
  [ -e $name/flight/failure.json ] || fault "$name: no report"
done
"$triax" train --nonsense 2>/dev/full
code=$?
[ $code -eq 2 ] || fault "a wrong option, and nobody to tell: exit code $code, not 2"

# Preempted while it starts: three ranks wait in MPI_Init for the last one. All is well, and the run goes on.
cat >late_rank.sh <<'WRAP'
#!/usr/bin/env bash
while [ "${PMI_RANK:-}" = 3 ] && [ ! -e go ]; do sleep 0.05; done
exec "$@"
WRAP
early() {
  # shellcheck disable=SC2086
  timeout $limit_s "$mpiexec" -n 4 bash ./late_rank.sh "$triax" train $options --distributed-timeout-minutes 1 \
    --run-dir early --save early-save --load early-save >early.out 2>early.err
}
early &
job=$!
parent= # of rank 0, which has forked
for _ in $(seq 200); do
  proxy=$(pgrep -P "$(pgrep -P "$(pgrep -P $job)")") && parent=$(pgrep -P "$proxy" | head -n 1)
  [ -n "$parent" ] && pgrep -P "$parent" >/dev/null && break
  sleep 0.05
done
kill -TERM "$parent" && touch go
wait $job
code=$?
[ $code -eq 75 ] || fault "SIGTERM in MPI_Init: exit code $code: $(cat early.err)"
grep -q 'exiting program after receiving SIGTERM' early.out || fault "SIGTERM in MPI_Init: $(cat early.out)"
[ "$(cat early-save/latest_checkpointed_iteration.txt)" = 1 ] || fault 'SIGTERM in MPI_Init: not saved after the first step'
early || fault "after SIGTERM in MPI_Init: $(cat early.err)"
[ "$(last_of early)" = "$(last_of dp4)" ] || fault "after SIGTERM in MPI_Init: $(last_of early), not $(last_of dp4)"

# A stop signal while a rank is lost already: there is nothing to go on from that all have, so not 75.
launch dp4 late --inject fault:stop:forward:2:3 --train-iters 1000 &
job=$!
for _ in $(seq 100); do grep -q '"iteration":2,' late/metrics.jsonl 2>/dev/null && break; sleep 0.05; done
sleep 0.3
kill -TERM "$(pgrep -P "$(pgrep -P $job)")" # timeout's child: mpiexec
wait $job
code=$?
[ $code -eq 5 ] || fault "SIGTERM after a rank stopped: exit code $code: $(cat late.err)"
grep -q '^at fault: rank 2 .* was stopped by signal 19 (SIGSTOP)' late.err || fault "the stopped rank is not named: $(cat late.err)"

# A job that is suspended as a whole for longer than the deadline, and continued, has lost nobody.
all_of() { local p; for p in "$@"; do echo "$p"; all_of $(pgrep -P "$p"); done; }
launch dp4 suspended --inject slow:0:20 --train-iters 40 &
job=$!
for _ in $(seq 200); do grep -q '"iteration":2,' suspended/metrics.jsonl 2>/dev/null && break; sleep 0.05; done
# shellcheck disable=SC2046
all=$(all_of $(pgrep -P "$(pgrep -P $job)"))
[ "$(wc -w <<<"$all")" -eq 10 ] || fault "not mpiexec, its proxy and 4 ranks with their parents are suspended, but $all"
# shellcheck disable=SC2086
kill -STOP $all && sleep $((deadline_s + 2)) && kill -CONT $all || fault 'not suspended and continued'
wait $job
code=$?
[ $code -eq 0 ] || fault "suspended and continued: exit code $code: $(cat suspended.err)"

# A parent that is stopped instead of its rank: the run completes, and the rank continues it, or the launcher would wait for ever.
launch dp4 halted --inject slow:0:20 --train-iters 40 &
job=$!
for _ in $(seq 200); do grep -q '"iteration":2,' halted/metrics.jsonl 2>/dev/null && break; sleep 0.05; done
proxy=$(pgrep -P "$(pgrep -P "$(pgrep -P $job)")") # timeout, mpiexec, its proxy
kill -STOP "$(pgrep -P "$proxy" | head -n 1)" || fault 'no parent was stopped'
wait $job
code=$?
[ $code -eq 0 ] && [ -e halted/completed ] || fault "a parent that is stopped: exit code $code: $(cat halted.err)"

# Without parents the survivors report.
launch dp4 alone --inject fault:hang:backward:1:2 --no-supervisor
code=$?
[ $code -eq 5 ] || fault "--no-supervisor: exit code $code"
grep -q '^at fault: rank 1 .* waits for nobody: it has been in step 2 op .* B ' alone.err || fault "--no-supervisor: $(cat alone.err)"

# A slow rank is named, and those that wait for it are not slower than it; a spike ends the run.
launch dp4 slow --inject slow:1:100 --log-interval 3 || fault "slow:1:100: $(cat slow.err)"
grep -q 'slower than their peers .* rank 1 (' slow.err || fault "no straggler: $(cat slow.err)"
launch dp4 quiet --inject slow:1:100 --log-interval 3 --no-log-straggler || fault "--no-log-straggler: $(cat quiet.err)"
grep -q 'slower than' quiet.err && fault "--no-log-straggler names one"
launch dp4 spike --lr 3 --check-for-spiky-loss --spiky-loss-factor 1.2
code=$?
[ $code -eq 5 ] && grep -q 'the loss is .*, more than 1.2 times the largest before it' spike.err || fault "spike: $code $(cat spike.err)"

# A run that is asked about while it runs has nobody at fault.
expect 0 "no rank is at fault: completed" "$triax" trace blame dp4
expect 0 "phase leave" "$triax" trace flight dp4 --rank 3 --last 5
expect 2 "must be" "$triax" trace flight dp4 --rank x
expect 2 "holds no flight recorder's files" "$triax" trace blame .
expect 2 "the run has the ranks 0 to 0" "$mpiexec" -n 1 "$triax" train --model t0 --mock-data --micro-batch-size 1 \
  --train-iters 1 --lr 1 --inject fault:kill:forward:1:1
expect 2 "has a part of that kind already" "$mpiexec" -n 1 "$triax" train --model t0 --mock-data --micro-batch-size 1 \
  --train-iters 1 --lr 1 --inject slow:0:1,slow:0:2
expect 2 "expected fault:KIND:PHASE" "$mpiexec" -n 1 "$triax" train --model t0 --mock-data --micro-batch-size 1 \
  --train-iters 1 --lr 1 --inject fault:hang:nowhere
exit $((faults > 0))
