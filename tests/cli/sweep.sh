#!/usr/bin/env bash
# triax sweep as a user runs it: rows of every kind, going on after a kill at any moment, a job array, no gnuplot.
. "$(dirname "$0")/expect.sh"

cat >base.cfg <<'END'
model = t0
mock-data = true
bf16 = false
micro-batch-size = 1
train-iters = 3
lr = 1e-3
eval-iters = 0
tensorboard = false
END
base=(sweep --config base.cfg --pipeline-model-parallel-size 2)
point() { echo "$1"/points/*"$2"*-r"${3:-1}"; }
state() { sed -n 's/^  "state": "\(.*\)",$/\1/p' "$(point "$1" "$2" "${3:-1}")/point.json"; }

expect 2 'did you mean --num-microbatches' "$triax" "${base[@]}" --grid num-microbatchs=2,4
expect 2 'cannot be an axis' "$triax" "${base[@]}" --grid repeats=2,4
expect 2 '--repeats 0' "$triax" "${base[@]}" --grid num-microbatches=2,4 --repeats 0
expect 2 'is on two axes' "$triax" "${base[@]}" --grid seed=2,4 --grid seed=1,3
expect 0 'mpiexec -n 2 triax train --config base.cfg' "$triax" "${base[@]}" --grid num-microbatches=2,4 --dry-run
expect 2 'must be real, virtual or simulated' "$triax" sweep --mode fast

# Rows: done twice with an interval, refused with the trainer's words; the second call runs nothing.
grid=("${base[@]}" --grid pipeline-schedule=1f1b,interleaved num-microbatches=2,4 --repeats 2 --out one)
expect 0 'refused: --pipeline-schedule interleaved: needs at least 2 virtual stages per rank' "$triax" "${grid[@]}"
[ "$(ls -d one/points/*-r? | wc -l)" -eq 8 ] || fault "8 run directories: $(ls one/points)"
[ -s "$(point one 1f1b,num-microbatches=2 2)/metrics.jsonl" ] || fault "a point has no metrics.jsonl"
grep -q '^real,1f1b,2,2,2,2,done,,' one/results.csv || fault "results.csv: $(cat one/results.csv)"
head -1 one/results.csv | grep -q '^# triax: ' || fault "no provenance"
[ "$(grep -vc '^#' one/runs.csv)" -eq 9 ] || fault "runs.csv has not 8 rows"
stamp=$(stat -c %Y.%y one/points/*/point.json | sort)
expect 0 'refused' "$triax" "${grid[@]}"
[ "$(stat -c %Y.%y one/points/*/point.json | sort)" = "$stamp" ] || fault "a second call ran points again"
# A larger grid keeps what it has.
expect 0 'pipeline-schedule=zb-h1 num-microbatches=4 r2: done' "$triax" "${base[@]}" --out one --repeats 2 \
  --grid pipeline-schedule=1f1b,zb-h1 num-microbatches=2,4
[ "$(stat -c %Y.%y one/points/*{1f1b,interleaved}*/point.json | sort)" = "$stamp" ] || fault "a larger grid ran old points again"

# What points write beside their directories is each their own.
expect 0 'done' "$triax" "${base[@]}" --grid seed=1,2 --out saving --save kept --save-interval 3 --metrics-file numbers
[ "$(ls kept/seed=?-*-r1/latest_checkpointed_iteration.txt | wc -l)" -eq 2 ] || fault "checkpoints of points: $(ls kept kept/*)"
[ "$(wc -l numbers/seed=?-*-r1 | tail -1 | awk '{print $1}')" -eq 6 ] || fault "metrics of points: $(ls numbers)"

# The virtual clock and the simulator give (p - 1)/(m + p - 1).
expect 0 'done' "$triax" "${base[@]}" --mode virtual --cost F=1,I=1,W=1 --grid num-microbatches=2,4 --out clock --format csv
for m in 2:0.33333 "4:(0.2|0.19999999)"; do
  grep -qE "\"bubble_fraction\": ${m#*:}" "$(point clock num-microbatches=${m%:*})/point.json" || fault "virtual bubble at m ${m%:*}"
done
expect 0 '27.27     27.27' "$triax" sweep --mode simulated --pipeline-model-parallel-size 4 --grid num-microbatches=4,8 \
  --cost F=1,I=1,W=1 --out simulated
grep -q '^simulated,4,4,' simulated/results.csv || fault "simulated ranks: $(cat simulated/results.csv)"
expect 2 'refused: --num-microbatches: is required' "$triax" sweep --mode simulated --grid pipeline-model-parallel-size=2,4 --out refused

# What the figure shows, and points that would share cores, are refused before anything runs.
expect 2 '--x seq-length: is no axis of the sweep; must be one of num-microbatches' "$triax" "${base[@]}" --grid num-microbatches=2,4 \
  --x seq-length --out early
expect 2 '--y tokens: is no metric of a real point' "$triax" "${base[@]}" --grid num-microbatches=2,4 --y tokens --out early
expect 2 'zero has its own figures' "$triax" sweep --ablation zero --y step_ms
expect 2 'more would measure each other' "$triax" "${base[@]}" --grid num-microbatches=2,4 --jobs 1000 --out early
[ ! -e early ] || fault "a refused sweep left $(ls early)"

# Two points at a time: each waits for the other.
if [ "$(nproc)" -ge 2 ]; then
  cat >pair.sh <<'END'
touch "pair-$$"
for _ in $(seq 200); do [ "$(ls pair-* | wc -l)" -ge 2 ] && exec "$@"; sleep 0.05; done
exit 9
END
  expect 0 'seed=2' "$triax" sweep --config base.cfg --grid seed=1,2 --jobs 2 --launcher 'bash pair.sh mpiexec -n {ranks}' --out pairs
  [ "$(state pairs seed=1)/$(state pairs seed=2)" = done/done ] || fault "two points at a time"
fi

# Ends without success: a time limit, memory; the sweep goes on, the same command leaves them, --retry-failed tries again.
cat >launcher.sh <<'END'
# Sleeps or dies where the point is named in a file.
for word; do
  case $word in
    */points/*seed=1-*) if [ -e slow ]; then echo $$ >started; sleep 60; fi ;;
    */points/*seed=2-*) if [ -e full ]; then echo "rank 0: std::bad_alloc" >&2; exit 134; fi ;;
  esac
done
exec "$@"
END
touch slow full
ends=(sweep --config base.cfg --grid seed=1,2,3 --launcher 'bash launcher.sh mpiexec -n {ranks}' --out ends)
expect 0 'timed out: stopped after' "$triax" "${ends[@]}" --point-timeout 1
[ "$(state ends seed=1)/$(state ends seed=2)/$(state ends seed=3)" = "timed out/out of memory/done" ] || fault "states of the three ends"
rm slow full
expect 0 'out of memory: rank 0: std::bad_alloc' "$triax" "${ends[@]}"
expect 0 'seed=2 r1: done' "$triax" "${ends[@]}" --retry-failed
[ "$(state ends seed=1)/$(state ends seed=2)/$(state ends seed=3)" = "done/done/done" ] || fault "--retry-failed"
ls -d ends/points/seed=2-*.failed-1 >/dev/null || fault "the failed attempt is gone"

# Killed at a bad moment: its child ends with it, and the same command does the rest.
touch slow
kill_sweep=(sweep --config base.cfg --grid seed=3,1,4 --launcher 'bash launcher.sh mpiexec -n {ranks}' --out killed)
rm -f started
"$triax" "${kill_sweep[@]}" >/dev/null 2>&1 &
for _ in $(seq 200); do [ -e started ] && break; sleep 0.05; done
kill -KILL $!
wait $! 2>/dev/null
for _ in $(seq 100); do kill -0 "$(cat started)" 2>/dev/null || break; sleep 0.05; done
kill -0 "$(cat started)" 2>/dev/null && fault "the point outlived the sweep"
rm slow
stamp=$(stat -c %y "$(point killed seed=3)/point.json")
expect 0 'seed=4 r1: done' "$triax" "${kill_sweep[@]}"
[ "$(stat -c %y "$(point killed seed=3)/point.json")" = "$stamp" ] || fault "a finished point ran again after a kill"
[ "$(state killed seed=1)" = done ] || fault "the point that was cut off is $(state killed seed=1)"
ls -d killed/points/*.interrupted-1 >/dev/null || fault "the cut-off attempt was thrown away"
# A run that finished although nobody wrote it down is taken as it is.
rm "$(point killed seed=4)/point.json"
"$triax" "${kill_sweep[@]}" 2>&1 | grep -q 'r1: done' && fault "a finished run was made again"
[ "$(state killed seed=4)" = done ] || fault "a finished run was not read"
# SIGTERM: 75, nothing half done.
touch slow
"$triax" sweep --config base.cfg --grid seed=1 --launcher 'bash launcher.sh mpiexec -n {ranks}' --out told >/dev/null 2>&1 &
rm -f started
for _ in $(seq 200); do [ -e started ] && break; sleep 0.05; done
kill -TERM $!
wait $!
code=$?
[ $code -eq 75 ] || fault "SIGTERM: exit code $code"
rm -f slow

# One job array: sbatch is a stand-in that runs the tasks one after the other.
mkdir bin tools
for tool in env bash; do ln -s "$(command -v $tool)" tools/; done
cat >bin/sbatch <<'END'
#!/usr/bin/env bash
for task in $(sed -n 's/^#SBATCH --array=//p' "$1" | tr , ' '); do SLURM_ARRAY_TASK_ID=$task bash "$1" || exit 1; done >/dev/null 2>&1
echo "Submitted batch job 17"
END
chmod +x bin/sbatch
array=("${base[@]}" --grid num-microbatches=2,4 --out array --sbatch partition=debug)
expect 2 'there is no sbatch here; the script is array/sweep.sbatch' env PATH="$work/tools" "$triax" "${array[@]}" --submit
expect 0 'Submitted batch job 17' env PATH="$work/bin:$PATH" "$triax" "${array[@]}" --submit
grep -q '^#SBATCH --partition=debug' array/sweep.sbatch || fault "no --sbatch option in the script"
expect 0 'done' "$triax" "${array[@]}" --collect
[ "$(state array num-microbatches=2)/$(state array num-microbatches=4)" = done/done ] || fault "the array's points"
expect 0 'nothing is missing' env PATH="$work/bin:$PATH" "$triax" "${array[@]}" --submit

# Without gnuplot: numbers and script, said, exit 0.
expect 0 'gnuplot is not installed' env PATH="$work/tools" "$triax" sweep --mode simulated --pipeline-model-parallel-size 2 \
  --grid num-microbatches=4,8 --out plain
[ -s plain/sweep.csv ] && [ -s plain/sweep.gp ] && [ ! -e plain/sweep.svg ] || fault "files without gnuplot: $(ls plain)"
exit $((faults > 0))
