#!/usr/bin/env bash
# Runs the tests of a preset, then says what was skipped and why, and closes with ctest's own closing line.
# usage: check.sh TEST-PRESET BUILD-FOLDER [ctest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1 build=$2
shift 2
jobs=$(nproc)
[ "$jobs" -ge 2 ] || jobs=2
out=$build/check.log
status=0
ctest --preset "$preset" --parallel "$jobs" "$@" </dev/null 2>&1 | tee "$out" || status=$?

# GoogleTest prints "FILE:LINE: Skipped", the reason, then "[  SKIPPED ] NAME"; a script prints "SKIP: reason".
skipped() {
  awk '
    /^[0-9]+\/[0-9]+ Testing: /  { test = $3 }
    /: Skipped$/                 { getline reason }
    /^\[  SKIPPED \] .* \(/      { print "  " test " " $4 ": " (reason == "" ? "no reason given" : reason); reason = "" }
    /^SKIP: /                    { print "  " test ": " substr($0, 7) }
  ' "$build/Testing/Temporary/LastTest.log"
  [ ! -f "$build/not-built.txt" ] || sed 's/^/  /' "$build/not-built.txt"
  case $preset in *-long) ;; *) echo "  tests labelled long: 'make check-long' runs them too" ;; esac
}
echo
echo "Skipped, and why:"
skipped
echo
grep -E '^[0-9]+% tests passed' "$out" || { echo "check: ctest ran no test" >&2; exit 1; }
exit $status
