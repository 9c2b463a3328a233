#!/usr/bin/env bash
# Gives a rank the NICs nearest to it: bind_nic.sh COMMAND. TRIAX_NICS: devices in the order of the local ranks, such as
# "mlx5_0 mlx5_1 mlx5_2 mlx5_3"; fewer than ranks are shared by neighbours. Where it is unset UCX and NCCL choose.
set -euo pipefail
read -r -a nics <<<"$TRIAX_NICS"
local_rank=${SLURM_LOCALID:-${MPI_LOCALRANKID:-0}}
ranks=${SLURM_NTASKS_PER_NODE:-${MPI_LOCALNRANKS:-1}}
nic=${nics[local_rank * ${#nics[@]} / ranks]}
export UCX_NET_DEVICES=$nic:1 NCCL_IB_HCA=$nic
exec "$@"
