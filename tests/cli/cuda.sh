#!/usr/bin/env bash
# --device cuda-emulated as a user gives it: saving and going on, checkpoints that cross devices, replicas compared, text,
# and each refusal once, with its remedy. Skipped where the build has no emulated GPU.
source "$(dirname "$0")/expect.sh"
source_dir=$2
[ -e "$(dirname "$(dirname "$triax")")/lib/triax/libtriax_cuda_emulated.so" ] || {
  echo "skipped: this build has no emulated GPU (tests off)"
  exit 77
}
# The host must not touch the device's memory: it is protected while the GPU is idle.
export TRIAX_EMULATED_PROTECT=1

model="--num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 16
  --vocab-size 60 --make-vocab-size-divisible-by 4 --mock-data --micro-batch-size 1 --global-batch-size 4 --lr 1e-2
  --min-lr 1e-3 --lr-decay-style cosine --eval-iters 0 --peak-tflops 1 --no-tensorboard"
train() { # ranks, device, run directory, options
  local ranks=$1 device=$2 run=$3
  shift 3
  # shellcheck disable=SC2086
  "$mpiexec" -n "$ranks" "$triax" train $model --device "$device" --run-dir "$run" "$@"
}
must() { # words, then as train
  local words=$1
  shift
  train "$@" >out 2>err || fault "$words: $(tail -3 err)"
}
# steps RUN...: what every step of these runs, one after the other, computed.
steps() {
  local run
  for run in "$@"; do
    sed -n 's/^\({"iteration":[0-9]*,"lm_loss":[^,]*,"grad_norm":[^,]*,"learning_rate":[^,]*\),.*/\1/p' \
      "$run/metrics.jsonl"
  done
}
content() { "$triax" ckpt ls "$1" --hash | grep '^content'; }

# Saving and going on: the bits of the run without a break, in the losses and in the files; --async-save writes the same.
for layout in "zero3 --zero-stage 3 --zero-quantized-weights" "tp2 --tensor-model-parallel-size 2 --sequence-parallel" \
  "topk --grad-compression topk --grad-compression-density 0.1 --grad-compression-min-elements 100"; do
  read -r name options <<<"$layout"
  # shellcheck disable=SC2086
  {
    must "$name, straight" 2 cuda-emulated "$name" $options --train-iters 6 --save "$name-save" --check replicas
    must "$name, first half" 2 cuda-emulated "$name-1" $options --train-iters 6 --exit-interval 3 --save "$name-part"
    must "$name, second half" 2 cuda-emulated "$name-2" $options --train-iters 6 --save "$name-part" \
      --load "$name-part"
    must "$name, async" 2 cuda-emulated "$name-3" $options --train-iters 6 --save "$name-async" --async-save \
      --save-interval 3
  }
  [ "$(steps "$name" | wc -l)" -eq 6 ] || fault "$name: six steps: $(steps "$name")"
  [ "$(steps "$name")" = "$(steps "$name-1" "$name-2")" ] || fault "$name: other steps after going on"
  [ "$(content "$name-save")" = "$(content "$name-part")" ] || fault "$name: other content after going on"
  [ "$(content "$name-save")" = "$(content "$name-async")" ] || fault "$name: other content by --async-save"
  [ "$("$triax" ckpt ls "$name-async" --steps --format csv | tail -n +2 | cut -d, -f1 | tr '\n' ' ')" = "3 6 " ] ||
    fault "$name: steps saved: $("$triax" ckpt ls "$name-async" --steps --format csv)"
done
grep -q 'emulated GPU, compute capability' tp2/run.json || fault "run.json does not name the GPU"

# Replicas that differ are found, and named: the sum over dp is left out.
expect 5 'differs between ranks 0 and 1 of group dp' \
  train 2 cuda-emulated replicas --train-iters 3 --check replicas --inject skip-sync:dp

# Where the time went: the bubble, and for every group what was exposed, hidden, and waited for others.
must "pp2" 2 cuda-emulated pp2 --pipeline-model-parallel-size 2 --train-iters 3
grep -qE 'pipeline 1f1b p2 v1 m4, measured step 3: bubble [0-9.]+ % of total' out || fault "no bubble: $(cat out)"
grep -qx 'clocks: one host, one clock' out || fault "no word about clocks: $(cat out)"
grep -qE '^  group +operation +calls +sent MB +busy ms +wait ms +GB/s +exposed ms +hidden ms' out || fault "no table"
grep -qE '^  pp +send +4\.0 +0\.0041 +[0-9.]+ +[0-9.]+ ' out || fault "no row of messages: $(grep '^  pp' out)"
grep -A8 '"operation": "recv"' pp2/summary.json | grep -q '"waited_ms": [0-9]' || fault "no wait of receives"

# --enable-cuda-graph: the steps of a run without, a bubble, a trace, and how many passes were replayed.
must "graphs" 2 cuda-emulated graphs --pipeline-model-parallel-size 2 --train-iters 3 --enable-cuda-graph --profile \
  --profile-step-start 2 --profile-step-end 3
[ "$(steps pp2)" = "$(steps graphs)" ] || fault "graphs change the steps: $(steps pp2) $(steps graphs)"
grep -qE 'pipeline 1f1b p2 v1 m4, measured step 3: bubble [0-9.]+ % of total' out || fault "graphs: no bubble: $(cat out)"
expect 0 'measured trace of 1f1b' "$triax" trace summary graphs/trace/profile/step-3.json
grep -qE '^CUDA graphs of rank 0: [1-9][0-9]* made, [1-9][0-9]* held; [1-9][0-9]* of 24 passes replayed; ' out ||
  fault "no word about graphs: $(grep graphs out)"
# Nor has an emulation a peak that could be measured: that would take hours.
model=${model/--peak-tflops 1/} must "no graphs" 1 cuda-emulated no-graphs --train-iters 1
if grep -q 'peak for MFU' err || ! grep -q 'MFU: peak unknown' out; then fault "a peak of an emulation: $(cat out err)"; fi
if grep -q 'CUDA graphs' out; then fault "graphs that nobody asked for"; fi
expect 2 '--enable-cuda-graph true: the CPU launches nothing; use --device cuda, or leave it out' train 2 cpu none \
  --enable-cuda-graph --train-iters 1
expect 2 'the trainer makes the graphs: use --enable-cuda-graph' train 2 cuda-emulated none --cuda-graph-impl local

# --profile: traces of steps 2 and 3 that read back, of the ranks named, on either device; a capture on the GPU alone.
for device in cuda-emulated cpu; do
  must "profile, $device" 2 $device profile-$device --pipeline-model-parallel-size 2 --train-iters 3 --profile \
    --profile-step-start 1 --profile-step-end 3 --profile-ranks 1
  traces=profile-$device/trace/profile
  [ "$(cd $traces && find . -type f | sort | tr '\n' ' ')" = \
    "./step-2.json ./step-2/rank-1.json.gz ./step-3.json ./step-3/rank-1.json.gz " ] ||
    fault "profile, $device: files: $(find $traces -type f)"
  expect 0 'measured trace of 1f1b' "$triax" trace summary $traces/step-3.json
  gzip -dc $traces/step-3/rank-1.json.gz >hta.json
  grep -q '"rank": 1, "world_size": 2' hta.json || fault "profile, $device: the trace of rank 1: $(head -5 hta.json)"
  [ "$(grep -c '"cat": "kernel", "name": "ncclDevKernel_SendRecv 1RECV_F' hta.json)" -eq 4 ] ||
    fault "profile, $device: four receives: $(grep -c SendRecv hta.json)"
done
must "profile, rank 0" 1 cuda-emulated profile-0 --train-iters 2 --profile --profile-step-start 1 --profile-step-end 2
grep -q 'profiled steps 2 to 2: .*; a capture by cudaProfilerApi was open' err || fault "profile: $(grep profiled err)"
must "profile, CPU" 1 cpu profile-1 --train-iters 2 --profile --profile-step-start 1 --profile-step-end 2
grep -q 'profiled steps 2 to 2: .*; no capture by Nsight' err || fault "profile on the CPU: $(grep profiled err)"
expect 2 '--profile-step-end 2: must be more than --profile-step-start 5' train 1 cpu none --train-iters 9 --profile \
  --profile-step-start 5 --profile-step-end 2
expect 2 '--profile-step-end 12: the run ends with iteration 9' train 1 cpu none --train-iters 9 --profile
expect 2 '--profile-ranks 7: must be ranks of the run' train 1 cpu none --train-iters 20 --profile --profile-ranks 0 7

# Memory registered with NCCL, and what the environment tells NCCL, is said.
NCCL_ALGO=Ring must "registered" 2 cuda-emulated registered --zero-stage 3 --train-iters 6 --use-nccl-ub
[ "$(steps zero3)" = "$(steps registered)" ] || fault "registered memory changes the steps"
grep -q 'NCCL 2.18.0, NCCL_ALGO=Ring' err || fault "settings of NCCL: $(grep device err)"
grep -q 'NCCL 2.18.0, no NCCL_ settings' replicas/run.json || fault "no word that NCCL has no settings"

# A checkpoint goes from one device to the other and back; what is computed differs by rounding only.
near() { # as steps: the two files agree within 1e-5
  paste -d' ' "$1" "$2" | tr -c '0-9.eE+\n-' ' ' | awk '
    { n = NF / 2; for (i = 1; i <= n; ++i) { d = $i - $(i + n); if (d * d > 1e-10 * $i * $i) bad = 1 } }
    END { exit bad || NR != 6 }'
}
tp2="--tensor-model-parallel-size 2 --sequence-parallel --train-iters 6"
# shellcheck disable=SC2086
{
  must "on the CPU" 2 cpu cross-1 $tp2 --exit-interval 2 --save cross
  must "from the CPU's checkpoint" 2 cuda-emulated cross-2 $tp2 --exit-interval 4 --save cross --load cross
  grep -q 'loaded all state of iteration 2' err out || fault "the GPU did not load all state: $(cat err)"
  must "from the GPU's checkpoint" 2 cpu cross-3 $tp2 --save cross --load cross
  grep -q 'loaded all state of iteration 4' err out || fault "the CPU did not load all state: $(cat err)"
}
steps tp2 >straight
steps cross-1 cross-2 cross-3 >crossed
near straight crossed || fault "steps that cross devices: $(paste straight crossed)"

# Greedy text: the CPU's, from one GPU and from two.
head -c 40000 "$source_dir/data/demo/pride_and_prejudice.txt" >text.txt
"$triax" data train-tokenizer --input text.txt --vocab-size 300 --output-prefix tok >/dev/null || fault "train-tokenizer"
"$triax" data build --input text.txt --tokenizer-type GPT2BPETokenizer --vocab-file tok-vocab.json --merge-file \
  tok-merges.txt --append-eod --output-prefix novel >/dev/null || fault "data build"
# shellcheck disable=SC2086
"$mpiexec" -n 1 "$triax" train ${model/--vocab-size 60 --make-vocab-size-divisible-by 4 --mock-data/} --device cpu \
  --data-path novel_text_document --split 100,0,0 --train-iters 12 --save words --run-dir words-run >out 2>err ||
  fault "weights for text: $(tail -3 err)"
say() { # ranks, device, options
  "$mpiexec" -n "$1" "$triax" sample --load words --prompt 'It is' --max-new-tokens 6 --temperature 0 --device "$2" \
    "${@:3}" 2>>err
}
text=$(say 1 cpu)
[ "${#text}" -gt 5 ] || fault "text on the CPU: $text, $(cat err)"
[ "$text" = "$(say 1 cuda-emulated)" ] || fault "text of a GPU: $(say 1 cuda-emulated), on the CPU: $text"
[ "$text" = "$(say 2 cuda-emulated --tensor-model-parallel-size 2)" ] || fault "text of two GPUs differs from $text"

# Kernels are measured on the device that is asked for; what bench measures on the CPU alone says so. (cli.bench_gpu: the rest.)
bench() { "$mpiexec" -n 1 "$triax" bench "$@" --model t0 --mock-data --device cuda-emulated --rounds 1; }
expect 0 '1 ranks at once, each on emulated GPU' bench gemm --dtypes fp32
[ "$(bench norm --dtypes fp32,bf16 --format csv 2>err | grep -c '^layer_norm_forward,.*,[0-9.]*,"emulation on the CPU: no speed of a GPU"$')" -eq 2 ] ||
  fault "bench norm on a GPU: $(bench norm --dtypes fp32,bf16 --format csv 2>&1)"
expect 2 'does not compute in fp64' bench gemm --dtypes fp64
expect 2 "bench io measures the CPU's side only" bench io

# What this device cannot do is refused, with what can be done instead.
refuse() { # words of the reason, words of the remedy, options
  local why=$1 remedy=$2
  shift 2
  expect 2 "$why" train 2 cuda-emulated none "$@" --train-iters 1
  expect 2 "$remedy" train 2 cuda-emulated none "$@" --train-iters 1
}
refuse 'does not compute in fp64' '--device cpu, or --bf16, fp32, fp16' --fp64
refuse 'has no virtual time' '--clock real, or --device cpu' --clock virtual
refuse 'leaves the choice of --collective-algorithm to NCCL (NCCL_ALGO)' 'or leave it out' \
  --collective-algorithm dp=ring
refuse 'does not shard over a part of the dp ranks' 'or no --zero-shard-group' --zero-stage 3 --zero-shard-group 1
refuse 'works on host memory' '--device cpu' --grad-sync parameter-server
refuse 'needs a file by which all ranks choose alike' '--gemm-cache FILE, or --gemm-tuning off' --gemm-tuning measure
# The GPU's memory, not the host's.
expect 5 'out of GPU memory: ' train 1 cuda-emulated none --hidden-size 1000000 --ffn-hidden-size 4000000 --train-iters 1
expect 2 'registers memory of GPUs, and --device is cpu' train 2 cpu none --use-nccl-ub --train-iters 1
expect 2 'times algorithms of GPUs, and --device is cpu' train 2 cpu none --gemm-tuning measure --train-iters 1
expect 2 'holds algorithms of GPUs, and --device is cpu' train 2 cpu none --gemm-cache gemm --train-iters 1
expect 2 'must be off or measure' train 2 cpu none --gemm-tuning on --train-iters 1
expect 2 'gemm: cannot be opened: No such file' train 2 cuda-emulated missing --gemm-cache gemm --train-iters 1
[ ! -e none ] || fault "a refused run leaves a run directory"
TRIAX_EMULATED_GPUS=1 expect 2 'ranks 0 and 1 on' train 2 cuda-emulated none --train-iters 1
TRIAX_EMULATED_GPUS=0 expect 5 'this process sees no GPU' train 1 cuda-emulated none --train-iters 1
expect 2 'must be cpu, cuda or cuda-emulated' train 1 tpu none --train-iters 1
exit $((faults > 0))
