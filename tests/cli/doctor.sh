#!/usr/bin/env bash
# triax doctor as a user runs it: doctor.sh TRIAX SOURCE. Its messages word by word are in unit.comm_launch_checks.
. "$(dirname "$0")/expect.sh"
ranks() { "$mpiexec" -n "$@"; }

expect 0 'usage: srun -n N triax doctor' "$triax" doctor --help
expect 0 'collectives: 8 groups of every rank answer within' ranks 4 "$triax" doctor --tensor-model-parallel-size 2
expect 0 'tp of 4: 1 of 1 groups cross nodes: {0-3} stands on 2' ranks 4 "$triax" doctor --tensor-model-parallel-size 4 --fake-nodes 2
expect 2 'must divide the 4 ranks' ranks 4 "$triax" doctor --tensor-model-parallel-size 3
expect 2 'rank 0 cannot write there' ranks 2 "$triax" doctor --dir /nowhere
expect 0 'ranks {0-3} on' ranks 4 taskset -c 0 "$triax" doctor
# Two GPUs for three ranks of a node: the third would share.
expect 4 'use one GPU (7)' env CUDA_VISIBLE_DEVICES=7,9 "$mpiexec" -n 3 "$triax" doctor --device cuda
expect 4 'this job should not run as it is' env CUDA_VISIBLE_DEVICES=7,9 "$mpiexec" -n 3 "$triax" doctor --device cuda
# Where train is refused the GPU, doctor says why in the same words.
words=$("$triax" train --device cuda --model t0 --mock-data --micro-batch-size 1 --train-iters 1 --lr 1e-3 --run-dir gpu 2>&1)
if [ $? -ne 0 ]; then
  words=$(sed -nE 's/^(triax|rank 0 \([^)]*\)): (.*)$/\2/p' <<<"$words" | head -1)
  [ -n "$words" ] || fault 'train without a GPU says nothing'
  expect 4 'FAULT: rank 0 on ' "$triax" doctor --device cuda
  expect 4 ": $words" "$triax" doctor --device cuda
  expect 4 'FAULT: ranks {0,1} on ' ranks 2 "$triax" doctor --device cuda
fi
# Slurm's variables, and no PMI.
expect 2 "Start with 'srun --mpi=pmi2 -n 4 triax ...'" env SLURM_NTASKS=4 "$triax" doctor
# A rank that is stopped before MPI has started: the others do not wait for it for ever.
cat >stopped_rank.sh <<'WRAP'
#!/usr/bin/env bash
[ "$PMI_RANK" != 1 ] || kill -STOP $$
exec "$@"
WRAP
for command in doctor 'train --model t0 --mock-data --micro-batch-size 1 --train-iters 1 --lr 1 --no-supervisor'; do
  # shellcheck disable=SC2086
  expect 5 'has waited in MPI_Init_thread for' timeout -k 5 60 "$mpiexec" -n 2 bash ./stopped_rank.sh "$triax" $command \
    --distributed-timeout-minutes 0.02
done
ls -A "$work" | grep -q triax-doctor && fault 'doctor leaves files'

[ $faults -eq 0 ] && echo 'ok: doctor'
exit $((faults > 0))
