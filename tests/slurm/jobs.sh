#!/usr/bin/env bash
# Job scripts on a real Slurm of four virtual nodes: jobs.sh TRIAX SOURCE. Output, placement, arrays; preemption, signal before
# the time limit, a node that goes down, each followed by the exact continuation; a rank that is killed; a wrong PMI.
# Exit code 77: this machine cannot run Slurm.
set -u
TRIAX=$(readlink -f "$1")
source_dir=$(readlink -f "$2")
# shellcheck source=tests/slurm/cluster.sh
. "$(dirname "$(readlink -f "$0")")/cluster.sh"
start_test

# The job script as users submit it, with a model of a few milliseconds a step.
export TRIAX_OPTIONS='--model t1 --fp64 --save-interval 50 --log-interval 50 --train-iters 150'
script=$source_dir/jobs/small_3d.slurm
submit() { sbatch --parsable "$@"; }
lines() { wc -l 2>/dev/null <"$1/metrics.jsonl" || echo 0; }
has_lines() { [ "$(lines "$1")" -ge "$2" ]; }
# Every iteration once, with all its bits.
losses() { grep -o '"iteration":[0-9]*,"lm_loss":[^,]*,"grad_norm":[^,]*' "$1/metrics.jsonl"; }
restarts() { job_field "$1" Restarts; }

started_again() { [ "$(restarts "$1")" -ge 1 ]; }

# Slurm must have begun with the job again and have ended it well, with the losses of the undisturbed run.
continued() {
  local job=$1 what=$2 run=runs/small_3d-$1 out=small_3d-$1.out
  wait_for 90 job_ended "$job" || fault "$what: job $job does not end" "$out"
  [ "$(job_state "$job")" = COMPLETED ] || fault "$what: job $job ended as $(job_state "$job")" "$out"
  [ "$(restarts "$job")" -eq 1 ] || fault "$what: job $job was started again $(restarts "$job") times, not once" "$out"
  [ -e "$run/completed" ] || fault "$what: no completion marker"
  [ "$(losses "$run")" = "$reference" ] || fault "$what: the losses differ from the undisturbed run's" <(diff <(losses "$run") <(echo "$reference"))
  grep -q 'resumed\|loaded' "$out" || fault "$what: the second start did not load a checkpoint" "$out"
  echo "$what: job $job ran in $(grep -c '^job: small_3d' "$out") starts, 150 losses equal"
}

# --- The undisturbed run, and beside it on the other two nodes a rank that is killed.
# A rank of a run is the child of its parent, which is the same program.
rank_of_run() {
  local pid parent
  for pid in $(pgrep -f -- "--run-dir .*/$1 "); do
    parent=$(ps -o ppid= -p "$pid" | tr -d ' ')
    if [ "$(readlink "/proc/$pid/exe")" = "$TRIAX" ] && [ "$(readlink "/proc/$parent/exe")" = "$TRIAX" ]; then
      echo "$pid"
      return
    fi
  done
}
plain=$(submit --nodelist='n[0-1]' "$script")
killed=$(TRIAX_OPTIONS="$TRIAX_OPTIONS --train-iters 100000" submit --nodelist='n[2-3]' "$script")
run=runs/small_3d-$killed
wait_for 60 has_lines "$run" 5 || fault 'the run to be killed does not start' "small_3d-$killed.out"
victim=$(rank_of_run "$run")
if [ -n "$victim" ]; then kill -KILL "$victim"; else fault 'no rank of the run to be killed is found'; fi
wait_for 60 job_ended "$plain" || fault 'the plain job does not end' "small_3d-$plain.out"
reference=$(losses "runs/small_3d-$plain")
[ "$(job_state "$plain")" = COMPLETED ] || fault "the plain job ended as $(job_state "$plain")" "small_3d-$plain.out"
[ "$(wc -l <<<"$reference")" -eq 150 ] || fault "the plain job made $(wc -l <<<"$reference") losses, not 150" "small_3d-$plain.out"
[ -e "runs/small_3d-$plain/completed" ] || fault 'the plain job left no completion marker'
grep -q 'made-up tokens' "small_3d-$plain.out" || fault 'mock data are not said' "small_3d-$plain.out"
grep -q '^SLURM_JOB_ID=' "runs/small_3d-$plain/environment-1.txt" || fault 'no dump of the environment'
grep -vE '^(SLURM|NCCL|CUDA|UCX|OMP|HDF5|TRIAX)_' "runs/small_3d-$plain/environment-1.txt" && fault 'the dump holds other variables'
wait_for 30 job_ended "$killed" || scancel "$killed"
[ "$(job_state "$killed")" != CANCELLED ] || fault 'the job of a killed rank does not end' "small_3d-$killed.out"
[ "$(job_state "$killed")" = FAILED ] || fault "the job of a killed rank ended as $(job_state "$killed")" "small_3d-$killed.out"
[ "$(restarts "$killed")" -eq 0 ] || fault 'the job of a killed rank was requeued'
[ ! -e "$run/completed" ] || fault 'a run with a killed rank has a completion marker'
grep -qE 'at fault: rank [0-9]+ .*SIGKILL' "small_3d-$killed.out" || fault 'the killed rank is not named' "small_3d-$killed.out"
echo "a killed rank: $(grep -m 1 'at fault' "small_3d-$killed.out")"

# --- On two nodes, in the meantime: the signal before the time limit. Slurm looks every 30 s which jobs are near it.
limited=$(TRIAX_OPTIONS="$TRIAX_OPTIONS --train-iters 100000" submit --nodelist='n[2-3]' --time=1 --signal=USR1@58 "$script")

# --- Preemption: an urgent job takes the other two; SIGTERM, save, 75, back into the queue.
preempted=$(submit --nodelist='n[0-1]' "$script")
wait_for 60 has_lines "runs/small_3d-$preempted" 15 || fault 'the job to be preempted does not start' "small_3d-$preempted.out"
submit --partition=urgent --nodelist='n[0-1]' --exclusive --output=urgent.out --wrap='sleep 1' >urgent.id
continued "$preempted" preemption
grep -q 'exiting program after receiving SIGTERM' "small_3d-$preempted.out" || fault 'the preempted run did not stop by itself'

# --- A node goes down: Slurm takes the job back without a word; it goes on from the last save.
downed=$(submit --nodelist='n[0-1]' "$script")
wait_for 60 has_lines "runs/small_3d-$downed" 60 || fault 'the job whose node goes down does not start' "small_3d-$downed.out"
scontrol update nodename=n1 state=down reason=test
wait_for 20 started_again "$downed" || fault 'the job of a node that is down is not requeued' "small_3d-$downed.out"
scontrol update nodename=n1 state=resume 2>/dev/null
continued "$downed" 'a node down'

# --- The time limit again: by now it was signalled, has saved, and goes on without a gap.
wait_for 60 started_again "$limited" || fault 'the job near its time limit is not requeued' "small_3d-$limited.out"
grep -q 'exiting program after receiving SIGUSR1' "small_3d-$limited.out" || fault 'no signal before the time limit' "small_3d-$limited.out"
before=$(lines "runs/small_3d-$limited")
wait_for 60 has_lines "runs/small_3d-$limited" $((before + 5)) || fault 'the job near its time limit does not go on' "small_3d-$limited.out"
scancel "$limited"
wait_for 30 job_ended "$limited"
iterations=$(grep -o '"iteration":[0-9]*' "runs/small_3d-$limited/metrics.jsonl" | cut -d: -f2)
[ "$iterations" = "$(seq "$(wc -l <<<"$iterations")")" ] || fault 'the run near its time limit has gaps, or iterations twice'
[ "$(losses "runs/small_3d-$limited" | head -n 1)" = "$(head -n 1 <<<"$reference")" ] || fault 'another first loss'
echo "time limit: signal, requeue, $before iterations before and more after without a gap"
end_test
