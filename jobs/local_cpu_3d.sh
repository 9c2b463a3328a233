#!/usr/bin/env bash
# The experiment of 70b_3d.slurm in small, without Slurm: tensor 2 (sequence parallel) x pipeline 2 x data 2 on 8 ranks of this
# machine's CPU. TRIAX_REHEARSE=1 bash jobs/local_cpu_3d.sh shows it first.
# figures: of the rehearsal (scripts/job_figures.sh writes them, a test compares)
# end of figures
# shellcheck source=jobs/common.sh
export TRIAX_LAUNCHER=${TRIAX_LAUNCHER:-mpiexec -n {ranks\}} OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
. "$(dirname "$0")/common.sh"

hw='' ranks=8 per_node=8 train --model demo --no-bf16 --device cpu \
  --tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 --zero-stage 1 \
  --micro-batch-size 2 --global-batch-size 16 --train-iters 20 --threads 1 \
  --lr 2e-3 --min-lr 2e-4 --lr-decay-style cosine --lr-warmup-iters 5 \
  --weight-decay 0.1 --adam-beta2 0.95 --eval-iters 0
