#!/usr/bin/env bash
# triax bench coll as a user runs it: bench.sh TRIAX SOURCE.
. "$(dirname "$0")/expect.sh"
ranks() { "$mpiexec" -n "$@"; }

# Every algorithm and operation: no wrong element, and the bytes of all ranks are those of the formulas.
ranks 4 "$triax" bench coll --ops all_reduce,reduce_scatter,all_gather --fake-nodes 2 --turns 1 --calls 2 \
  --algorithm default,direct,library,ring,halving-doubling,tree,double-tree,hierarchical \
  --min-bytes 4000 --max-bytes 256K --step-factor 64 --dtype bf16 --format csv >all.csv || fault 'bench coll'
[ "$(wc -l <all.csv)" -eq 49 ] || fault "$(wc -l <all.csv) lines, not 48 and a header"
awk -F, 'NR > 1 && $11 != 0 { print; bad = 1 } END { exit bad }' all.csv || fault 'elements are wrong'
# size, inside and across in columns 3, 13, 14: 2 nodes of 2 ranks.
awk -F, 'NR > 1 && $5 == "all_reduce" && $6 ~ /^(ring|halving|tree|double|hier)/ && $13 + $14 != 6 * $3 { print; bad = 1 }
  NR > 1 && $5 != "all_reduce" && $6 ~ /^(ring|halving|hier)/ && $13 + $14 != 3 * $3 { print; bad = 1 }
  NR > 1 && $5 == "all_reduce" && $6 == "hierarchical" && ($13 != 4 * $3 || $14 != 2 * $3) { print; bad = 1 }
  NR > 1 && $6 == "library" && $12 != "true" { print; bad = 1 } END { exit bad }' all.csv || fault 'bytes differ from the formulas'
expect 0 '"algorithm": "ring"' ranks 2 "$triax" bench coll --algorithm ring --max-bytes 4K --turns 1 --format json
expect 0 'converted' ranks 2 "$triax" bench coll --max-bytes 1K --turns 9 --turns 1 --memory heap
expect 2 "there is no algorithm 'rings'" ranks 2 "$triax" bench coll --algorithm rings
expect 2 'sums in an order of its own' ranks 2 "$triax" bench coll --algorithm library --fixed-reduction-order
expect 2 'must stand on one node' ranks 2 "$triax" bench coll --algorithm shared-memory --fake-nodes 2
expect 2 '--min-bytes 4: 2 ranks need at least one element each; use 8' ranks 2 "$triax" bench coll --min-bytes 4
expect 2 'use mpiexec -n 2 or more' "$triax" bench coll
expect 2 'unknown measurement' "$triax" bench link
expect 0 'all_reduce' "$triax" bench coll --help
expect 0 'hw.json' "$triax" bench --help

# The options of a run.
train=("$triax" train --config "$2/configs/parity-t1.cfg" --train-iters 2)
expect 2 "there is no group 'dq'" "${train[@]}" --collective-algorithm dq=ring
expect 2 'sums in an order of its own' "${train[@]}" --collective-algorithm dp=library --fixed-reduction-order
expect 2 'must stand on one node' ranks 2 "${train[@]}" --collective-algorithm dp=shared-memory --fake-nodes 2
expect 2 'use --grad-sync parameter-server, or 0' "${train[@]}" --max-staleness 1
expect 0 'of 1 allowed, over 2 steps of 2 ranks' ranks 2 "${train[@]}" --grad-sync parameter-server --max-staleness 1 \
  --global-batch-size 8
[ $faults -eq 0 ] && echo 'bench: passed'
exit $((faults > 0))
