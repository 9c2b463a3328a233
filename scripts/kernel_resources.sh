#!/usr/bin/env bash
# What ptxas gives each kernel of the CUDA module: registers, shared memory, and what it spills.
# usage: kernel_resources.sh keep COMPILER ... -o OBJECT ...   the compiler's launcher: keeps its words on kernels in
#            OBJECT.resources and passes the others on
#        kernel_resources.sh check SOURCES OBJECTS ARCHITECTURE...   1 when a kernel spills a register or takes more than
#            48 KiB of static shared memory, when ptxas says that it makes asynchronous products wait for each other or
#            leaves out setmaxnreg ("Potential Performance Loss"), or when a .cu file of SOURCES has no kernel for an
#            architecture (sm_80: 80) in OBJECTS; 77 where there are no OBJECTS
set -euo pipefail
mode=${1:?usage: kernel_resources.sh keep|check ...}
shift

if [ "$mode" = keep ]; then
  object=
  for ((i = 1; i < $#; i++)); do
    if [ "${!i}" = -o ]; then
      next=$((i + 1))
      object=${!next}
    fi
  done
  words=$(mktemp)
  trap 'rm -f "$words"' EXIT
  status=0
  "$@" 2>"$words" || status=$?
  if [ -n "$object" ] && [ $status -eq 0 ]; then
    grep -E "^ptxas info|bytes stack frame" "$words" >"$object.resources" || true
  fi
  grep -vE "^ptxas info|bytes stack frame" "$words" >&2 || true
  exit $status
fi

sources=${1:?} objects=${2:?}
shift 2
if [ ! -d "$objects" ]; then
  echo "SKIP: this build has no CUDA module (nvcc compiles it: preset cuda)"
  exit 77
fi
faults=0
kernels=0
fault() { echo "$1"; faults=$((faults + 1)); }
for source in "$sources"/*.cu; do
  name=$(basename "$source")
  grep -q __global__ "$source" || continue
  log=$(find "$objects" -name "$name.*.resources" | head -1)
  [ -n "$log" ] || { fault "$name: no resources are known: was it compiled?"; continue; }
  for architecture in "$@"; do
    grep -q "for 'sm_$architecture'" "$log" || fault "$name: no kernel for sm_$architecture"
  done
  while read -r line; do
    case $line in kernels\ *) kernels=$((kernels + ${line#kernels })) ;; *) fault "$name: $line" ;; esac
  done < <(awk '
    match($0, /entry function .*/) { kernel = substr($0, RSTART + 15); count++ }
    match($0, /[0-9]+ bytes spill stores, [0-9]+ bytes spill loads/) {
      text = substr($0, RSTART, RLENGTH)
      if (text !~ /^0 bytes spill stores, 0 /) print kernel ": " text
    }
    match($0, /[0-9]+ bytes smem/) {
      if (substr($0, RSTART) + 0 > 48 * 1024) print kernel ": " substr($0, RSTART, RLENGTH) ", of 49152 there are"
    }
    match($0, /Potential Performance Loss: .*/) { print substr($0, RSTART) }
    END { print "kernels " count + 0 }' "$log")
done
[ "$faults" -eq 0 ] || exit 1
[ "$kernels" -gt 0 ] || { echo "no kernel in $objects"; exit 1; }
echo "ok: $kernels kernels, no spilled register, static shared memory within 48 KiB"
