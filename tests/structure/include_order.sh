#!/usr/bin/env bash
# A folder includes only from itself and from folders to its left; base and kernels do not know MPI; only folders named
# cuda know CUDA and NCCL; includes of our own are from the root.
source "$(dirname "$0")/lib.sh"
awk -v layers="$layers" '
  BEGIN { n = split(layers, name, " "); for (i = 1; i <= n; i++) rank[name[i]] = i }
  function layer(path) { sub("/.*", "", path); return path }
  { file = $1; here = layer(file)
    while ((getline line < file) > 0) {
      number++
      if (line !~ /^[ \t]*#[ \t]*include/) continue
      what = line; sub(/^[^"<]*["<]/, "", what); sub(/[">].*/, "", what)
      there = layer(what); at = file ":" number ": "
      if (what ~ /^mpi(_.*)?\.h$/ && rank[here] < rank["comm"]) print at here " must not know MPI"
      if (what ~ /^(cuda|nccl|cublas)/ && file !~ "/cuda/") print at "CUDA is named outside a folder cuda/"
      if (line ~ /"/) {
        if (what == "triax_build.h" || what == "triax_commit.h") { if (file != "base/version.cpp") print at "only base/version.cpp includes " what }
        else if (!(there in rank) || what !~ "/") print at "\"" what "\" is not an include from the root"
        else if (rank[there] > rank[here]) print at here " must not include from " there
      }
    }
    close(file); number = 0 }
' < <(for layer in $layers; do product_files | grep -E "^$layer/.*\.(h|cpp|c|cu|cuh)$" || true; done) >"${TMPDIR:-/tmp}/order.$$"
while read -r line; do fault "$line"; done <"${TMPDIR:-/tmp}/order.$$"
rm -f "${TMPDIR:-/tmp}/order.$$"
finish "includes go from right to left only"
