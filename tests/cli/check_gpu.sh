#!/usr/bin/env bash
# scripts/check_gpu.sh: without a usable GPU it says so before anything is built; its parts after the build, rehearsed on the
# emulated GPU, fill their tables; parts for which no time is left are named.
source "$(dirname "$0")/expect.sh"
script=$2/scripts/check_gpu.sh
built=$(dirname "$(dirname "$triax")")
# A nvidia-smi that says WORDS and ends with CODE; without one there is no driver.
mkdir tools
for tool in bash dirname date timeout head tr; do ln -s "$(command -v $tool)" tools/; done
smi() { printf '#!/bin/bash\necho "%s"\nexit %s\n' "$1" "$2" >tools/nvidia-smi && chmod +x tools/nvidia-smi; }
probe() { PATH=$work/tools "$script" probe; }
expect 5 'no GPU: nvidia-smi is not found, so this machine has no driver; it needs an NVIDIA GPU' probe
smi "couldn't communicate with the NVIDIA driver" 9
expect 5 "no GPU answers: nvidia-smi says 'couldn't communicate with the NVIDIA driver'" probe
smi 7.5 0
expect 5 'the GPU is of compute capability 7.5; it needs' probe
smi 9.0 0
expect 0 'GPUs: 9.0' probe
expect 2 'usage: check_gpu.sh probe' "$script"

[ -e "$built/lib/triax/libtriax_cuda_emulated.so" ] || {
  echo "skipped: this build has no emulated GPU (tests off)"
  exit 77
}
"$script" rehearse out "$built" >table 2>err || fault "the rehearsal: $(tail -5 table err)"
grep -qF '[  PASSED  ]' table || fault "no test of a kernel passed: $(cat table)"
[ "$(grep -cE '^\| .* GB/s, +[0-9]+ % of copy \|$' table)" -ge 28 ] || fault "rows of GB/s: $(cat table)"
[ "$(grep -cE '^\| .* TFLOP/s, +[0-9]+ % of gemm \|$' table)" -ge 16 ] || fault "rows of TFLOP/s: $(cat table)"
grep -qE '^\| toy \| [1-9][0-9]* \| [0-9.e-]+ \| [0-9.]+ % of 1 \| [0-9.]+ \| [34]\.[0-9]{4} \|$' table ||
  fault "the row of training: $(grep toy table)"
# hw.json of the (emulated) GPUs, and its figures with their shares.
[ -s out/runs/hw.json ] || fault "no hw.json: $(cat table)"
grep -qE '^gemm fp32 TN .* TFLOP/s +[0-9]+ % of best gemm$' table || fault "no share of a GEMM: $(cat table)"
grep -qE '^layer_norm_forward fp32 .* GB/s +[0-9]+ % of copy$' table || fault "no share of a norm"
grep -qE '^all_reduce fp32, 2 ranks on 1 node\(s\) .* GB/s +[0-9]+ % of link$' table || fault "no share of a collective"
expect 1 'tests of the kernels is left out: ' env CHECK_GPU_STARTED=$(($(date +%s) - 470)) "$script" rehearse out "$built"
exit $((faults > 0))
