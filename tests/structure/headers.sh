#!/usr/bin/env bash
# Every header of a layer has #pragma once and compiles alone, with the flags and include paths of that layer's own target.
# One that its own source includes first is compiled alone by a build without TRIAX_UNITY (CI's of the program with CUDA)
# and is not compiled again here.
# usage: headers.sh ROOT LAYER FLAGS-FILE JOBS COMPILER...
source "$(dirname "$0")/lib.sh"
layer=$2 flags=$3 jobs=$4
shift 4
count=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
while read -r header; do
  count=$((count + 1))
  grep -qx '#pragma once' "$header" || fault "$header: no #pragma once"
  source=${header%.h}.cpp
  [ -f "$source" ] && [ "$(grep -m 1 '^#include' "$source")" = "#include \"$header\"" ] && continue
  echo "#include \"$header\"" >"$work/$count.cpp"
done < <(product_files | grep -E "^$layer/.*\.h$" | grep -v '/cuda/' || true)
[ "$count" -gt 0 ] || { echo "SKIP: $layer has no headers"; exit 77; }
# xargs ends with 123 if one of the compilers failed; their messages name the header.
find "$work" -name '*.cpp' -print0 | xargs -0 -r -n 1 -P "$jobs" "$@" -fsyntax-only -I"$root" "@$flags" ||
  fault "$layer: a header does not compile alone (above)"
finish "$count headers of $layer compile alone"
