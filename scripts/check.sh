#!/usr/bin/env bash
# Runs the tests of a preset, then says what was skipped and why, and closes with ctest's own closing line.
# usage: check.sh TEST-PRESET BUILD-FOLDER [ctest arguments]
#        check.sh --skipped BUILD-FOLDER   only what the last run of that build skipped
set -euo pipefail
cd "$(dirname "$0")/.."

# GoogleTest prints "FILE:LINE: Skipped", the reason, then "[  SKIPPED ] NAME (0 ms)"; a script prints "SKIP: reason".
# CMake wrote what this build leaves out to not-built.txt.
skipped() {
  awk '
    function say(who, why) { line = "  " who ": " (why == "" ? "no reason given" : why); if (!seen[line]++) print line }
    /^[0-9]+\/[0-9]+ Test(ing)?: / { test = $3 }
    /: Skipped$/                   { wanted = 1; reason = ""; next }
    /^\[  SKIPPED \] .* \([0-9]+ / { say(test " " $4, reason); wanted = 0; reason = ""; next }
    wanted                         { reason = $0; wanted = 0 }
    /^SKIP: /                      { say(test, substr($0, 7)) }
  ' "$1/Testing/Temporary/LastTest.log"
  [ ! -f "$1/not-built.txt" ] || sed 's/^/  /' "$1/not-built.txt"
}

if [ "$1" = --skipped ]; then
  skipped "$2"
  exit 0
fi
preset=$1 build=$2
shift 2
jobs=$(nproc)
[ "$jobs" -ge 2 ] || jobs=2
out=$build/check.log
status=0
ctest --preset "$preset" --parallel "$jobs" "$@" </dev/null 2>&1 | tee "$out" || status=$?
echo
echo "Skipped, and why:"
skipped "$build"
case $preset in *-long) ;; *) echo "  tests labelled long: 'make check-long' runs them too" ;; esac
echo
grep -E '^[0-9]+% tests passed' "$out" || { echo "check: ctest ran no test" >&2; exit 1; }
exit $status
