#!/usr/bin/env bash
# scripts/check.sh names each skipped test with its reason, once, and what the build leaves out. usage: skips.sh ROOT
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/Testing/Temporary"
cat >"$work/Testing/Temporary/LastTest.log" <<'END'
1/3 Testing: unit.a
1/3 Test: unit.a
[ RUN      ] A.runs
[       OK ] A.runs (0 ms)
[ RUN      ] A.needs_gpu
a.cpp:12: Skipped
no GPU on this machine

[  SKIPPED ] A.needs_gpu (0 ms)
[ RUN      ] A.silent
a.cpp:15: Skipped
[  SKIPPED ] A.silent (0 ms)
[  SKIPPED ] 2 tests, listed below:
[  SKIPPED ] A.needs_gpu
2/3 Testing: slurm.b
2/3 Test: slurm.b
SKIP: slurmctld is not installed
SKIP: slurmctld is not installed
3/3 Testing: unit.c
3/3 Test: unit.c
a.cpp:1: Skipped by nobody
END
echo "CUDA: no nvcc" >"$work/not-built.txt"
expected="  unit.a A.needs_gpu: no GPU on this machine
  unit.a A.silent: no reason given
  slurm.b: slurmctld is not installed
  CUDA: no nvcc"
found=$("$1/scripts/check.sh" --skipped "$work")
[ "$found" = "$expected" ] || { echo "expected:"; echo "$expected"; echo "found:"; echo "$found"; exit 1; }
echo "ok"
