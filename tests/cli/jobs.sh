#!/usr/bin/env bash
# The job scripts without a queue: jobs.sh TRIAX SOURCE. Every one is rehearsed, the figures in its header are the program's own,
# ShellCheck has nothing to say, and the one for this machine trains.
. "$(dirname "$0")/expect.sh"
source_dir=$2
TRIAX=$(readlink -f "$triax")
export TRIAX TRIAX_LAUNCHER="$mpiexec -n {ranks}"
unset DATA_PATH TOKENIZER_TYPE TOKENIZER_MODEL TRIAX_OPTIONS TRIAX_HW TRIAX_SCRATCH
# A cluster's own file must not change what is tested.
cp -r "$source_dir/jobs" jobs && rm -f jobs/site.sh
rehearse() { env TRIAX_REHEARSE=1 "$@"; }

# 70B on 128 ranks: what the issue of a new user is, then what goes wrong.
rehearse bash jobs/70b_3d.slurm >70b 2>&1 || fault "the rehearsal of 70b_3d ends with $?"
for text in '128 ranks on 16 nodes of 8: tensor 8 (sequence parallel) x pipeline 4 x data 4' 's predicted on h100' \
  'DATA_PATH is not set: made-up tokens' '{0-7}                              inside a node' ': equal' \
  'scaled to full width: equal to the table above'; do
  grep -qF -- "$text" 70b || fault "the rehearsal of 70b_3d does not say '$text'"
done
[ "$(grep -c '^ *[0-3] [0-9-]* .* [0-9.]*$' 70b)" -ge 4 ] || fault 'no memory table of four stages'
announced=$(sed -n 's/^ *program \([0-9a-f]*\), full width \([0-9a-f]*\): equal$/\1 \2/p' 70b)
hash=$("$triax" program hash --model llama2-70b --tensor-model-parallel-size 8 --sequence-parallel \
  --pipeline-model-parallel-size 4 --world-size 128 --micro-batch-size 1 --global-batch-size 512 --zero-stage 1)
[ "$announced" = "$hash $hash" ] || fault "the rehearsed program is '$announced', triax program says $hash"
expect 0 '32 nodes of 4' rehearse SLURM_NNODES=32 SLURM_NTASKS_PER_NODE=4 bash jobs/70b_3d.slurm
expect 0 '16 of 16 groups cross nodes: {0-7} stands on 2' rehearse SLURM_NNODES=32 SLURM_NTASKS_PER_NODE=4 bash jobs/70b_3d.slurm
expect 2 'must divide' rehearse TRIAX_OPTIONS='--tensor-model-parallel-size 3' bash jobs/70b_3d.slurm
expect 3 'DOES NOT FIT into 24 GiB of rtx4090' rehearse TRIAX_HW=rtx4090 bash jobs/70b_3d.slurm
expect 2 'no machine of that name' rehearse TRIAX_HW=abacus bash jobs/70b_3d.slurm
expect 2 'use 0 to 127' rehearse TRIAX_OPTIONS='--rehearse-rank 128' bash jobs/70b_3d.slurm
sed 's/^#SBATCH --array=0-6/#SBATCH --array=0-5/' jobs/ablation_zero.slurm >jobs/short.slurm
expect 2 'there are 7 points: use 0-6' rehearse bash jobs/short.slurm
expect 2 '--world-size N says' "$triax" train --rehearse --model t1 --mock-data
printf 'rehearse = true\nworld-size = 8\n' >rehearse.cfg
expect 0 'full width: equal to the table above' "$triax" train --config rehearse.cfg --model t1 --mock-data --micro-batch-size 1 \
  --train-iters 1 --lr 1
expect 2 'the launcher started 1 ranks; start 2' "$mpiexec" -n 1 "$triax" train --world-size 2 --model t1 --mock-data
[ ! -e runs ] || fault 'a rehearsal left a run directory'
rm jobs/short.slurm

# Headers. A figure that was edited is found.
printf '%s\n' jobs/*.slurm jobs/local_cpu_3d.sh | xargs -P 2 -n 4 bash "$source_dir/scripts/job_figures.sh" --check-first "$triax" ||
  fault 'figures in headers of job scripts'
sed 's/2097152 tokens/2097153 tokens/' jobs/70b_3d.slurm >jobs/edited.slurm
expect 1 "its header's figures are not those" bash "$source_dir/scripts/job_figures.sh" --check "$triax" jobs/edited.slurm
rm jobs/edited.slurm

if command -v shellcheck >/dev/null; then
  (cd "$source_dir" && shellcheck -x jobs/*.sh jobs/*.slurm jobs/site.sh.template scripts/job_figures.sh) || fault 'ShellCheck'
fi

# The one that needs no Slurm trains; its first loss is the one that its header expects.
TRIAX_OPTIONS='--train-iters 2 --lr-warmup-iters 1 --log-interval 1' bash jobs/local_cpu_3d.sh >local 2>&1 || fault "local_cpu_3d.sh ends with $?: $(tail -5 local)"
[ "$(cat runs/local_cpu_3d*/completed)" = 'iteration 2' ] || fault 'local_cpu_3d.sh left no completion marker'
expected=$(sed -n 's/^#   first loss *\([0-9.]*\) expected/\1/p' jobs/local_cpu_3d.sh)
first=$(grep -o '"lm_loss":[0-9.]*' runs/local_cpu_3d*/metrics.jsonl | head -n 1 | cut -d: -f2)
awk -v a="$expected" -v b="$first" 'BEGIN { d = a - b; exit !(a > 0 && d < 0.03 && d > -0.03) }' ||
  fault "the first loss is $first, the header expects $expected"
grep -qE '^(SLURM|NCCL|CUDA|UCX|OMP|HDF5|TRIAX)_' runs/local_cpu_3d*/environment-1.txt || fault 'no dump of the environment'
! grep -qvE '^(SLURM|NCCL|CUDA|UCX|OMP|HDF5|TRIAX)_' runs/local_cpu_3d*/environment-1.txt || fault 'the dump holds other variables'

# A folder with a blank in its name. Stopped without Slurm, the script says how to go on, and so it does.
mkdir 'a b' && cp -r jobs 'a b/jobs'
expect 0 'to the table above' rehearse bash 'a b/jobs/small_3d.slurm'
export TRIAX_SCRATCH="$PWD/a b" TRIAX_OPTIONS='--model t0 --lr-warmup-iters 2 --train-iters 40 --exit-duration-in-mins 0.0001'
bash 'a b/jobs/local_cpu_3d.sh' >stopped 2>&1
code=$?
again=$(sed -n 's/^job: stopped with a checkpoint: to go on, start again with //p' stopped)
[ $code -eq 75 ] && [ -n "$again" ] || fault "a script that is stopped ends with $code: $(tail -5 stopped)"
expect 75 'loaded all state of iteration' bash -c "$again bash 'a b/jobs/local_cpu_3d.sh'"
# An exit interval ends with 0 and is no end: the script says the same, and goes on to the last iteration.
export TRIAX_OPTIONS='--model t0 --lr-warmup-iters 2 --train-iters 4 --exit-interval 3' TRIAX_SCRATCH="$PWD/interval"
bash jobs/local_cpu_3d.sh >stopped 2>&1
code=$?
again=$(sed -n 's/^job: stopped with a checkpoint: to go on, start again with //p' stopped)
[ $code -eq 75 ] && [ -n "$again" ] || fault "a script that --exit-interval ends: $code: $(tail -5 stopped)"
expect 0 'loaded all state of iteration 3' bash -c "$again bash jobs/local_cpu_3d.sh"
[ "$(cat interval/runs/local_cpu_3d*/completed)" = 'iteration 4' ] || fault "the chain is not complete: $(ls interval/runs/*)"
unset TRIAX_SCRATCH TRIAX_OPTIONS

# How a script finds common.sh stands in each of them, since nothing can be sourced before; it must be the same everywhere.
blocks=$(for script in jobs/*.slurm; do sed -n '/^# The script may have been copied/,/^\. /p' "$script" | md5sum; done | sort | uniq -c)
[ "$(wc -l <<<"$blocks")" -eq 1 ] && [ "$(sed -n 's/ *\([0-9]*\) .*/\1/p' <<<"$blocks")" -eq "$(ls jobs/*.slurm | wc -l)" ] &&
  [ "$(sed -n '/^# The script may have been copied/,/^\. /p' jobs/small_3d.slurm | wc -l)" -eq 5 ] ||
  fault "the lines by which job scripts find common.sh differ: $blocks"

# How a job goes on, with stand-ins for Slurm and for the program: the latter ends with $ends, complete or not.
mkdir -p stand-ins
cat >stand-ins/triax <<'STUB'
#!/usr/bin/env bash
[ "$1" = train ] || exit 0
while [ "$1" != --run-dir ]; do shift; done
[ -z "$completes" ] || echo 'iteration 20' >"$2/completed"
exit "$ends"
STUB
printf '#!/bin/sh\n[ "$1" = show ] && echo "   Requeue=$requeue Restarts=0"\n[ "$1" = show ] || { echo "$1" >>asked; [ -z "$refused" ]; }\n' >stand-ins/scontrol
printf '#!/bin/sh\necho "sbatch in $TRIAX_RUN_ROOT" >>asked\n' >stand-ins/sbatch
printf '#!/bin/sh\n' >stand-ins/sleep
chmod +x stand-ins/*
# slurm_job CODE ASKED COMPLETES ENDS REQUEUE REFUSED: how the script ends, and what it asks Slurm for.
slurm_job() {
  rm -rf asked runs/small_3d-7
  env PATH="$PWD/stand-ins:$PATH" TRIAX="$PWD/stand-ins/triax" TRIAX_LAUNCHER=env SLURM_JOB_ID=7 SLURM_JOB_NAME=small_3d \
    completes="$3" ends="$4" requeue="$5" refused="$6" bash jobs/small_3d.slurm >slurm_job.out 2>&1
  local code=$?
  [ $code -eq "$1" ] || fault "a run that ends with $4${3:+, complete,} ends the script with $code, not $1: $(cat slurm_job.out)"
  [ "$(cat asked 2>/dev/null)" = "$2" ] || fault "a run that ends with $4: Slurm is asked for '$(cat asked)', not '$2'"
}
slurm_job 0 '' yes 0 1 ''
slurm_job 0 '' yes 5 1 '' # lost after its end
slurm_job 5 '' '' 0 1 ''  # a launcher that calls everything a success
slurm_job 5 '' '' 5 1 ''
slurm_job 2 '' '' 2 1 ''
slurm_job 75 requeue '' 75 1 ''
slurm_job 75 "sbatch in $PWD/runs/small_3d-7" '' 75 0 ''
slurm_job 75 "requeue
sbatch in $PWD/runs/small_3d-7" '' 75 1 refused
# It stops again where it began: not sent back, but its environment is on record.
env PATH="$PWD/stand-ins:$PATH" TRIAX="$PWD/stand-ins/triax" TRIAX_LAUNCHER=env SLURM_JOB_ID=7 SLURM_JOB_NAME=small_3d \
  completes='' ends=75 requeue=1 refused='' bash jobs/small_3d.slurm >slurm_job.out 2>&1
[ "$(grep -c requeue asked)" -eq 1 ] && grep -q 'stopped twice at the same step' slurm_job.out || fault "no end of going on: $(cat slurm_job.out)"
[ -e runs/small_3d-7/environment-2.txt ] || fault 'the second start has no dump of its environment'

[ $faults -eq 0 ] && echo 'ok: jobs'
exit $((faults > 0))
