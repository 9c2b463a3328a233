#!/usr/bin/env bash
# Stopping and going on: bit for bit the straight run. Saves that are killed, that fail, that are damaged. triax ckpt.
. "$(dirname "$0")/ckpt_lib.sh"

model="--num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 --vocab-size 101
  --make-vocab-size-divisible-by 8 --mock-data --micro-batch-size 1 --lr 1e-3 --min-lr 1e-4 --lr-decay-style cosine --peak-tflops 1
  --no-tensorboard --clip-grad 1 --hidden-dropout 0.1 --attention-dropout 0.1"

# resumes NAME RANKS OPTIONS...: 20 steps against 10+10 and 7+7+6.
resumes() {
  local name=$1 ranks=$2 every part
  shift 2
  train "$ranks" "$@" --train-iters 20 --run-dir "$name" --save "$name-save"
  expect_code 0 $? "$name: straight"
  for every in 10 7; do
    for part in 1 2 3; do
      [ $every = 10 ] && [ $part = 3 ] && continue
      train "$ranks" "$@" --train-iters 20 --exit-interval $every --run-dir "$name-$every-$part" --save "$name-$every" \
        --load "$name-$every"
      expect_code 0 $? "$name: part $part of $every"
    done
    [ "$(steps "$name")" = "$(steps "$name-$every"-?)" ] || fail "$name: steps differ from $every after $every"
    [ "$(steps "$name" | wc -l)" -ge 20 ] || fail "$name: steps are missing"
    [ "$(content "$name-save")" = "$(content "$name-$every")" ] || fail "$name: content differs from $every after $every"
  done
}
resumes fp32-dp2 2 --global-batch-size 8 --eval-iters 1 --eval-interval 5
resumes bf16-tp2 2 --bf16 --tensor-model-parallel-size 2 --sequence-parallel --global-batch-size 4 --eval-iters 0
resumes fp16-pp2 2 --fp16 --pipeline-model-parallel-size 2 --global-batch-size 4 --initial-loss-scale 65536 \
  --loss-scale-window 4 --eval-iters 0
resumes bf16-zb 4 --bf16 --pipeline-model-parallel-size 2 --pipeline-schedule zb-h1 --global-batch-size 8 --eval-iters 0 \
  --async-save --save-interval 3 --keep-latest 2
[ "$("$triax" ckpt ls bf16-zb-save --steps --format csv | wc -l)" -eq 3 ] || fail "--keep-latest 2 keeps others"
resumes sgd 2 --optimizer sgd --tensor-model-parallel-size 2 --global-batch-size 4 --eval-iters 0 --ckpt-writers-per-node 1

resumes zero1 2 --bf16 --zero-stage 1 --global-batch-size 4 --eval-iters 1 --eval-interval 5
resumes zero2 2 --zero-stage 2 --global-batch-size 8 --eval-iters 0 --async-save --save-interval 4
resumes zero3 4 --bf16 --zero-stage 3 --tensor-model-parallel-size 2 --global-batch-size 8 --eval-iters 0
resumes zero3-hybrid 4 --zero-stage 3 --zero-shard-group 2 --global-batch-size 8 --eval-iters 0
resumes topk 2 --grad-compression topk --grad-compression-density 0.05 --global-batch-size 8 --eval-iters 0

# Kill at every point of the second save: what is there is whole, and the run goes on to the same end.
once="--global-batch-size 4 --eval-iters 0 --train-iters 9"
few="$once --save-interval 3 --keep-latest 1"
# shellcheck disable=SC2086
train 2 $few --run-dir straight --save straight-save
for point in 1 2 3 4 5 6 7 8 9 10 11 12; do
  rank=$((point <= 6 ? point % 2 : 0))
  # shellcheck disable=SC2086
  train 2 $few --run-dir "killed-$point" --save "kill-$point" --inject "kill-save:$point:$rank:$((point < 12 ? 2 : 1))"
  [ $? -ne 0 ] || fail "point $point: the run was not killed"
  "$triax" ckpt verify "kill-$point" --all >verified || fail "point $point: $(cat verified)"
  # shellcheck disable=SC2086
  train 2 $few --run-dir "after-$point" --save "kill-$point" --load "kill-$point"
  expect_code 0 $? "point $point: going on"
  [ "$(steps straight | tail -3)" = "$(steps "after-$point" | tail -3)" ] || fail "point $point: other steps"
  [ "$(content straight-save)" = "$(content "kill-$point")" ] || fail "point $point: other content"
  [ "$(ls "kill-$point")" = "$(printf 'iter_0000009\nlatest_checkpointed_iteration.txt')" ] ||
    fail "point $point: left behind: $(ls "kill-$point")"
done

# Saves that fail: not 0, the reason, the checkpoint before.
# shellcheck disable=SC2086
train 2 $few --run-dir full --save full-save --inject disk-full:60000
expect_code 5 $? "disk full"
grep -q 'cannot write full-save/iter_0000003.tmp/shard_0000[01].h5: .*File too large' err || fail "disk full is not told: $(cat err)"
grep -q '^at fault: rank 0 ' err || fail "disk full on every rank is reported of another: $(cat err)"
[ -z "$(ls full-save)" ] || fail "a failed save left $(ls full-save)"
# shellcheck disable=SC2086
train 2 $few --run-dir read-only --save /sys/triax
expect_code 2 $? "read-only directory"
grep -q -- '--save /sys/triax: cannot be written' err || fail "read-only is not told: $(cat err)"
if mkdir tmpfs && mount -t tmpfs -o size=600k tmpfs tmpfs 2>/dev/null; then
  # shellcheck disable=SC2086
  train 2 $few --run-dir small --save tmpfs/x
  expect_code 2 $? "no space at start"
  grep -q 'free some space' err || fail "no space is not told: $(cat err)"
  umount tmpfs
else
  echo "skipped: a file system of 600 kB cannot be mounted here"
fi

# Damage is named; by verify with the tensor, by a load with the file.
copy() { rm -rf damaged && cp -r straight-save damaged; }
shard=damaged/iter_0000009/shard_00001.h5
copy
offset=$(h5dump -p -H -d /exp_avg/model.layers.3.mlp.fc2.weight $shard | sed -n 's/.*OFFSET *\([0-9]*\).*/\1/p')
printf '\377' | dd of=$shard bs=1 seek=$((offset + 5)) conv=notrunc 2>/dev/null
"$triax" ckpt verify damaged >verified
expect_code 4 $? "verify of a flipped byte"
grep -q 'shard_00001.h5 is damaged.*values of exp_avg of model.layers.3.mlp.fc2.weight$' verified || fail "$(cat verified)"
# shellcheck disable=SC2086
train 2 $once --run-dir damaged-run --load damaged
expect_code 5 $? "loading a flipped byte"
grep -q 'exp_avg of model.layers.3.mlp.fc2.weight: .*shard_00001.h5 is damaged' err || fail "$(cat err)"
for copying in "reshard damaged copied --shards 3" "export damaged copied.h5 --format hdf5" \
  "export damaged copied-hub --format safetensors"; do
  # shellcheck disable=SC2086
  "$triax" ckpt $copying >out 2>err
  expect_code 5 $? "ckpt $copying of damage"
  grep -q 'shard_00001.h5 is damaged' err || fail "ckpt $copying: $(cat err)"
  [ -z "$(ls -d copied* 2>/dev/null)" ] || fail "ckpt $copying left $(ls -d copied*)"
done
copy
sed -i '/shard_00001/d' damaged/iter_0000009/checksums.xxh128
"$triax" ckpt verify damaged >verified
expect_code 4 $? "verify without a checksum"
grep -q 'checksums.xxh128 is damaged: it has no checksum of shard_00001.h5$' verified || fail "$(cat verified)"
copy
truncate -s -1000 $shard
"$triax" ckpt verify damaged >verified
expect_code 4 $? "verify of a cut file"
grep -q 'shard_00001.h5 is damaged.*it holds exp_avg of model.layers.1.* and [0-9]* more' verified || fail "$(cat verified)"
copy
rm $shard
"$triax" ckpt verify damaged >verified
expect_code 4 $? "verify without a shard"
grep -q 'shard_00001.h5 is missing: it holds' verified || fail "$(cat verified)"
# shellcheck disable=SC2086
train 2 $once --run-dir missing-run --load damaged
expect_code 5 $? "loading without a shard"
grep -q 'shard_00001.h5 is missing' err || fail "$(cat err)"
! grep -q 'ckpt-step' err || fail "another iteration is named, and there is none: $(cat err)"
h5dump -d /weight/model.layers.3.mlp.fc2.weight damaged/iter_0000009/index.h5 | grep -q nan || fail "a missing shard does not show"
cp -r straight-save/iter_0000009 damaged/iter_0000003
for damage in "rm -f $shard" "truncate -s 100 damaged/iter_0000009/index.h5"; do
  $damage
  # shellcheck disable=SC2086
  train 2 $once --run-dir others-run --load damaged
  expect_code 5 $? "$damage, beside another iteration"
  grep -q -- '; --ckpt-step loads another iteration: there is 3$' err || fail "no way out of $damage: $(cat err)"
done
copy
printf '\377' | dd of=damaged/iter_0000009/index.h5 bs=1 seek=3000 conv=notrunc 2>/dev/null
"$triax" ckpt verify damaged >verified
expect_code 4 $? "verify of a damaged index"
grep -q 'index.h5 is damaged' verified || fail "$(cat verified)"
if command -v flock >/dev/null; then
  copy
  flock --no-fork -x $shard sleep 30 &
  holder=$!
  sleep 0.3
  # shellcheck disable=SC2086
  train 2 $once --run-dir locked-run --load damaged
  expect_code 5 $? "loading a locked file"
  grep -q 'shard_00001.h5 is locked by process [0-9]* (\(flock\|sleep\))' err || fail "$(cat err)"
  kill $holder
fi
command -v xxh128sum >/dev/null && ! (cd straight-save/iter_0000009 && xxh128sum -c checksums.xxh128 >/dev/null) && fail "xxh128sum"

# triax ckpt.
"$triax" ckpt reshard straight-save three --shards 3 >/dev/null || fail "reshard"
[ "$(ls three/iter_0000009 | grep -c shard)" -eq 3 ] || fail "reshard made $(ls three/iter_0000009)"
"$triax" ckpt verify three >/dev/null || fail "reshard is not whole"
"$triax" ckpt diff straight-save three >diffed || fail "reshard differs: $(cat diffed)"
"$triax" ckpt export straight-save plain.h5 --format hdf5 >/dev/null || fail "export"
"$triax" ckpt diff straight-save plain.h5 >diffed || fail "the export differs: $(cat diffed)"
[ "$(content plain.h5)" = "$(content straight-save)" ] || fail "the export has another content"
h5diff plain.h5 straight-save/iter_0000009/index.h5 /weight /weight || fail "h5diff finds a difference"
"$triax" ckpt diff straight-save sgd-save >diffed
expect_code 4 $? "diff of different runs"
grep -q '^momentum .*only in b' diffed || fail "$(cat diffed)"
grep -q '^weight .* [0-9][0-9]* ' diffed || fail "$(cat diffed)"
"$triax" ckpt diff straight-save sgd-save --kind weight --atol 10 >/dev/null || fail "diff with a tolerance"
"$triax" ckpt export straight-save plain.h5 --format hdf5 >out 2>err
expect_code 2 $? "export over a file"
"$triax" ckpt ls nowhere >out 2>err
expect_code 2 $? "ls of nothing"

"$triax" ckpt diff straight-save three --kind wieght >out 2>err
expect_code 2 $? "diff of a kind that is nowhere"

# What is loaded.
echo 7 >three/latest_checkpointed_iteration.txt
# shellcheck disable=SC2086
train 2 $once --run-dir gone --load three
expect_code 0 $? "a tracker that names a step that is gone"
grep -q 'names iteration 7, which is not there: three/iter_0000009 is loaded' err || fail "$(cat err)"
cp -r bf16-zb-save tracker
for content in '' 'rubbish' '20 21' /dev/zero; do
  rm tracker/latest_checkpointed_iteration.txt
  case $content in
    /*) ln -s "$content" tracker/latest_checkpointed_iteration.txt ;;
    *) printf '%s' "$content" >tracker/latest_checkpointed_iteration.txt ;;
  esac
  # shellcheck disable=SC2086
  train 2 $once --run-dir no-tracker --load tracker --bf16
  expect_code 5 $? "a damaged tracker, '$content'"
  grep -q 'latest_checkpointed_iteration.txt is damaged: .*; --ckpt-step loads an iteration: there are 18, 20' err ||
    fail "$(cat err)"
  listed=$("$triax" ckpt ls tracker --steps --format csv 2>err | cut -d, -f1,3 | tail -n +2 | tr '\n' ' ')
  [ "$listed" = "18,no 20,no " ] || fail "ls --steps with a damaged tracker, '$content': $listed"
  grep -q 'ckpt ls: .* is damaged' err || fail "ls --steps does not say that the tracker is damaged: $(cat err)"
  "$triax" ckpt verify tracker --all >out 2>err
  expect_code 0 $? "verify --all with a damaged tracker, '$content'"
  "$triax" ckpt ls tracker >out 2>err
  expect_code 5 $? "ls with a damaged tracker, '$content'"
done
# shellcheck disable=SC2086
train 2 $once --run-dir at-7 --load bf16-zb-save --bf16 --ckpt-step 7
expect_code 2 $? "--ckpt-step of nothing"
grep -q 'there is no checkpoint of iteration 7; there are 18, 20' err || fail "$(cat err)"
# shellcheck disable=SC2086
train 2 $once --num-layers 1 --run-dir args --load straight-save --use-checkpoint-args --verify-integrity --train-iters 9
expect_code 0 $? "--use-checkpoint-args"
grep -q 'loaded all state of iteration 9' err || fail "$(cat err)"
# shellcheck disable=SC2086
train 2 $once --optimizer sgd --run-dir other-state --load straight-save
expect_code 2 $? "SGD from Adam's state"
grep -q 'straight-save/iter_0000009: has no momentum: --finetune' err || fail "$(cat err)"
copy
printf '\377' | dd of=$shard bs=1 seek=$((offset + 5)) conv=notrunc 2>/dev/null
# shellcheck disable=SC2086
train 2 $once --run-dir integrity --load damaged --finetune --verify-integrity
expect_code 5 $? "--verify-integrity of damage in what is not loaded"

# Options that differ: Megatron-LM's rules.
# shellcheck disable=SC2086
train 2 $once --lr 2e-3 --train-iters 12 --run-dir other-lr --load straight-save
expect_code 2 $? "another learning rate"
grep -q 'lr 0.001 in the checkpoint, 0.002 in the run.*--override-opt_param-scheduler' err || fail "$(cat err)"
# shellcheck disable=SC2086
train 2 $once --lr 2e-3 --train-iters 12 --run-dir override --load straight-save --override-opt_param-scheduler
expect_code 0 $? "--override-opt_param-scheduler"
grep -q 'lr: 0.001 -> 0.002' err || fail "the difference is not listed: $(cat err)"
# shellcheck disable=SC2086
train 2 $once --lr 2e-3 --train-iters 12 --run-dir keep --load straight-save --use-checkpoint-opt_param-scheduler
expect_code 0 $? "--use-checkpoint-opt_param-scheduler"
[ "$(steps keep | tail -1 | cut -d' ' -f4)" = 0.0001 ] || fail "the checkpoint's schedule does not hold: $(steps keep)"
# shellcheck disable=SC2086
train 2 $once --num-layers 3 --run-dir other-model --load straight-save
expect_code 2 $? "another model"
grep -q 'num_layers 4 in the file, 3 in the run' err || fail "$(cat err)"
# shellcheck disable=SC2086
train 2 $once --finetune --run-dir finetune --load straight-save
expect_code 0 $? "--finetune"
[ "$(steps finetune | head -1 | cut -d' ' -f1,6)" = "1 4" ] || fail "--finetune does not begin anew: $(steps finetune)"
exit $failed
