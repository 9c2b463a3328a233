#!/usr/bin/env bash
# triax bench coll as a user runs it: bench.sh TRIAX SOURCE.
. "$(dirname "$0")/expect.sh"
ranks() { "$mpiexec" -n "$@"; }

# Every algorithm and operation, in and out of place: no wrong element, and the bytes of all ranks are those of the formulas.
ranks 4 "$triax" bench coll --ops all_reduce,reduce_scatter,all_gather --fake-nodes 2 --turns 1 -n 2 -w 0 \
  --algorithm default,direct,library,ring,halving-doubling,tree,double-tree,hierarchical \
  -b 4000 -e 256K -f 64 -d bfloat16 --format csv >all.csv || fault 'bench coll'
[ "$(wc -l <all.csv)" -eq 97 ] || fault "$(wc -l <all.csv) lines, not 96 and a header"
awk -F, 'NR > 1 && $18 != 0 { print; bad = 1 } END { exit bad }' all.csv || fault 'elements are wrong'
# size in column 4, inside and across in 20 and 21: 2 nodes of 2 ranks.
awk -F, 'NR > 1 && $8 == "all_reduce" && $9 ~ /^(ring|halving|tree|double|hier)/ && $20 + $21 != 6 * $4 { print; bad = 1 }
  NR > 1 && $8 != "all_reduce" && $9 ~ /^(ring|halving|hier)/ && $20 + $21 != 3 * $4 { print; bad = 1 }
  NR > 1 && $8 == "all_reduce" && $9 == "hierarchical" && ($20 != 4 * $4 || $21 != 2 * $4) { print; bad = 1 }
  NR > 1 && $9 == "library" && $19 != "true" { print; bad = 1 } END { exit bad }' all.csv || fault 'bytes differ from the formulas'
# The table has nccl-tests' columns: 13 of them, then ours; all_to_all and sendrecv have no in-place half.
ranks 4 "$triax" bench coll --ops broadcast,reduce,all_to_all,sendrecv -b 4K -e 4K --turns 1 -n 2 --algorithm default,ring \
  --split mod:2 >table.txt || fault 'bench coll --split'
grep -v '^#' table.txt | awk '$1 != 4096 || $9 != 0 || $3 != "float" || ($13 == "N/A") != (NR > 4) { print; bad = 1 }
  END { exit bad || NR != 8 }' || fault "table: $(cat table.txt)"
grep -qF '# Out of bounds values : 0 OK' table.txt || fault 'no summary'
expect 0 'tp     all_reduce          2' ranks 4 "$triax" bench coll --groups tp,dp --tensor-model-parallel-size 2 -b 4K -e 4K -n 2
expect 2 '--groups pp: this group has one rank' ranks 2 "$triax" bench coll --groups pp
expect 2 'all ranks are on one host, which would measure its memory' ranks 2 "$triax" bench coll --nodes 2
expect 2 '--split leaves a group of one rank' ranks 2 "$triax" bench coll --split div:1
expect 2 '--split or:1: must be mod:N, div:N' ranks 2 "$triax" bench coll --split or:1
expect 2 '--op prod: must be one of sum, max, min' ranks 2 "$triax" bench coll -o prod
expect 0 '"algorithm": "ring"' ranks 2 "$triax" bench coll --algorithm ring --max-bytes 4K --turns 1 --format json
expect 0 'converted' ranks 2 "$triax" bench coll --max-bytes 1K --turns 9 --turns 1 --memory heap
expect 2 "there is no algorithm 'rings'" ranks 2 "$triax" bench coll --algorithm rings
expect 2 'sums in an order of its own' ranks 2 "$triax" bench coll --algorithm library --fixed-reduction-order
expect 2 'must stand on one node' ranks 2 "$triax" bench coll --algorithm shared-memory --fake-nodes 2
expect 2 '--minbytes 4: 2 ranks need at least one element each; use 8' ranks 2 "$triax" bench coll --ops all_gather --min-bytes 4
expect 2 'use mpiexec -n 2 or more' "$triax" bench coll
expect 2 'unknown measurement' "$triax" bench link
expect 0 'all_reduce' "$triax" bench coll --help
expect 0 'hw.json' "$triax" bench --help

# Kernels at a model's shapes, checkpoints, near and far.
"$triax" bench gemm --model t0 --tensor-model-parallel-size 2 --dtypes fp32 --rounds 1 --format csv >gemm.csv || fault 'bench gemm'
[ "$(grep -c fp32 gemm.csv)" -eq 15 ] || fault "gemm.csv: $(cat gemm.csv)"
grep -q '^fc1,TN 32 x 128 x 64,' gemm.csv || fault "no fc1 of t0 over two ranks: $(cat gemm.csv)"
for what in attention norm; do
  expect 0 'fp32' "$triax" bench $what --model t0 --dtypes fp32 --rounds 1
done
expect 0 'memory copy' "$triax" bench copy --dtypes fp32 --rounds 1
expect 2 'must divide 4 heads' "$triax" bench gemm --model t0 --tensor-model-parallel-size 3
expect 0 'all_reduce_slowdown' ranks 2 "$triax" bench overlap --rounds 1 --gemm-size 64 --format csv
expect 0 '"write_gbps"' ranks 2 "$triax" bench io --bytes 64K --rounds 1 --format json
[ -z "$(ls -d triax-bench-io-* 2>/dev/null)" ] || fault 'bench io left its directory'
expect 0 'rank 1' ranks 2 "$triax" bench topo

# hw.json: written, compared with itself, and filled from nccl-tests' text.
ranks 2 "$triax" bench all --budget 5s --dtypes fp32 --out a.json >all.txt 2>&1 || fault "bench all: $(cat all.txt)"
expect 0 'gemm fp32 TN' "$triax" bench compare a.json a.json
"$triax" bench compare a.json a.json --format csv |
  awk -F, 'NR > 1 && $2 != 0 && $4 != 1 { print; bad = 1 } END { exit bad }' || fault 'a file differs from itself'
expect 0 'all_reduce fp32 of 2 ranks on 1 node(s)' "$triax" bench compare a.json selene
ranks 2 "$triax" bench coll -b 4K -e 64K -f 16 --turns 1 -n 2 --algorithm default >coll.txt
expect 0 'c.json: 2 points of 1 file(s), 2 collectives in all' "$triax" bench import coll.txt --out c.json
ranks 2 "$triax" bench coll -b 4K -e 64K -f 16 --turns 1 -n 2 --ops all_gather --format json >coll.json
expect 0 'd.json: 2 points of 1 file(s), 4 collectives in all' "$triax" bench import coll.json --base c.json --out d.json
expect 2 'holds no result line' "$triax" bench import all.txt
expect 2 'takes two descriptions, not 1' "$triax" bench compare a.json
expect 2 'bench compare: sele: no machine of that name; did you mean selene?' "$triax" bench compare a.json sele
expect 2 'bench show: none.json: cannot be read' "$triax" bench show none.json
expect 2 'one rank measures no link' "$triax" bench all
expect 2 'coll.txt: would overwrite a file that is imported' "$triax" bench import coll.json ./coll.txt --op all_gather --out coll.txt
expect 0 'c.json: ' "$triax" bench import coll.txt --base c.json --out c.json
# Where the result cannot be written, this is said before anything is measured; nothing stays behind.
mkdir full
for out in . full nowhere/hw.json /dev/null/hw.json; do
  expect 2 "bench all: --out $out: cannot be written" ranks 2 "$triax" bench all --budget 5s --out $out
done
[ ! -e nowhere ] || fault 'bench all made the directory of --out'
expect 0 '"write_gbps"' ranks 2 "$triax" bench io --bytes 64K --rounds 1 --format json --dir new/deep
[ ! -e new ] || fault 'bench io left the directory that it made'
mkdir new
expect 0 '"write_gbps"' ranks 2 "$triax" bench io --bytes 64K --rounds 1 --format json --dir new/deep
[ -d new ] && [ -z "$(ls -A new)" ] || fault 'bench io left something, or took a directory that it did not make'
expect 5 'cannot make a directory in /dev/null/x' "$triax" bench io --bytes 64K --rounds 1 --dir /dev/null/x
# Numbers of no machine are refused by name.
for field in latency_s bytes_per_s time_s; do
  sed "0,/\"$field\":\({\"value\":\)\?[^,}]*/s//\"$field\":\11e308/" a.json >absurd.json
  cmp -s a.json absurd.json && fault "a.json holds no $field"
  expect 2 "$field" "$triax" bench show absurd.json
  expect 2 "$field" "$triax" plan --model t0 --hw absurd.json --gpus 2 --global-batch-size 8
done
expect 2 'must be a time from 5s' ranks 2 "$triax" bench all --budget 1s

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
