#!/usr/bin/env bash
# Under pipefail no pipe ends in `grep -q`: it closes the pipe at its first match, and what still writes then fails the
# whole pipe by SIGPIPE, now and then. `grep -q WORDS <<<"$(command)"` reads all.
source "$(dirname "$0")/lib.sh"
files=0
while read -r file; do
  grep -qE '^set -[a-z]*o pipefail|^source .*(lib|common)\.sh' "$file" || continue
  files=$((files + 1))
  while read -r line; do
    fault "$file:$line: a pipe into grep -q under pipefail; read a here-string"
  done < <(grep -nE '\| *grep +(-[a-zA-Z]+ +)*-[a-zA-Z]*q' "$file" | grep -vE '^[0-9]+: *#' | cut -d: -f1)
done < <(product_files | grep -E '\.(sh|slurm)$|^\.ci/run$')
finish "$files scripts read their pipes to the end"
