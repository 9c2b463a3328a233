#!/usr/bin/env bash
# bench on GPUs, emulated: collectives by NCCL on device memory, checked; copies and peers; overlap; hw.json, which plan, sim
# and mem read. Every figure says that it is an emulation's. Skipped where the build has no emulated GPU.
source "$(dirname "$0")/expect.sh"
[ -e "$(dirname "$(dirname "$triax")")/lib/triax/libtriax_cuda_emulated.so" ] || {
  echo "skipped: this build has no emulated GPU (tests off)"
  exit 77
}
# The host must not touch the device's memory: it is protected while the GPU is idle.
export TRIAX_EMULATED_PROTECT=1
emulation='emulation on the CPU: no speed of a GPU'
bench() { # ranks, words
  local ranks=$1
  shift
  "$mpiexec" -n "$ranks" "$triax" bench "$@" --device cuda-emulated
}
all=all_reduce,all_gather,reduce_scatter,broadcast,reduce,all_to_all,sendrecv
one="-b 4K -e 4K --turns 2 -n 3"

# Every operation in every type of NCCL's is right, in place and out of it; bandwidths are nccl-tests' formulas of the time.
# shellcheck disable=SC2086
{
  for type in float double half bfloat16 int8 uint8 int32 int64; do
    bench 2 coll --ops $all -d $type $one --format csv >coll-$type.csv 2>err || fault "coll $type: $(tail -3 err)"
    awk -F, -v ranks=2 'NR == 1 { for (i = 1; i <= NF; ++i) c[$i] = i; next }
      { ++rows; f = $c["op"] == "all_reduce" ? 2 * (ranks - 1) / ranks : $c["op"] ~ /^all_|scatter/ ? (ranks - 1) / ranks : 1
        algbw = $c["size"] / $c["time_us"] / 1e3
        if ($c["wrong"] != 0 || $c["size"] != 4096 || $c["algorithm"] != "nccl" || $c["converted"] != ($c["op"] == "sendrecv" ? "false" : "true") ||
            $c["min_us"] > $c["time_us"] || $c["time_us"] > $c["p95_us"] || $c["p95_us"] > $c["p99_us"] ||
            (algbw - $c["algbw_gbps"])^2 > 1e-4 * algbw^2 || ($c["busbw_gbps"] - f * algbw)^2 > 1e-4 * algbw^2) { print; bad = 1 } }
      END { exit bad || rows != 12 }' coll-$type.csv || fault "coll $type: $(cat coll-$type.csv)"
    [ "$(grep -c "\"$emulation\"$" coll-$type.csv)" -eq 12 ] || fault "coll $type: not labelled"
  done
  grep -q '^2,1,int8,4096,2048,none,-1,all_to_all,nccl,out,' coll-int8.csv || fault "count of int8: $(cat coll-int8.csv)"
  for op in max min; do
    expect 0 'Out of bounds values : 0 OK' bench 2 coll --ops all_reduce,reduce,reduce_scatter -o $op $one
  done
  expect 0 'Out of bounds values : 0 OK' bench 4 coll --ops $all --split mod:2 $one
  expect 0 'registered GPU memory' bench 2 coll --use-nccl-ub $one
  expect 0 "# $emulation" bench 2 coll $one
  # The check on results of the device sees a wrong one: the last element of every sum.
  TRIAX_EMULATED_NCCL_WRONG=1 bench 2 coll --ops all_reduce,reduce_scatter,all_gather $one --format csv >wrong.csv 2>err
  [ $? -eq 4 ] || fault "a wrong sum does not end in 4: $(cat wrong.csv err)"
  [ "$(cut -d, -f8,10,18 wrong.csv | tr '\n' ' ')" = "op,place,wrong all_reduce,out,2 all_reduce,in,2 \
reduce_scatter,out,2 reduce_scatter,in,2 all_gather,out,0 all_gather,in,0 " ] || fault "wrong elements: $(cat wrong.csv)"
  TRIAX_EMULATED_NCCL_WRONG=1 expect 4 'wrong' bench 2 coll $one
  TRIAX_EMULATED_NCCL_WRONG=1 expect 0 'N/A' bench 2 coll $one -c 0
  # Groups of a layout, each alone and all at once.
  bench 4 coll --groups tp,dp --tensor-model-parallel-size 2 $one --format csv >groups.csv 2>err || fault "groups: $(cat err)"
  [ "$(cut -d, -f1-4 groups.csv | tr '\n' ' ')" = "group,op,ranks,size dp,all_reduce,2,4096 tp,all_reduce,2,4096 " ] ||
    fault "groups: $(cat groups.csv)"
  expect 0 'pp     sendrecv            2' bench 2 coll --groups pp --pipeline-model-parallel-size 2 $one

  # Refused: what would be called what it is not, and what NCCL does itself.
  expect 2 'use mpiexec -n 2 or more' bench 1 coll
  expect 2 'all ranks are on one host, which would measure its memory' bench 2 coll --nodes 2
  expect 2 'all ranks are on one host, which would measure its memory' bench 2 links --nodes 2
  expect 2 'all ranks are on one host, which would measure its memory' bench 2 all --nodes 2
  TRIAX_EMULATED_GPUS=1 expect 2 'ranks 0 and 1 on' bench 2 coll $one
  TRIAX_EMULATED_GPUS=1 expect 2 'ranks 0 and 1 on' bench 2 links
  TRIAX_EMULATED_GPUS=1 expect 2 'ranks 0 and 1 on' bench 2 overlap
  TRIAX_EMULATED_GPUS=1 expect 2 'ranks 0 and 1 on' bench 2 all
  expect 2 '--algorithm ring: is the CPU' bench 2 coll --algorithm ring
  expect 2 '--memory heap: is the CPU' bench 2 coll --memory heap
  expect 2 'needs groups of one size' bench 3 coll --ops sendrecv --split mod:2 $one
}
expect 2 '--datatype int8: is for --device cuda' "$mpiexec" -n 2 "$triax" bench coll -d int8
expect 2 '--use-nccl-ub true: registers memory of GPUs' "$mpiexec" -n 2 "$triax" bench coll --use-nccl-ub
for command in all links overlap gemm attention norm adam copy; do
  expect 2 '--use-nccl-ub true: registers memory of GPUs' "$mpiexec" -n 2 "$triax" bench $command --use-nccl-ub
  expect 2 '--gemm-tuning measure: times algorithms of GPUs' "$mpiexec" -n 2 "$triax" bench $command --gemm-tuning measure
  expect 2 '--gemm-cache gemm: holds algorithms of GPUs' "$mpiexec" -n 2 "$triax" bench $command --gemm-cache gemm
  expect 2 'operations are timed one by one' "$mpiexec" -n 2 "$triax" bench $command --enable-cuda-graph
done

# Copies to and from the host and within the GPU, alone and together; each pair of ranks both ways.
bench 2 links --sizes 4K,64K --rounds 2 --format csv >links.csv 2>err || fault "links: $(tail -3 err)"
[ "$(cut -d, -f1-4 links.csv | sort | uniq -c | awk '$1 != 1' | wc -l)" -eq 0 ] || fault "links: rows twice: $(cat links.csv)"
for row in h2d d2h h2d+d2h d2d; do
  [ "$(grep -c "^$row,[01],[01],\(4096\|65536\),[0-9.]*[1-9].*,\"$emulation\"$" links.csv)" -eq 4 ] ||
    fault "links: $row: $(cat links.csv)"
done
[ "$(grep -c "^peer,\(0,1\|1,0\),\(4096\|65536\),.*,\"$emulation\"$" links.csv)" -eq 4 ] || fault "links: $(cat links.csv)"
expect 0 'latency (half a round trip), us, 4096 bytes; rows send' bench 2 links --sizes 4K --rounds 1
expect 0 'one rank: there is no pair to measure' bench 1 links --sizes 4K --rounds 1
expect 0 'peer,0,1,4096' "$mpiexec" -n 2 "$triax" bench links --sizes 4K --rounds 1 --format csv
expect 2 'must be a list of multiples of 4' bench 2 links --sizes 4K,5

# A GEMM and an all_reduce beside each other.
bench 2 overlap --sizes 4K,64K --gemm-size 32 --rounds 2 --format csv >overlap.csv 2>err || fault "overlap: $(tail -3 err)"
[ "$(grep -cE "^(4096|65536),([0-9.]*[1-9][0-9.]*,){5}[0-9.]+,\"$emulation\"$" overlap.csv)" -eq 2 ] ||
  fault "overlap: $(cat overlap.csv)"

# NVLink as nvidia-smi tells it.
mkdir tools
printf '#!/bin/bash\n[ "$*" = "topo -m" ] || exit 9\necho "GPU0  X  NV18"\n' >tools/nvidia-smi && chmod +x tools/nvidia-smi
PATH=$work/tools:$PATH expect 0 'GPU0  X  NV18' "$triax" bench topo

# hw.json of this machine's (emulated) GPUs, without the protection, which costs most of the time: memory and name by the runtime, and all that the cost model reads.
unset TRIAX_EMULATED_PROTECT
bench 2 all --budget 20s --dtypes fp32 --out hw.json >all.txt 2>&1 || fault "bench all: $(tail -5 all.txt)"
grep -qx "$emulation" all.txt || fault "bench all is not labelled: $(cat all.txt)"
grep -q '"device": "cuda-emulated"' hw.json || fault "device of hw.json"
grep -q "\"description\": \"$emulation: emulated GPU, 2 ranks, 2 of 2 GPUs of a node" hw.json ||
  fault "description: $(grep description hw.json)"
grep -q '"memory_bytes": {"value":8589934592.0,"origin":"measured","source":"cudaMemGetInfo"}' hw.json ||
  fault "memory: $(grep memory_bytes hw.json)"
for name in launch_s launch_latency_s host_to_device_bytes_per_s device_to_host_bytes_per_s multiprocessors \
  overlap_gemm_slowdown overlap_all_reduce_slowdown checkpoint_write_bytes_per_s checkpoint_read_bytes_per_s runtime_bytes; do
  grep -q "^    \"$name\": {\"value\":.*\"origin\":\"measured\"" hw.json || fault "hw.json has no $name"
done
for entry in '"dtype":"fp32","layout":"TN"' '"kernel":"attention_forward"' '"kernel":"layer_norm_backward"' \
  '"kernel":"adamw"' '"kernel":"copy"' '"operation":"all_reduce","ranks":2' '"operation":"send","ranks":2'; do
  grep -q "$entry" hw.json || fault "hw.json has no $entry"
done
[ -z "$(ls -d triax-bench-io-* 2>/dev/null)" ] || fault 'bench all left a directory of checkpoints'
expect 0 '% of best gemm' "$triax" bench show hw.json
expect 0 "$emulation" "$triax" bench show hw.json
"$triax" bench show hw.json --format csv | awk -F, '/^"(gemm|layer_norm_forward|all_reduce)/ && $(NF - 1) > 0 { ++n } END { exit n < 5 }' ||
  fault "shares: $("$triax" bench show hw.json --format csv)"
run="--model t1 --no-bf16 --global-batch-size 4 --hw hw.json"
# shellcheck disable=SC2086
{
  expect 0 "$emulation" "$triax" plan $run --gpus 2 --device cuda-emulated
  "$triax" plan $run --gpus 2 --device cuda-emulated --emit planned >/dev/null 2>err || fault "plan: $(cat err)"
  grep -qx 'device = cuda-emulated' planned/run.cfg || fault "device of run.cfg: $(grep device planned/run.cfg)"
  expect 0 ' of 8192.000 MiB' "$triax" sim $run --world-size 2 --micro-batch-size 1 --device cuda-emulated
  expect 0 'largest: stage 0' "$triax" mem $run --world-size 2 --micro-batch-size 1 --device cuda-emulated
  # A launch that costs the host more makes a step of many small kernels longer.
  step_ms() { "$triax" sim ${run/hw.json/$1} --world-size 2 --micro-batch-size 1 --format json | sed -n 's/.*"step_s": \([0-9.e-]*\).*/\1/p' | head -1; }
  sed 's/"launch_s": {"value":[^,]*/"launch_s": {"value":0.5/' hw.json >slow.json
  awk -v a="$(step_ms hw.json)" -v b="$(step_ms slow.json)" 'BEGIN { exit !(a > 0 && b > 100 * a) }' ||
    fault "launch_s plays no part: $(step_ms hw.json), $(step_ms slow.json)"
}

# One GPU measures no link: refused, or left out on request; then what stands for the link is assumed, and said.
expect 2 'or, with one GPU, --no-links' bench 1 all
expect 2 'leave it out, or --device cuda' "$mpiexec" -n 2 "$triax" bench all --no-links
expect 2 'GPUs compute in fp32, bf16, fp16 here' bench 2 all --dtypes fp64
bench 1 all --no-links --budget 6s --dtypes fp32 --out one.json >one.txt 2>&1 || fault "bench all --no-links: $(tail -3 one.txt)"
grep -q '"origin":"assumed","source":"one rank measures no link: the GPU' one.json || fault "link of one.json"
# shellcheck disable=SC2086
expect 0 'pcie twice as fast' "$triax" plan ${run/hw.json/one.json} --gpus 2 --device cuda-emulated

# An emulated GPU's times do not become a GPU's.
# shellcheck disable=SC2086
bench 2 coll $one >coll.txt 2>&1
expect 2 'holds times of an emulated GPU' "$triax" bench import coll.txt --out c.json
exit $((faults > 0))
