#!/usr/bin/env bash
# The reshard matrix: written in three layouts, read in every other: weights and moments bit by bit, then the same losses.
. "$(dirname "$0")/ckpt_lib.sh"
common="--hidden-size 64 --num-attention-heads 4 --seq-length 16 --max-position-embeddings 16 --vocab-size 101 --mock-data
  --make-vocab-size-divisible-by 1 --num-layers 8 --micro-batch-size 1 --global-batch-size 24 --lr 1e-3 --lr-decay-style constant --lr-decay-iters 13
  --peak-tflops 1 --no-tensorboard --fp64 --eval-iters 0 --train-iters 13 --hidden-dropout 0 --attention-dropout 0"
t0="$common --ffn-hidden-size 256"
t1="$common --ffn-hidden-size 176 --swiglu --group-query-attention --num-query-groups 2 --normalization RMSNorm
  --position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights"

# near A B: step numbers and samples alike, losses within 1e-10.
near() {
  paste -d' ' <(steps "$1") <(steps "$2") | awk '
    function off(a, b) { d = a - b; return d < 0 ? -d : d }
    $1 != $7 || $6 != $12 || off($2, $8) > 1e-10 * off($2, 0) { bad = 1 }
    END { exit bad || NR != 10 }'
}
# One model per call: MODEL PREFIX. Readers are compared with the writer's own continuation.
matrix() {
  local name=$1 writer reader ranks options number
  model=$2
  local -a writers=("dp4 4 --zero-stage 3" "tp2pp2 4 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2"
    "pp4 4 --pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 3")
  local -a readers=("dp1 1" "dp3 3 --zero-stage 1" "dp8 8 --zero-stage 2" "tp4 4 --tensor-model-parallel-size 4" "dp8z3 8 --zero-stage 3 --zero-shard-group 4"
    "vpp2 4 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2")
  for writer in "${writers[@]}"; do
    read -r writer ranks options <<<"$writer"
    # shellcheck disable=SC2086
    train "$ranks" $options --exit-interval 3 --run-dir "$name-$writer" --save "$name-$writer-save"
    expect_code 0 $? "$name: written by $writer"
    # shellcheck disable=SC2086
    train "$ranks" $options --run-dir "$name-$writer-on" --load "$name-$writer-save"
    expect_code 0 $? "$name: $writer goes on"
    for reader in "${readers[@]}"; do
      read -r reader number options <<<"$reader"
      # What is loaded is saved again before any step, and compared.
      # shellcheck disable=SC2086
      train "$number" $options --train-iters 3 --run-dir "$name-$writer-$reader-copy" --load "$name-$writer-save" \
        --save "$name-$writer-$reader-save"
      expect_code 0 $? "$name: $writer read by $reader"
      "$triax" ckpt diff "$name-$writer-save" "$name-$writer-$reader-save" >diffed || fail "$name $writer $reader: $(cat diffed)"
      # shellcheck disable=SC2086
      train "$number" $options --run-dir "$name-$writer-$reader" --load "$name-$writer-save"
      expect_code 0 $? "$name: $writer goes on as $reader"
      near "$name-$writer-on" "$name-$writer-$reader" || fail "$name: losses of $writer and $reader differ"
    done
  done
}
matrix t0 "$t0"
matrix t1 "$t1"
exit $failed
