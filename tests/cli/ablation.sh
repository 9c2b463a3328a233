#!/usr/bin/env bash
# Built-in ablations on a tiny model: measured bytes equal the formulas, clocks equal the closed form; files are left.
. "$(dirname "$0")/expect.sh"

tiny=(--hidden-size 64 --ffn-hidden-size 192 --train-iters 2)
says() { # ablation, then texts of its result
  local name=$1 text
  shift
  expect 0 "theory: " "$triax" sweep --ablation "$name" "${tiny[@]}"
  for text; do grep -qF -- "$text" "sweeps/$name/result.txt" || fault "$name does not say \"$text\": $(cat "sweeps/$name/result.txt")"; done
}
exact() { # ablation, number of comparisons: all of them to the last digit shown
  [ "$(grep -o '([+-][0-9.]* %)' "sweeps/$1/result.txt" | grep -cF '(+0.0 %)')" -ge "$2" ] || fault "$1: $(cat "sweeps/$1/result.txt")"
  grep -oE '\([+-][0-9.]+ %\)' "sweeps/$1/result.txt" | grep -qvF '(+0.0 %)' && fault "$1 differs from its formula: $(cat "sweeps/$1/result.txt")"
}

expect 0 'tensor-pipeline' "$triax" sweep --list-ablations
expect 2 'did you mean bubble' "$triax" sweep --ablation buble
expect 2 'has its own axes' "$triax" sweep --ablation zero --grid seed=1,2
expect 0 'mpiexec -n 2 triax train' "$triax" sweep --ablation zero --dry-run

says zero "forecast's peak equals each run's to the byte"
exact zero 8
says tensor-parallel 't 2 sp '
exact tensor-parallel 4
says hierarchical 'Across 2 nodes'
exact hierarchical 2
says bubble 'over 19 points' 'over 9 points'
# Both distances are rounding errors.
[ "$(grep -oE 'at most [0-9.]+e-1[0-9]' sweeps/bubble/result.txt | wc -l)" -eq 2 ] || fault "bubble: $(cat sweeps/bubble/result.txt)"
for file in zero-traffic.csv zero-memory.gp results.csv runs.csv result.txt; do [ -s "sweeps/zero/$file" ] || fault "zero leaves no $file"; done
exit $((faults > 0))
