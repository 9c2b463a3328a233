#!/usr/bin/env bash
# triax report as a user runs it: a run, one that was killed, a sweep, several with what differs, nothing that tells who.
. "$(dirname "$0")/expect.sh"

run() { # directory, then options
  local directory=$1
  shift
  "$mpiexec" -n 2 "$triax" train --model t0 --no-bf16 --mock-data --micro-batch-size 1 --lr 1e-3 --eval-iters 0 \
    --no-tensorboard --pipeline-model-parallel-size 2 --global-batch-size 4 --run-dir "$directory" "$@" >/dev/null 2>&1
}
page_says() { # file, then texts
  local file=$1 text
  shift
  for text; do grep -qF -- "$text" "$file" || fault "$file does not say \"$text\""; done
}

expect 0 'usage: triax report' "$triax" report --help
expect 2 'holds no run.json' "$triax" report .
expect 2 'must be --out FILE or --anonymous' "$triax" report . --frmat x

run one --train-iters 8 || fault "train"
expect 0 'one/report.html' "$triax" report one
page_says one/report.html '<!DOCTYPE html>' 'finished</span>' 't0, 208.6k parameters, on 2 ranks: tp 1, pp 2, dp 1' \
  'layers 0-1' 'The pipeline in one step' '<td>pp</td><td>send</td>' '<code>--lr</code>'
grep -q 'no summary' one/report.html && fault "a finished run is called unfinished"
grep -qE '<script|src=|href=|@import|url\(http' one/report.html && fault "the page loads something from elsewhere"

run killed --train-iters 100000 &
job=$!
for _ in $(seq 200); do [ "$(cat killed/metrics.jsonl 2>/dev/null | wc -l)" -ge 3 ] && break; sleep 0.05; done
for rank in $(pgrep -P "$(pgrep -P "$(pgrep -P $job | head -1)" | head -1)"); do kill -KILL "$rank"; done
wait
expect 0 'killed/report.html' "$triax" report killed/run.json
page_says killed/report.html 'unfinished</span>' 'no summary.json: the run goes on, was killed or crashed' 'of 100000'

run two --train-iters 8 --seed 5 || fault "train"
run three --train-iters 8 --pipeline-schedule zb-h1 || fault "train"
expect 0 'report.html' "$triax" report one two three
page_says report.html '3 runs side by side' '2 settings' '<code>--pipeline-schedule</code>' 'zb-h1' 'one (2 runs)'
grep -qF '<code>--train-iters</code>' report.html && fault "an option that is the same is listed"
expect 0 'all.html' "$triax" report one killed --out all.html
page_says all.html 'the runs are at other iterations' 'Everything of killed'

"$triax" sweep --mode virtual --model t0 --no-bf16 --mock-data --micro-batch-size 1 --lr 1e-3 --eval-iters 0 --train-iters 3 \
  --pipeline-model-parallel-size 2 --grid num-microbatches=2,4 --out grid >/dev/null 2>&1
expect 0 'sweep.html' "$triax" report grid --out sweep.html
page_says sweep.html '2 runs side by side' 'other global batches'

# A host name that is no word of ours; paths and users.
host=$(hostname)
sed -i "s/\"$host\"/\"hostname-of-ours.example\"/" one/run.json two/run.json
for page in "one --out a.html" "one two three --out b.html"; do
  # shellcheck disable=SC2086
  expect 0 '.html' "$triax" report --anonymous $page
done
for secret in hostname-of-ours "$work" "$(id -un)@" "/home/" "/tmp/" "$(basename "$work")"; do
  grep -nF -- "$secret" a.html b.html && fault "--anonymous leaves $secret"
done
page_says a.html 'rank 0 on host 1'
exit $((faults > 0))
