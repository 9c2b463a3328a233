#!/usr/bin/env bash
# `triax mem` as a user runs it: mem.sh TRIAX SOURCE. The papers' numbers through the command, formats, faults.
. "$(dirname "$0")/expect.sh"
papers=$2/../shared/papers

mem() { "$triax" mem "$@"; }
# column STAGE ENGINE NAME OPTIONS...: whole bytes from the CSV.
column() {
  local stage=$1 engine=$2 name=$3
  shift 3
  mem "$@" --format csv | awk -F, -v s="$stage" -v e="$engine" -v n="$name" '
    NR == 1 { for (i = 1; i <= NF; i++) if ($i == n) c = i }
    $1 == s && $2 == e { print $c }'
}
is() {
  local want=$1
  shift
  local got
  got=$(column "$@")
  [ "$got" = "$want" ] || fault "mem $*: $got, want $want"
}

expect 0 'usage: triax mem' mem --help
# Beside a device, with what its runtime takes.
expect 0 'h100: the fullest stage takes 1.6' mem --model t0 --hw h100
expect 3 'of 80.00: DOES NOT FIT' mem --model llama2-70b --num-microbatches 1 --hw h100 --exact none
expect 2 'did you mean h100' mem --model t0 --hw h10
mem --num-parameters 7.5e9 --data-parallel-size 64 --hw h100 --format json >room.json
[ $? -eq 3 ] && grep -q '"fits": false' room.json || fault "7.5e9 parameters in 80 GiB: $(cat room.json)"
# The copy of --async-save is in the forecast, whether or not --save says where.
is "$(column 0 exact other --model t0 --async-save --save x)" 0 exact other --model t0 --async-save
[ "$(column 0 exact other --model t0 --async-save)" -gt "$(column 0 exact other --model t0)" ] || fault "mem forgets --async-save"
expect 0 'engine exact     the trainer'"'"'s own code' mem --describe
expect 2 'needs a model' mem
expect 2 'must be at most 3' mem --num-parameters 1e9 --zero-stage 4
expect 2 'must be a whole number from 1' mem --num-parameters many
expect 2 'must be a whole number from 1' mem --num-parameters -7e9
expect 2 'leave out either it or the model' mem --num-parameters 1e9 --model t0
expect 2 '--zero-shard-group 3: must divide the 8 dp ranks; use 2 or 4' mem --num-parameters 1e9 --data-parallel-size 8 --zero-stage 2 --zero-shard-group 3
expect 2 'has nothing to shard at --zero-stage 0' mem --num-parameters 1e9 --data-parallel-size 8 --zero-shard-group 2
expect 2 'shards weights, which --zero-stage 2 keeps whole' mem --num-parameters 1e9 --data-parallel-size 8 --zero-stage 2 --zero-hpz-partition-size 2
expect 2 'give one of the two' mem --num-parameters 1e9 --zero-stage 0 --use-distributed-optimizer
expect 2 'needs --bf16' mem --num-parameters 1e9 --grad-reduce-in-bf16
expect 2 '--num-microbatches: is required with a pipeline' mem --model t0 --pipeline-model-parallel-size 2
expect 2 '--world-size 7: must be tp x pp x d = 2 x a whole number; nearest: 6 or 8' mem --model t0 --tensor-model-parallel-size 2 --world-size 7
expect 2 'must divide --num-attention-heads 4' mem --model t0 --tensor-model-parallel-size 3
expect 2 '--vocab-size is not given' mem --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32
expect 2 'did you mean --zero-stage?' mem --model t0 --zero-stge 1
expect 2 'must be table, json or csv' mem --model t0 --format yaml

# ZeRO (arXiv 1910.02054) figure 1: 120, 31.4, 16.6, 1.88 GB; 16 bytes per parameter, gradients in bf16.
paper=(--num-parameters 7.5e9 --data-parallel-size 64 --bf16 --grad-reduce-in-bf16)
is 120000000000 "" formula total "${paper[@]}"
is 31406250000 "" formula total "${paper[@]}" --zero-stage 1
is 31406250000 "" formula total "${paper[@]}" --use-distributed-optimizer
is 16640625000 "" formula total "${paper[@]}" --zero-stage 2
is 1875000000 "" formula total "${paper[@]}" --zero-stage 3
expect 0 'model states 1875000000 (1.88 GB)' mem "${paper[@]}" --zero-stage 3
is 2109375000 "" formula total --num-parameters 7.5e9 --data-parallel-size 64 --bf16 --zero-stage 3
# Hybrid: stage 3 inside groups of 8; hpZ: weights over 8, the rest over 64.
is $((16 * 937500000)) "" formula total "${paper[@]}" --zero-stage 3 --zero-shard-group 8
is $((2 * 937500000 + 14 * 117187500)) "" formula total "${paper[@]}" --zero-stage 3 --zero-hpz-partition-size 8
# Korthikanti et al. 2022 figure 1, 22B: parameters and optimizer, 45.5625 GiB; 12 L h^2 over 8 ranks.
is $((455625 * 1073741824 / 10000)) "" formula total --num-parameters 21743271936 --tensor-model-parallel-size 8 --bf16

# All cells of ZeRO's table 1, in GB, within one unit of the last printed digit (the paper cuts some).
if [ -f "$papers/zero2019_table1_memory.csv" ]; then
  cells=0
  while IFS=, read -r model d stage printed _; do
    [ "$model" = model ] && continue
    case $model in 7.5B) psi=7.5e9 ;; 128B) psi=128e9 ;; 1T) psi=1e12 ;; *) fault "table 1: model $model" ;; esac
    case $stage in Pos) z=1 ;; Pos+g) z=2 ;; Pos+g+p) z=3 ;; *) fault "table 1: stage $stage" ;; esac
    bytes=$(column "" formula model_states --num-parameters $psi --data-parallel-size "$d" --zero-stage $z --bf16 --grad-reduce-in-bf16)
    awk -v bytes="$bytes" -v printed="$printed" 'BEGIN {
      digits = index(printed, ".") ? length(printed) - index(printed, ".") : 0
      off = bytes / 1e9 - printed; if (off < 0) off = -off
      exit !(bytes > 0 && off <= 1.0000001 * 10 ^ -digits) }' || fault "table 1, $model, d $d, $stage: $bytes bytes, printed $printed GB"
    cells=$((cells + 1))
  done <"$papers/zero2019_table1_memory.csv"
  [ $cells -eq 54 ] || fault "table 1 has $cells cells, not 54"
else
  echo "SKIP: the papers' tables are not beside this source tree: ZeRO's table 1 is not compared"
fi

# Korthikanti et al. 2022 figure 1 through the command: activations of the first stage, 22B and 175B, in bytes.
gpt() {
  echo --num-layers "$1" --hidden-size "$2" --num-attention-heads "$3" --seq-length 2048 --max-position-embeddings 2048 \
    --vocab-size 51200 --micro-batch-size "$4" --tensor-model-parallel-size 8 --bf16 --attention-backend unfused --exact none
}
# shellcheck disable=SC2046
{
  is $((592500 * 1073741824 / 10000)) 0 formula activations $(gpt 48 6144 64 4)
  is 10267656192 0 formula activations $(gpt 48 6144 64 4) --sequence-parallel --recompute-granularity selective
  is 71772930048 0 formula activations $(gpt 96 12288 96 1) --pipeline-model-parallel-size 8 --num-microbatches 64 --num-virtual-stages-per-pipeline-rank 3
}

# The 70B example, and both engines on it: every stage, in flight 4, 3, 2, 1.
llama=(--model llama3-70b --seq-length 4096 --micro-batch-size 1 --tensor-model-parallel-size 8 --sequence-parallel
  --pipeline-model-parallel-size 4 --data-parallel-size 2)
for stage in 0 1 2 3; do
  is $((4 - stage)) $stage formula in_flight "${llama[@]}" --num-microbatches 8 --exact none
  # 20 layers of (33.5 sbh + 4abs) / t, (4 - stage) times
  is $(((4 - stage) * 20 * (67 * 4096 * 8192 / 16 + 4 * 64 * 4096 / 8))) $stage formula activations "${llama[@]}" --num-microbatches 8 --exact none
done
expect 0 'stage 0 peaks at' mem "${llama[@]}" --num-microbatches 8
expect 0 '"exact_micro_batches": 16' mem "${llama[@]}" --num-microbatches 512 --format json
[ "$(column 3 exact total "${llama[@]}" --num-microbatches 512)" = "$(column 3 exact total "${llama[@]}" --num-microbatches 16)" ] ||
  fault "the peak of a long step is not that of a short one"
# What the trainer does not do is counted by formula all the same, and the reason is said.
expect 0 'exact: the trainer does not take this run: --grad-reduce-in-bf16' mem "${llama[@]}" --num-microbatches 8 --grad-reduce-in-bf16

tiny=(--num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --vocab-size 101 --micro-batch-size 1)
tiny+=(--data-parallel-size 4 --num-microbatches 4 --zero-param-persistence-threshold 0)
expect 0 'stage 0 peaks at' mem "${tiny[@]}" --zero-stage 3 --zero-reshard-after step
expect 2 'weights are whole all the time at --zero-stage 2' mem "${tiny[@]}" --zero-stage 2 --zero-reshard-after step

[ $faults -eq 0 ] || exit 1
echo ok
