# Shared by the structure tests: every script takes the root of a source tree as its first argument, prints one line
# "FILE: what is wrong" per fault, and ends with 1 if there was one.
set -euo pipefail
root=$(cd "${1:?usage: $0 ROOT}" && pwd)
cd "$root"
layers="base kernels comm parallel model io train bench plan apps"
faults=0

fault() {
  echo "$1"
  faults=$((faults + 1))
}

finish() {
  [ "$faults" -eq 0 ] || exit 1
  echo "ok: ${1:-no fault}"
}

# Files of the product: what git tracks or would track; in a tree without git, all but build outputs.
product_files() {
  if [ -e .git ] && git rev-parse --git-dir >/dev/null 2>&1; then
    git ls-files -co --exclude-standard
  else
    find . -type f -not -path './build/*' -not -path './runs/*' -not -path './install/*' -not -path './.corpus/*' | sed 's,^\./,,'
  fi | sort | while read -r file; do [ ! -f "$file" ] || echo "$file"; done
}
