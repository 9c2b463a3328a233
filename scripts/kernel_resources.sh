#!/usr/bin/env bash
# What ptxas gives each kernel of the CUDA module: registers, shared memory, and what it spills.
# usage: kernel_resources.sh keep COMPILER ... -o OBJECT ...   the compiler's launcher: keeps its words on kernels in
#            OBJECT.resources and passes the others on
#        kernel_resources.sh check SOURCES OBJECTS ARCHITECTURE...   1 when a kernel spills a register or takes more than
#            48 KiB of static shared memory, when ptxas says that it makes asynchronous products wait for each other or
#            leaves out setmaxnreg ("Potential Performance Loss"), or when a kernel of SOURCES is not in OBJECTS for an
#            architecture (sm_80: 80); 77 where there are no OBJECTS
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
# Every kernel of every source, for every GPU. A translation unit may hold several sources.
mapfile -t logs < <(find "$objects" -name '*.resources' | sort)
compiled=$(grep -hoE "entry function '[^']*' for 'sm_[^']*'" "${logs[@]}" /dev/null || true)
for source in "$sources"/*.cu; do
  for kernel in $(sed 's,//.*,,' "$source" | tr '\n' ' ' | sed 's/__launch_bounds__([^()]*\(([^()]*)[^()]*\)*)//g' |
    grep -oE '__global__[^(;{]*\(' | sed 's/ *($//; s/.*[ *]//'); do
    # In a mangled name its length stands before it.
    of_it=$(grep -E "'[^']*${#kernel}$kernel[^']*' for" <<<"$compiled" || true)
    [ -n "$of_it" ] || { fault "$(basename "$source"): nothing is known of $kernel: was it compiled?"; continue; }
    for architecture in "$@"; do
      grep -q "for 'sm_$architecture'" <<<"$of_it" || fault "$(basename "$source"): no $kernel for sm_$architecture"
    done
  done
done
for log in "${logs[@]}"; do
  while read -r line; do
    case $line in
      kernels\ *) kernels=$((kernels + ${line#kernels })) ;;
      *) fault "$(basename "$log" .resources): $line" ;;
    esac
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
