#!/usr/bin/env bash
# triax sweep --paper as a user runs it: published figures beside predictions without a directory of tables, in every
# format; what is not there is said; --real runs the experiment made small, goes on, refuses what makes no sense.
. "$(dirname "$0")/expect.sh"
unset TRIAX_PAPERS

expect 0 'megatron21-table1' "$triax" sweep --paper list
expect 2 'did you mean megatron21-fig11' "$triax" sweep --paper megatron21-fg11
expect 2 'must be a directory' "$triax" sweep --paper all --papers nowhere
expect 2 '--papers DIR names where they are' "$triax" sweep --paper fit
expect 0 'vtrain_single.csv: absent (--papers DIR)' "$triax" sweep --paper all
expect 0 'korthikanti22-fig1        3 rows,    3 held out: mean 0' "$triax" sweep --paper korthikanti22-fig1
expect 0 'no published number at hand' "$triax" sweep --paper megatron21-fig13
expect 0 'held out rows are those without' "$triax" sweep --paper all --describe

"$triax" sweep --paper megatron21-table1 --format csv >rows.csv || fault "csv: exit code $?"
[ "$(wc -l <rows.csv)" -eq 11 ] || fault "10 rows and a header: $(cat rows.csv)"
grep -q '^megatron21-table1,m21t1_1008,.*,163,' rows.csv || fault "the 1T row with its 163 TFLOP/s: $(cat rows.csv)"
"$triax" sweep --paper zero19-fig1 --format json --out out.json || fault "json: exit code $?"
grep -q '"published": 31.4' out.json || fault "31.4 GB in $(cat out.json)"

# ZeRO's Figure 1 on four ranks: 867,072 parameters of 2 + 4 + 12 bytes, of which a stage more is cut by four each time.
real=(sweep --paper zero19-fig1 --real --out zero --launcher "$mpiexec -n {ranks}")
expect 0 '-n 4 triax train' "$triax" "${real[@]}" --dry-run
expect 0 'orders: 6 of 6 pairs as in the paper' "$triax" "${real[@]}"
"$triax" "${real[@]}" --format csv >real.csv 2>err || fault "--format csv: $(cat err)"
grep -q ': done' err && fault "a second call ran points again: $(cat err)"
awk -F, -v psi=867072 'NR > 1 { split("18 9 6 4.5", b, " "); if ($7 * 1e6 / psi / b[NR - 1] > 1.001 || $7 * 1e6 / psi / b[NR - 1] < 0.999) exit 1 }' real.csv || fault "bytes per parameter: $(cat real.csv)"
[ -s zero/result.txt ] && [ -s zero/results.csv ] && [ "$(ls -d zero/points/* | wc -l)" -eq 4 ] || fault "files: $(ls zero)"
"$triax" "${real[@]}" --format json >real.json 2>/dev/null
grep -q '"same": 6' real.json || fault "json: $(cat real.json)"
expect 2 'attention is tiled' "$triax" sweep --paper korthikanti22-fig7 --real
expect 2 'nothing runs; must be a name' "$triax" sweep --paper list --real
expect 2 'goes with --paper NAME' "$triax" sweep --real --grid seed=1,2
expect 2 'has its own axes' "$triax" sweep --paper zero19-fig1 --real --grid seed=1,2
expect 2 "mode is the experiment's own" "$triax" sweep --paper zero19-fig1 --real --mode virtual
expect 2 'options of runs (--hidden-size) need --real' "$triax" sweep --paper zero19-fig1 --hidden-size 64
expect 2 'goes with --paper all' "$triax" sweep --rows --grid seed=1,2
expect 0 '--paper NAME,...|all|fit|list' "$triax" sweep --help
exit $((faults > 0))
