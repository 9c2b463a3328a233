# Shared by the job scripts, which source it. After it, `train [options of triax train]` runs or rehearses.
#   TRIAX_REHEARSE=1 bash jobs/NAME.slurm   nothing is queued, trained or written: triax train --rehearse; of several runs all,
#                                           with TRIAX_REHEARSE=first the first
#   sbatch jobs/NAME.slurm                  trains; without DATA_PATH on made-up tokens
# From the environment or jobs/site.sh (jobs/site.sh.template explains):
#   TRIAX             the binary; default: the newest build beside the script, else the one on PATH
#   DATA_PATH         prefixes of tokenised data; TOKENIZER_TYPE, TOKENIZER_MODEL where the data do not say them
#   TRIAX_OPTIONS     more options of triax train; they win over the script's
#   TRIAX_SCRATCH     where runs/ is made; default: the directory of sbatch
#   TRIAX_HW          machine that a rehearsal predicts the time for; default the script's $hw, else h100
#   TRIAX_LAUNCHER    default srun; or a line with {ranks}, such as "mpiexec -n {ranks}"
#   TRIAX_SRUN_MPI, TRIAX_CPU_BIND, TRIAX_NICS   see the template
# shellcheck shell=bash
set -euo pipefail

script=$(readlink -f "$0")
jobs=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
rehearse=${TRIAX_REHEARSE:-}
worst=0
scratch=  # removed at the end
leave() {
  local code=$?
  [ -z "$scratch" ] || rm -rf "$scratch"
  [ $code -ne 0 ] || exit $worst
}
trap leave EXIT
# shellcheck source=/dev/null
[ ! -r "$jobs/site.sh" ] || . "$jobs/site.sh"

say() { echo "job: $*"; }
fail() {
  echo "job: $*" >&2
  exit 2
}

# directive NAME: the value of `#SBATCH --NAME=` in the script, so that a rehearsal knows what sbatch will be asked for.
directive() { sed -n "s/^#SBATCH --$1=\([^ ]*\).*/\1/p" "$script" | tail -n 1; }

find_triax() {
  local candidate newest=
  if [ -n "${TRIAX:-}" ]; then
    [ -x "$TRIAX" ] || fail "TRIAX=$TRIAX is no program"
    return
  fi
  for candidate in "$jobs"/../build/*/bin/triax "$jobs/../../../bin/triax"; do
    if [ -x "$candidate" ] && { [ -z "$newest" ] || [ "$candidate" -nt "$newest" ]; }; then newest=$candidate; fi
  done
  TRIAX=${newest:-$(command -v triax || true)}
  [ -n "$TRIAX" ] || fail "no triax found: 'make' builds it, or set TRIAX in jobs/site.sh"
}

# default NAME VALUE: exported unless the user or the site has set it.
default() {
  [ -n "${!1+set}" ] || printf -v "$1" %s "$2"
  export "${1?}"
}

settings() {
  # Streams that share a queue to the GPU may wait for each other, and a receive is posted ahead of what its sender waits
  # for. (Other trainers want 1, so that collectives start in order: here they have the higher priority.)
  default CUDA_DEVICE_MAX_CONNECTIONS 32
  # Loading a kernel at its first launch may wait for all that runs.
  default CUDA_MODULE_LOADING EAGER
  # Only what is wrong; INFO prints rings, trees and the NICs that NCCL took.
  default NCCL_DEBUG WARN
  # InfiniBand and RoCE are used where they are; 1 would send everything through TCP.
  default NCCL_IB_DISABLE 0
  # A NIC reads GPU memory itself as long as both hang below one host bridge; farther away a copy in host memory is faster.
  default NCCL_NET_GDR_LEVEL PHB
  # The first contact of the ranks must not take the loopback or a container's bridge, which other nodes cannot reach.
  default NCCL_SOCKET_IFNAME '^lo,docker,virbr'
  # NCCL_ALGO stays NCCL's choice by size; NCCL_ALGO=Ring fixes the order of sums, at the price of latency.
  # One rank has its own cores: a thread per core, no more.
  default OMP_NUM_THREADS "${SLURM_CPUS_PER_TASK:-1}"
  # The lock of HDF5 fails on parallel file systems without flock; a --save directory has Triax's own lock.
  default HDF5_USE_FILE_LOCKING FALSE
}

# What decides a result, and nothing else of the environment: it may hold keys.
environment() { env | grep -E '^(SLURM|NCCL|CUDA|UCX|OMP|HDF5|TRIAX)_' | sort || true; }

nodes=${SLURM_JOB_NUM_NODES:-${SLURM_NNODES:-$(directive nodes)}}
nodes=${nodes:-1}
per_node=${SLURM_NTASKS_PER_NODE:-$(directive ntasks-per-node)}
per_node=${per_node:-1}
find_triax
settings

# Slurm may give fewer GPUs than ranks: two ranks on one GPU are never meant.
if [ -z "$rehearse" ] && [ -n "${SLURM_GPUS_ON_NODE:-}" ] && [ "$SLURM_GPUS_ON_NODE" -lt "$per_node" ]; then
  fail "$per_node ranks per node, but Slurm gives $SLURM_GPUS_ON_NODE GPUs: sbatch --ntasks-per-node=$SLURM_GPUS_ON_NODE" \
    "--gpus-per-node=$SLURM_GPUS_ON_NODE --nodes=$((nodes * per_node / SLURM_GPUS_ON_NODE))"
fi

name=${SLURM_JOB_NAME:-$(basename "${script%.*}")}
job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}}
job=${job:-${SLURM_JOB_ID:-local-$$}}
# A job that was submitted again because it may not be requeued goes on in the directory of the first.
run_root=${TRIAX_RUN_ROOT:-${TRIAX_SCRATCH:-${SLURM_SUBMIT_DIR:-$PWD}}/runs/$name-$job}

if [ -z "$rehearse" ]; then
  say "$name $job on ${SLURM_JOB_NODELIST:-$(hostname)}, start $((${SLURM_RESTART_COUNT:-0} + 1)); $("$TRIAX" --version | head -n 1); $run_root"
  mkdir -p "$run_root"
  # One for each start, also of a job that was submitted again.
  start=1
  while [ -e "$run_root/environment-$start.txt" ]; do start=$((start + 1)); done
  environment >"$run_root/environment-$start.txt"
fi

data=()
if [ -n "${DATA_PATH:-}" ]; then
  read -r -a prefixes <<<"$DATA_PATH"
  data=(--data-path "${prefixes[@]}")
  [ -z "${TOKENIZER_TYPE:-}" ] || data+=(--tokenizer-type "$TOKENIZER_TYPE")
  [ -z "${TOKENIZER_MODEL:-}" ] || data+=(--tokenizer-model "$TOKENIZER_MODEL")
else
  data=(--mock-data)
  say "DATA_PATH is not set: made-up tokens, whose loss means nothing"
fi

# launch RANKS COMMAND...: on the first nodes of the allocation that hold that many ranks.
launch() {
  local ranks=$1
  shift
  local launcher=${TRIAX_LAUNCHER:-srun}
  local bind=()
  [ -z "${TRIAX_NICS:-}" ] || bind=(bash "$jobs/bind_nic.sh")
  if [ "$launcher" != srun ]; then
    local words
    read -r -a words <<<"${launcher//\{ranks\}/$ranks}"
    "${words[@]}" ${bind[@]+"${bind[@]}"} "$@"
    return
  fi
  # --mpi: MPICH talks PMI2; without it every process is a world of one. --kill-on-bad-exit: the others wait in a
  # collective for a rank that is gone. --gpu-bind=none: a rank sees all GPUs of its node, which NVLink needs, and takes the
  # one of its local number. block:block puts neighbours of a tensor group side by side.
  srun --mpi="${TRIAX_SRUN_MPI:-pmi2}" --nodes=$(((ranks + per_node - 1) / per_node)) --ntasks="$ranks" \
    --ntasks-per-node=$((ranks < per_node ? ranks : per_node)) --kill-on-bad-exit=1 --distribution=block:block \
    --cpu-bind="${TRIAX_CPU_BIND:-cores}" ${SLURM_GPUS_ON_NODE:+--gpu-bind=none} ${bind[@]+"${bind[@]}"} "$@"
}

complete() { [ -e "$1/completed" ]; }

# The step that a start began from: a job that is sent back without getting on would never end.
made_progress() {
  local now before
  now=$(cat "$1/checkpoints/latest_checkpointed_iteration.txt" 2>/dev/null || echo 0)
  before=$(cat "$1/.requeued_at" 2>/dev/null || echo -1)
  echo "$now" >"$1/.requeued_at"
  [ "$now" != "$before" ]
}

again() {
  local run=$1
  made_progress "$run" || { say "stopped twice at the same step: not sent back" >&2; exit 75; }
  if [ -z "${SLURM_JOB_ID:-}" ]; then
    say "stopped with a checkpoint: to go on, start again with TRIAX_RUN_ROOT=$(printf %q "$run_root")"
    exit 75
  fi
  if grep -q 'Requeue=1' <<<"$(scontrol show job "$SLURM_JOB_ID")"; then
    say "stopped with a checkpoint: back into the queue"
    if scontrol requeue "$SLURM_JOB_ID"; then
      sleep 60  # Slurm ends this script
      exit 75   # not submitted as well: two jobs would write one run
    fi
    say "Slurm does not take the job back" >&2
  fi
  say "stopped with a checkpoint: submitted again"
  TRIAX_JOBS=$jobs TRIAX_RUN_ROOT=$run_root sbatch --dependency="afterany:$SLURM_JOB_ID" \
    ${SLURM_ARRAY_TASK_ID:+--array=$SLURM_ARRAY_TASK_ID} --job-name="$name" --nodes="$nodes" \
    --ntasks-per-node="$per_node" "$script"
  exit 75
}

# train [options]: one run on all ranks of the job, or on $ranks; $label tells several runs of one job apart.
train() {
  local run=$run_root${label:+/$label} code=0 world=${ranks:-$((nodes * per_node))} more=()
  local always=(--run-dir "$run" --save "$run/checkpoints") # a rehearsal judges the job's own options, and writes nothing
  [ -z "${TRIAX_OPTIONS:-}" ] || read -r -a more <<<"$TRIAX_OPTIONS"
  if [ -n "$rehearse" ]; then
    say "rehearsal of $name${label:+ $label}"
    local machine=${TRIAX_HW:-${hw-h100}}
    "$TRIAX" train --rehearse --world-size "$world" --ranks-per-node "$per_node" ${machine:+--hw "$machine"} \
      "${always[@]}" "$@" "${data[@]}" ${more[@]+"${more[@]}"} || code=$?
    # What does not fit is said and the other runs of the job are rehearsed too.
    [ $code -eq 0 ] || [ $code -eq 3 ] || exit $code
    [ $code -eq 0 ] || worst=3
    [ "$rehearse" != first ] || exit $worst
    return
  fi
  if complete "$run"; then
    say "${label:-the run} is complete already"
    return
  fi
  mkdir -p "$run"
  launch "$world" "$TRIAX" train --world-size "$world" "${always[@]}" --load "$run/checkpoints" "$@" "${data[@]}" \
    ${more[@]+"${more[@]}"} || code=$?
  # Success is what the run says of itself, not the launcher's code: a rank that leaves early can end a step with 0, and
  # one that ends badly after the run was complete has lost nothing.
  if complete "$run"; then
    [ $code -eq 0 ] || say "the run is complete; after that the launcher ended with code $code" >&2
    return
  fi
  # Ended by --exit-interval before the last iteration: the next job of the chain goes on.
  if [ $code -eq 0 ] && [ -e "$run/paused" ]; then again "$run"; fi
  if [ $code -eq 75 ]; then again "$run"; fi
  say "failed with code $code" >&2
  [ ! -d "$run/flight" ] || "$TRIAX" trace blame "$run" || true  # a wrong option comes before there are records
  [ $code -ne 0 ] || code=5
  exit $code
}

# points COMMON... -- POINT...: an array task takes its own; outside of Slurm all, one after the other. A point is
# "LABEL RANKS options".
points() {
  local common=()
  while [ "$1" != -- ]; do
    common+=("$1")
    shift
  done
  shift
  local range
  range=$(directive array)
  [ "${range%%%*}" = "0-$(($# - 1))" ] || fail "#SBATCH --array=$range, but there are $# points: use 0-$(($# - 1))"
  local first=${SLURM_ARRAY_TASK_ID:-0} last=${SLURM_ARRAY_TASK_ID:-$(($# - 1))} i words
  for ((i = first; i <= last; i++)); do
    read -r -a words <<<"${@:i+1:1}"
    label=${words[0]} ranks=${words[1]} train "${common[@]}" "${words[@]:2}"
  done
}
