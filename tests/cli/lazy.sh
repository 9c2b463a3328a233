#!/usr/bin/env bash
# A run on the CPU opens nothing of CUDA, although the CUDA module lies beside the program; the program links nothing of it.
source "$(dirname "$0")/expect.sh"
built=$(dirname "$(dirname "$triax")")/lib/triax
cuda='/lib(cuda|cudart|cublas|cublasLt|nccl|nvrtc|triax_cuda[a-z_]*)[-.0-9]*\.so'
links=$(ldd "$triax" | grep -E "$cuda")
[ -z "$links" ] || fault "the program links $links"

# The program in a place of its own, with modules beside it: this build's, or in place of one that it has not another
# library, which serves to see whether it is opened.
mkdir -p bin lib/triax
cp "$triax" bin/triax
here=$work/bin/triax
any=$(ldd "$triax" | grep -oE '/[^ ]*libz\.so[^ ]*' | head -1)
for module in libtriax_cuda libtriax_cuda_emulated; do
  from=$built/$module.so
  [ -e "$from" ] || from=$any
  cp -L "$from" "lib/triax/$module.so"
done
# opened COMMAND...: the libraries of CUDA that it and the processes it starts open; its exit code stays.
opened() {
  rm -f debug.*
  LD_DEBUG=files LD_DEBUG_OUTPUT=debug "$@" >out 2>&1
  local code=$?
  [ -n "$(ls debug.* 2>/dev/null)" ] || fault "$*: the loader said nothing"
  sed -nE 's/.*file=([^ ]*) .*/\1/p' debug.* | sed 's:^\([^/]\):/\1:' | grep -E "$cuda" | sort -u
  return $code
}
none() { # words, command
  local words=$1 found
  shift
  found=$(opened "$@") || true
  [ -z "$found" ] || fault "$words opens $found"
}
tiny="--model t0 --mock-data --micro-batch-size 1 --global-batch-size 2 --lr 1e-3 --lr-decay-style constant --train-iters 1
  --eval-iters 0 --peak-tflops 1"
none 'triax --version' "$here" --version
none 'triax --help' "$here" --help
none 'triax doctor' "$mpiexec" -n 1 "$here" doctor
none 'triax topo' "$mpiexec" -n 1 "$here" topo
# shellcheck disable=SC2086
none 'a run on the CPU' "$mpiexec" -n 1 "$here" train $tiny --device cpu --run-dir run
[ -s run/summary.json ] || fault "the run on the CPU: $(tail -3 out)"
# shellcheck disable=SC2086
none 'triax mem for a GPU' "$here" mem $tiny --world-size 1 --device cuda

# The test sees what is opened: a run on the GPU opens its module.
# shellcheck disable=SC2086
opened "$mpiexec" -n 1 "$here" train $tiny --device cuda-emulated --run-dir gpu | grep -q libtriax_cuda_emulated ||
  fault "a run on an emulated GPU opens no module: this test sees nothing"
exit $((faults > 0))
