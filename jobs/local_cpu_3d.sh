#!/usr/bin/env bash
# The experiment of 70b_3d.slurm in small, without Slurm: tensor 2 (sequence parallel) x pipeline 2 x data 2 on 8 ranks of this
# machine's CPU. TRIAX_REHEARSE=1 bash jobs/local_cpu_3d.sh shows it first.
# figures: of the rehearsal (scripts/job_figures.sh writes them, a test compares)
#   layout      8 ranks on 1 nodes of 8: tensor 2 (sequence parallel) x pipeline 2 x data 2, order tp-cp-dp-pp, ZeRO 1 over 2
#   batch       16 sequences of 256 = 4096 tokens per step; 4 micro-batches of 2 per replica, 1f1b, no recomputation
#   FLOPs       5.798e+10 per step, 7.248e+09 per rank (causal half); 6.281e+10 with full squares; 5.798e+10 computed
#   memory      0.02 GiB per rank at most (stage 0)
#   step time   not predicted: --hw names no machine
#   first loss  7.663 expected
# end of figures
# shellcheck source=jobs/common.sh
export TRIAX_LAUNCHER=${TRIAX_LAUNCHER:-mpiexec -n {ranks\}} OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
. "$(dirname "$0")/common.sh"

hw='' ranks=8 per_node=8 train --model demo --no-bf16 --device cpu \
  --tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 --zero-stage 1 \
  --micro-batch-size 2 --global-batch-size 16 --train-iters 20 --threads 1 \
  --lr 2e-3 --min-lr 2e-4 --lr-decay-style cosine --lr-warmup-iters 5 \
  --weight-decay 0.1 --adam-beta2 0.95 --eval-iters 0
