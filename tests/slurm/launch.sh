#!/usr/bin/env bash
# How ranks are started by a real Slurm, on two virtual nodes of four: launch.sh TRIAX SOURCE. triax topo and doctor, tensor
# groups inside and across nodes, the hierarchical all-reduce on these nodes, a wrong PMI, array jobs, jobs that may not be
# requeued. Exit code 77: this machine cannot run Slurm.
set -u
TRIAX=$(readlink -f "$1")
source_dir=$(readlink -f "$2")
# shellcheck source=tests/slurm/cluster.sh
. "$(dirname "$(readlink -f "$0")")/cluster.sh"
start_test

on_nodes() { timeout 60 srun --nodes=2 --ntasks=8 --ntasks-per-node=4 --mpi=pmi2 --cpu-bind=none "$TRIAX" "$@"; }
# says FILE TEXT: a line of the file has the text.
says() { grep -qF -- "$2" "$1" || fault "$1 does not say '$2'" "$1"; }

on_nodes topo --tensor-model-parallel-size 4 >topo4 2>&1 || fault 'triax topo fails' topo4
says topo4 '8 ranks on 2 node(s): tensor 4 x pipeline 1 x data 2'
says topo4 'tp   {0,1,2,3} {4,5,6,7}  inside a node'
says topo4 'dp   {0,4} {1,5} {2,6} {3,7}  4 of 4 groups cross nodes'
# Every rank: node, coordinates, host, cores, device, its groups.
cores=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
for rank in 0 1 2 3 4 5 6 7; do
  base=$((rank / 4 * 4))
  grep -qE "^ +$rank +$((rank / 4)) +$((rank % 4)) +0 +$((rank / 4)) +$(hostname) +$cores +cpu +tp \{$base-$((base + 3))\} dp \{$((rank % 4)),$((rank % 4 + 4))\} pp \{$rank\}" \
    topo4 || fault "topo does not tell where rank $rank is" topo4
done
on_nodes topo --tensor-model-parallel-size 2 >topo2 2>&1
says topo2 'tp   {0,1} {2,3} {4,5} {6,7}  inside a node'
on_nodes topo --tensor-model-parallel-size 8 >topo8 2>&1
says topo8 'tp   {0,1,2,3,4,5,6,7}  1 of 1 groups cross nodes: {0-7} stands on 2'
echo 'topo: tp 2 and 4 inside a node, tp 8 across'

# Two nodes of n = 4: over the whole world the hierarchical all-reduce sends 2 S between the nodes, a ring 2 (8-1) S / 8 on each
# of its 2 crossing links, 3.5 S.
size=$((1 << 20))
on_nodes bench coll --algorithm hierarchical,ring --min-bytes 1M --max-bytes 1M --turns 1 --calls 2 --format csv >coll.csv 2>coll.err ||
  fault 'bench coll on two nodes' coll.err
crossing() { awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i } $column["algorithm"] == name { print $column["across"]; exit }' coll.csv; }
[ "$(crossing hierarchical)" = $((2 * size)) ] || fault "hierarchical: $(crossing hierarchical) bytes cross the nodes, not 2 S" coll.csv
[ "$(crossing ring)" = $((7 * size / 2)) ] || fault "ring: $(crossing ring) bytes cross the nodes, not 3.5 S" coll.csv
echo "all-reduce of 1 MiB: hierarchical $(crossing hierarchical) bytes across, ring $(crossing ring)"

on_nodes doctor --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --dir "$work" >doctor 2>&1 || fault "doctor ends with $?" doctor
says doctor 'pp of 2: 4 of 4 groups cross nodes: {0,4} stands on 2'
says doctor 'collectives: 8 groups of every rank answer'
says doctor 'doctor: nothing that stops a run'

# Without a PMI every process is a world of its own: refused, with the line that works.
timeout 60 srun --nodes=1 --ntasks=4 --mpi=none --cpu-bind=none "$TRIAX" doctor >none 2>&1 && fault 'four singletons are not refused' none
says none "srun --mpi=pmi2 -n 4 triax ..."
# Another number of ranks than the job script was made for.
timeout 60 srun --nodes=1 --ntasks=2 --mpi=pmi2 --cpu-bind=none "$TRIAX" train --model t1 --mock-data --micro-batch-size 1 \
  --train-iters 1 --lr 1e-3 --world-size 8 >world 2>&1
[ $? -eq 2 ] || fault 'a world of another size is not refused' world
says world '--world-size 8: the launcher started 2 ranks; start 8'

# An array: each task its own point and its own directory.
sed -e 's/^#SBATCH --job-name=.*/#SBATCH --job-name=pair/' -e 's/^#SBATCH --output=.*/#SBATCH --output=pair-%a.out/' \
  -e 's/^#SBATCH --nodes=.*/#SBATCH --array=0-1\n#SBATCH --nodes=1/' -e '/^hw=/,$d' "$source_dir/jobs/small_3d.slurm" >pair.slurm
cat >>pair.slurm <<'JOB'
hw=
points --model t1 --fp64 --micro-batch-size 1 --global-batch-size 8 --lr 1e-3 --lr-decay-style constant --eval-iters 0 -- \
  'three 4 --train-iters 3 --tensor-model-parallel-size 2' \
  'five 2 --train-iters 5'
JOB
unset TRIAX_OPTIONS
export TRIAX_JOBS=$source_dir/jobs
array=$(sbatch --parsable pair.slurm)
# Meanwhile a job that may not be requeued: submitted again, it goes on in the first one's directory.
once=$(env -u TRIAX_JOBS TRIAX_OPTIONS='--model t1 --fp64 --train-iters 150' sbatch --parsable --no-requeue "$source_dir/jobs/small_3d.slurm")
has_lines() { [ "$(wc -l 2>/dev/null <"$1/metrics.jsonl" || echo 0)" -ge "$2" ]; }
wait_for 60 has_lines "runs/small_3d-$once" 10 || fault 'the job that may not be requeued does not start' "small_3d-$once.out"
scancel --signal=USR1 "$once"
for task in 0 1; do
  wait_for 60 job_ended "${array}_$task" || fault "array task $task does not end" "pair-$task.out"
done
for point in 0/three/3 1/five/5; do
  IFS=/ read -r task label iterations <<<"$point"
  run=runs/pair-${array}_$task/$label
  [ "$(cat "$run/completed" 2>/dev/null)" = "iteration $iterations" ] || fault "array task $task did not complete $label" "pair-$task.out"
  [ "$(ls "runs/pair-${array}_$task")" = "$(printf '%s\n' environment-1.txt "$label")" ] || fault "array task $task ran another point too" "pair-$task.out"
done
wait_for 90 completed_run "runs/small_3d-$once" || fault 'a job that may not be requeued does not go on' small_3d-*.out
[ "$(job_state "$once")" = FAILED ] || fault "the first of two jobs ended as $(job_state "$once"), not with 75"
[ "$(job_field "$once" ExitCode)" = 75:0 ] || fault "the first of two jobs ended with $(job_field "$once" ExitCode)"
[ "$(grep -o '"iteration":[0-9]*' "runs/small_3d-$once/metrics.jsonl" | sort -u | wc -l)" -eq 150 ] || fault 'not 150 iterations'
echo "a job that may not be requeued: $(ls small_3d-*.out | wc -l) jobs, 150 iterations in one directory"
end_test
