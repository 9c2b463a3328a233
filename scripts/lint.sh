#!/usr/bin/env bash
# usage: lint.sh format           rewrites the C++ files of the repository in its format (.clang-format)
#        lint.sh tidy BUILD JOBS  clang-tidy over the sources of a configured build (.clang-tidy)
set -euo pipefail
cd "$(dirname "$0")/.."
need() { command -v "$1" >/dev/null 2>&1 || { echo "lint: $1 not found (Debian $1, conda clang-tools)" >&2; exit 1; }; }
sources() { git ls-files -co --exclude-standard -- "$@" | while read -r f; do [ -f "$f" ] && echo "$f"; done; }
case "${1:-}" in
  format)
    need clang-format
    sources '*.h' '*.cpp' '*.cc' '*.cu' '*.cuh' | xargs -r clang-format -i
    ;;
  tidy)
    need clang-tidy
    sources '*.cpp' | grep -v -e '/cuda/' | xargs -r -n 4 -P "$3" clang-tidy --quiet -p "$2"
    ;;
  *)
    sed -n '2,3p' "$0" >&2
    exit 2
    ;;
esac
