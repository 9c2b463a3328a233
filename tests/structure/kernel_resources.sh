#!/usr/bin/env bash
# scripts/kernel_resources.sh finds a spill, too much shared memory, products that ptxas makes wait for each other, and a
# kernel that was not compiled for a GPU; its launcher keeps the words of ptxas and passes on the rest. usage: kernel_resources.sh ROOT
set -euo pipefail
check="$1/scripts/kernel_resources.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wrong=0
mkdir -p "$work/sources"
echo '__global__ void f() {}' >"$work/sources/a.cu"

# log ARCHITECTURE SPILLED SHARED: what ptxas says of one kernel.
log() {
  printf "ptxas info    : Compiling entry function '_Z1fv' for 'sm_%s'\n" "$1"
  printf "ptxas info    : Function properties for _Z1fv\n"
  printf "    %s bytes stack frame, %s bytes spill stores, %s bytes spill loads\n" "$2" "$2" "$2"
  printf "ptxas info    : Used 32 registers, used 1 barriers, %s bytes smem\n" "$3"
}
# expect STATUS WORDS ARCHITECTURES...
expect() {
  local want=$1 words=$2 out status=0
  shift 2
  out=$("$check" check "$work/sources" "$work/objects" "$@" 2>&1) || status=$?
  if [ $status -ne "$want" ] || ! grep -qF -- "$words" <<<"$out"; then
    echo "status $status for $want, or not the words '$words':"; echo "$out"; wrong=1
  fi
}

expect 77 'SKIP: this build has no CUDA module' 80
mkdir "$work/objects"
expect 1 'a.cu: nothing is known of f: was it compiled?' 80
{ log 80 0 49152; log 90a 0 0; } >"$work/objects/a.cu.o.resources"
expect 0 'ok: 2 kernels' 80 90a
expect 1 'a.cu: no f for sm_120' 80 120
{ log 80 0 0; log 90a 8 0; } >"$work/objects/a.cu.o.resources"
expect 1 "for 'sm_90a': 8 bytes spill stores, 8 bytes spill loads" 80 90a
log 80 0 49153 >"$work/objects/a.cu.o.resources"
expect 1 '49153 bytes smem' 80
{
  log 80 0 0
  echo "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to" \
    "non wgmma instructions defining accumulator registers of a wgmma in function '_Z1fv'"
} >"$work/objects/a.cu.o.resources"
expect 1 'a.cu.o: Potential Performance Loss: wgmma.mma_async instructions are serialized' 80

# The launcher, around a compiler that says something of both kinds and ends as it is told.
printf '#!/bin/sh\necho "ptxas info    : Used 9 registers" >&2\necho "a warning" >&2\nexit $END\n' >"$work/nvcc"
chmod +x "$work/nvcc"
said=$(END=0 "$check" keep "$work/nvcc" -c x.cu -o "$work/x.o" 2>&1)
[ "$said" = 'a warning' ] || { echo "the launcher passed on: $said"; wrong=1; }
grep -q 'Used 9 registers' "$work/x.o.resources" || { echo "the launcher kept nothing"; wrong=1; }
status=0
END=3 "$check" keep "$work/nvcc" -c y.cu -o "$work/y.o" 2>/dev/null || status=$?
[ $status -eq 3 ] || { echo "the launcher ended with $status instead of the compiler's 3"; wrong=1; }
[ $wrong -eq 0 ] && echo ok
exit $wrong
