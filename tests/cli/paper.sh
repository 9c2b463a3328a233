#!/usr/bin/env bash
# triax sweep --paper as a user runs it: published figures beside predictions without a directory of tables, in every
# format; what is not there is said.
. "$(dirname "$0")/expect.sh"
unset TRIAX_PAPERS

expect 0 'megatron21-table1' "$triax" sweep --paper list
expect 2 'did you mean megatron21-fig11' "$triax" sweep --paper megatron21-fg11
expect 2 'must be a directory' "$triax" sweep --paper all --papers nowhere
expect 2 '--papers DIR names where they are' "$triax" sweep --paper fit
expect 0 'vtrain_single.csv: absent (--papers DIR)' "$triax" sweep --paper all
expect 0 'korthikanti22-fig1       12 rows,   12 held out: mean 0' "$triax" sweep --paper korthikanti22-fig1
expect 0 'no published number at hand' "$triax" sweep --paper megatron21-fig13
expect 0 'held out rows are those without' "$triax" sweep --paper all --describe

"$triax" sweep --paper megatron21-table1 --format csv >rows.csv || fault "csv: exit code $?"
[ "$(wc -l <rows.csv)" -eq 11 ] || fault "10 rows and a header: $(cat rows.csv)"
grep -q '^megatron21-table1,m21t1_1008,.*,163,' rows.csv || fault "the 1T row with its 163 TFLOP/s: $(cat rows.csv)"
"$triax" sweep --paper zero19-fig1 --format json --out out.json || fault "json: exit code $?"
grep -q '"published": 31.4' out.json || fault "31.4 GB in $(cat out.json)"

exit $((faults > 0))
