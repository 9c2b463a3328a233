#!/usr/bin/env bash
# `triax program` and `triax trace` as a user runs them: program.sh TRIAX SOURCE. Numbers, files, faults, same bytes.
. "$(dirname "$0")/expect.sh"

p4m8=(--pipeline-model-parallel-size 4 --num-microbatches 8)
program() { "$triax" program "$@"; }
# json_is KEY VALUE OPTIONS...: a number of `program time --format json`; lists on one line.
json_is() {
  local key=$1 value=$2
  shift 2
  local found
  found=$(program time "$@" --format json | tr -d ' \n' | grep -oE "\"$key\":(\[[^]]*\]|[^,}]*)" | head -1)
  [ "$found" = "\"$key\":$value" ] || fault "program time $*: $found, want \"$key\":$value"
}

expect 0 'usage: triax program' program --help
expect 2 'must be followed by show, check' program
expect 2 'did you mean --num-microbatches' program time --num-microbatch 8
expect 2 '--num-microbatches: is required' program time --pipeline-model-parallel-size 4
expect 2 'must be gpipe, 1f1b' program time "${p4m8[@]}" --pipeline-schedule zb-x
expect 2 'nearest legal numbers of micro-batches are 4 and 8' program check --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 3 --num-microbatches 5
expect 2 '"X" is no cost' program time "${p4m8[@]}" --cost X=1
expect 2 '3 values for 4 pipeline stages' program time "${p4m8[@]}" --cost F=1,2,3
expect 2 '--world-size 6: must be tp x pp x d = 4 x' program time "${p4m8[@]}" --world-size 6
expect 0 'closed_form' program time --describe

# Under ZeRO: what train refuses is refused, and what happens inside of ops is shown.
tiny=(--num-layers 2 --hidden-size 32 --num-attention-heads 4 --vocab-size 101 --data-parallel-size 4 --num-microbatches 2)
expect 2 '--zero-shard-group 3: must divide the 4 dp ranks' program hash "${tiny[@]}" --zero-stage 3 --zero-shard-group 3
expect 2 'has nothing to shard at --zero-stage 0' program check "${tiny[@]}" --zero-shard-group 2
expect 2 'is not --global-batch-size 7' program check "${tiny[@]}" --micro-batch-size 1 --global-batch-size 7
expect 0 'ok: 1f1b' program check "${tiny[@]}" --zero-stage 3 --zero-param-persistence-threshold 0
expect 0 '  0F0: GATHER block 3, GATHER block 2, F unit 0, RELEASE block 3, ' program show --inside "${tiny[@]}" --zero-stage 3 --zero-param-persistence-threshold 0
expect 0 '{"kind":"GATHER","block":3}' program show --inside "${tiny[@]}" --zero-stage 3 --zero-param-persistence-threshold 0 --format json
expect 2 'only show lists what happens inside of ops' program check --inside "${tiny[@]}" --zero-stage 3
expect 2 'nothing is gathered or reduced inside of ops' program show --inside "${p4m8[@]}"
expect 0 'B unit 0, REDUCE block 0' program show --inside "${tiny[@]}" --zero-stage 1

unit=(--cost F=1,I=1,W=1)
json_is makespan 33.0 "${p4m8[@]}" --pipeline-schedule 1f1b "${unit[@]}"
json_is makespan 41.0 "${p4m8[@]}" --pipeline-schedule 1f1b --cost F=1,I=1,W=1,P2P=0.5
json_is bubble_of_ideal 0.375 "${p4m8[@]}" --pipeline-schedule gpipe
json_is makespan 28.5 "${p4m8[@]}" --num-virtual-stages-per-pipeline-rank 2
json_is makespan 199.0 --pipeline-model-parallel-size 8 --num-microbatches 64 --num-virtual-stages-per-pipeline-rank 3
json_is in_flight '[31,29,27,25,23,21,19,17]' --pipeline-model-parallel-size 8 --num-microbatches 64 --num-virtual-stages-per-pipeline-rank 3
json_is span 27.0 "${p4m8[@]}" --pipeline-schedule zb-h1
json_is span 24.0 "${p4m8[@]}" --pipeline-schedule zb-h2
json_is span 24.0 "${p4m8[@]}" --pipeline-schedule zb-v
json_is in_flight '[4,4,4,4]' "${p4m8[@]}" --pipeline-schedule zb-h1
json_is in_flight '[7,7,7,7]' "${p4m8[@]}" --pipeline-schedule zb-h2
json_is in_flight '[8,8,8,8]' "${p4m8[@]}" --pipeline-schedule zb-v
json_is in_flight_micro_batches '[4.0,4.0,4.0,4.0]' "${p4m8[@]}" --pipeline-schedule zb-v
json_is idle '[9.0,9.0,9.0,9.0]' "${p4m8[@]}"
json_is fill '[6.0,5.0,4.0,3.0]' "${p4m8[@]}"
expect 0 'bubble 27.27 % of total, 37.50 % of ideal (closed form 27.27 % and 37.50 %)' program time "${p4m8[@]}"
expect 0 '0 |F0F1F2F3............B0--F4B1--F5B2--F6B3--F7B4--..B5--..B6--..B7--|' program time "${p4m8[@]}" --width 66
expect 0 '0,24,9,6,3,0,0,0,0,4' program time "${p4m8[@]}" --format csv

# Every schedule through its CSV keeps its order and its times.
for schedule in gpipe 1f1b interleaved zb-h1 zb-h2 zb-v; do
  options=("${p4m8[@]}" --pipeline-schedule $schedule)
  [ $schedule = interleaved ] && options+=(--num-virtual-stages-per-pipeline-rank 2)
  expect 0 'ok: ' program check "${options[@]}"
  program export "${options[@]}" --out $schedule.csv
  [ "$(program export --pipeline-schedule csv:$schedule.csv)" = "$(cat $schedule.csv)" ] || fault "$schedule.csv does not come back"
  span=$(program time "${options[@]}" --format json | grep '"span"' | head -1)
  [ "$(program time --pipeline-schedule csv:$schedule.csv --format json | grep '"span"' | head -1)" = "$span" ] || fault "$schedule.csv: span is not $span"
done
[ "$(program hash "${p4m8[@]}")" = 8756e90ba13571ad ] || fault "the hash of 1f1b p4 m8 changed"
expect 0 'Rank 1: 1F0 1B0 1F1 1B1' program show --pipeline-model-parallel-size 2 --num-microbatches 2
expect 0 '"cost_key":"F/0/0","depends_on":[[0,0]]' program show --pipeline-model-parallel-size 2 --num-microbatches 1 --format json

printf '0F0,0B0\n1F0,1Q0\n' >bad.csv
expect 2 'bad.csv: row 2, column 2: "1Q0" is no action' program check --pipeline-schedule csv:bad.csv
printf '0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n' >slow.csv
expect 0 'ok: csv' program check --pipeline-schedule csv:slow.csv
printf '0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n' >dead.csv
expect 4 'deadlock: position 0, op 3 (0RECV_B0) waits for position 1; position 1, op 4 (1RECV_F1) waits for position 0' program check --pipeline-schedule csv:dead.csv
expect 4 'FAULT: ' program time --pipeline-schedule csv:dead.csv
expect 5 'none.csv: cannot be read' program check --pipeline-schedule csv:none.csv
expect 2 'slow.csv runs 2 micro-batches; give 2' program check --pipeline-schedule csv:slow.csv --num-microbatches 4

# 16,384 ranks: the same bytes on every run, and replicas with jitter meet at the reduction.
big=(--tensor-model-parallel-size 8 --pipeline-model-parallel-size 64 --world-size 16384 --num-microbatches 512
  --num-virtual-stages-per-pipeline-rank 2 --jitter 0.05 --cost F=1,B=2,P2P=0.01,REDUCE_GRAD=0.5,OPT=0.2 --format json)
program time "${big[@]}" >a.json
program time "${big[@]}" >b.json
cmp a.json b.json || fault "two runs of the same simulation differ"
grep -q '"data_parallel": 32' a.json || fault "replicas of 16384 ranks"
program time "${big[@]}" --seed 2 | cmp -s - a.json && fault "another seed gives the same times"
expect 0 'no closed form' program time "${p4m8[@]}" --data-parallel-size 2 --straggler 1:2:1.5
expect 2 'must name a replica from 0 to 0' program time "${p4m8[@]}" --straggler 1:2:1.5

program time "${p4m8[@]}" --svg a.svg --chrome a.trace >/dev/null
program time "${p4m8[@]}" --jitter 0.1 --chrome b.trace >/dev/null
grep -q '</svg>' a.svg || fault "a.svg is not whole"
expect 0 'bubble 27.27 % of total, 37.50 % of ideal; span 33000 ms' "$triax" trace summary a.trace
expect 0 'only in a: 0, only in b: 0' "$triax" trace diff a.trace b.trace
expect 0 '"same_program": true' "$triax" trace diff a.trace b.trace --format json
expect 5 'a.svg: not a trace of triax' "$triax" trace summary a.svg
expect 2 'needs 2 file(s), not 1' "$triax" trace diff a.trace
expect 2 'must be followed by summary, diff, blame or flight' "$triax" trace

[ $faults -eq 0 ] || exit 1
echo ok
