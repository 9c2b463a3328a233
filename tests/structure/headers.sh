#!/usr/bin/env bash
# Every header of a layer compiles alone, with the flags and include paths of that layer's own target, and twice in one file.
# usage: headers.sh ROOT LAYER FLAGS-FILE JOBS COMPILER...
source "$(dirname "$0")/lib.sh"
layer=$2 flags=$3 jobs=$4
shift 4
count=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
while read -r header; do
  count=$((count + 1))
  printf '#include "%s"\n#include "%s"\n' "$header" "$header" >"$work/$count.cpp"
done < <(product_files | grep -E "^$layer/.*\.h$" | grep -v '/cuda/' || true)
[ "$count" -gt 0 ] || { echo "SKIP: $layer has no headers"; exit 77; }
# xargs ends with 123 if one of the compilers failed; their messages name the header.
find "$work" -name '*.cpp' -print0 | xargs -0 -n 1 -P "$jobs" "$@" -fsyntax-only -I"$root" "@$flags" ||
  fault "$layer: a header does not compile alone (above)"
finish "$count headers of $layer compile alone"
