# A real Slurm on this host, of virtual nodes n0, n1, ... that all stand on it: munged, slurmctld and one slurmd per node, with
# state in a folder of its own. Needs root and Debian's slurmctld, slurmd, slurm-client, slurm-wlm-basic-plugins, munge.
# Sourced: cluster_up NODES CPUS; cluster_down ends what it started, by pid.
# shellcheck shell=bash

cluster_missing() {
  [ "$(id -u)" -eq 0 ] || { echo "Slurm's daemons need root"; return; }
  local tool
  for tool in slurmctld slurmd munged sbatch srun scontrol squeue sinfo; do
    PATH=$PATH:/usr/sbin command -v $tool >/dev/null || { echo "$tool is not installed (make setup as root installs it)"; return; }
  done
}

cluster_conf() {
  local nodes=$1 cpus=$2 last=$(($1 - 1))
  # cred_expire: how long a requeued job waits. KillWait: from SIGTERM to SIGKILL. config_overrides: the nodes claim more CPUs
  # than the host has.
  cat <<CONF
ClusterName=test
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$((port + 1))
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$state/munge.sock,cred_expire=5
CredType=cred/munge
StateSaveLocation=$state/ctl
SlurmdSpoolDir=$state/spool.%n
SlurmctldPidFile=$state/slurmctld.pid
SlurmdPidFile=$state/slurmd.%n.pid
SlurmctldLogFile=$state/slurmctld.log
SlurmdLogFile=$state/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
MinJobAge=600
KillWait=2
OverTimeLimit=0
UnkillableStepTimeout=20
PropagateResourceLimits=NONE
NodeName=n[0-$last] NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=[$((port + 10))-$((port + 10 + last))] CPUs=$cpus RealMemory=1000 State=UNKNOWN
PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=30
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
CONF
}

cluster_up() {
  local nodes=$1 i up=0
  state=$(mktemp -d /tmp/triax-slurm.XXXXXX)
  chmod 755 "$state"
  port=$((20000 + $$ % 2000 * 20))
  export PATH=$PATH:/usr/sbin SLURM_CONF=$state/slurm.conf
  (umask 077 && head -c 1024 /dev/urandom >"$state/munge.key")
  mkdir "$state/ctl"
  for ((i = 0; i < nodes; i++)); do mkdir "$state/spool.n$i"; done
  cluster_conf "$nodes" "$2" >"$SLURM_CONF"
  munged --force --key-file="$state/munge.key" --socket="$state/munge.sock" --pid-file="$state/munged.pid" \
    --seed-file="$state/munged.seed" --log-file="$state/munged.log" --num-threads=2 >"$state/munged.out" 2>&1 || return 1
  slurmctld -c >"$state/slurmctld.out" 2>&1 || return 1
  for ((i = 0; i < nodes; i++)); do slurmd -N "n$i" >"$state/slurmd.n$i.out" 2>&1 || return 1; done
  for ((i = 0; i < 100 && up < nodes; i++)); do
    sleep 0.2
    up=$(sinfo -h -N -p batch -t idle -o %N 2>/dev/null | wc -l)
  done
  [ "$up" -eq "$nodes" ]
}

cluster_logs() { tail -n 5 "$state"/*.log "$state"/*.out 2>/dev/null; }

cluster_down() {
  local file pid i
  [ -n "${state:-}" ] || return 0
  scancel -u root 2>/dev/null
  for ((i = 0; i < 50; i++)); do
    [ -z "$(squeue -h 2>/dev/null)" ] && break
    sleep 0.1
  done
  for file in "$state"/slurmd.*.pid "$state/slurmctld.pid" "$state/munged.pid"; do
    pid=$(cat "$file" 2>/dev/null) || continue
    kill "$pid" 2>/dev/null || continue
    for ((i = 0; i < 50; i++)); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null
  done
  rm -rf "$state"
}

# wait_for SECONDS CONDITION...: until the command is true.
wait_for() {
  local tries=$(($1 * 5))
  shift
  while ! "$@"; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || return 1
    sleep 0.2
  done
}
job_state() { scontrol -o show job "$1" 2>/dev/null | sed -n 's/.* JobState=\([A-Z]*\).*/\1/p'; }
job_field() { scontrol -o show job "$1" | sed -n "s/.* $2=\([^ ]*\).*/\1/p"; }
job_ended() { case $(job_state "$1") in COMPLETED | FAILED | TIMEOUT | CANCELLED | NODE_FAIL | PREEMPTED) true ;; *) false ;; esac; }
completed_run() { [ -e "$1/completed" ]; }

# The frame of a test: skip, a directory of its own, a Slurm of four nodes of four.
faults=0
fault() {
  echo "FAULT: $1"
  faults=$((faults + 1))
  shift
  local file
  for file in "$@"; do
    echo "  -- $file"
    tail -n 40 "$file" | cut -c1-300 | sed 's/^/  /'
  done
}
start_test() {
  local reason
  reason=$(cluster_missing)
  if [ -n "$reason" ]; then
    echo "SKIP: $reason"
    exit 77
  fi
  work=$(mktemp -d /tmp/triax-slurm-test.XXXXXX)
  trap 'cluster_down; rm -rf "$work"' EXIT
  trap 'exit 1' TERM INT HUP
  cd "$work" || exit 1
  if ! cluster_up 4 4; then
    echo "SKIP: Slurm's daemons do not come up here: $(cluster_logs | grep -i -m 1 -E 'error|fatal')"
    exit 77
  fi
  # Of the user's own: nothing may leak into the jobs. The ranks share the host's cores.
  unset DATA_PATH TOKENIZER_TYPE TOKENIZER_MODEL TRIAX_SCRATCH TRIAX_LAUNCHER TRIAX_NICS TRIAX_RUN_ROOT TRIAX_OPTIONS
  export TRIAX TRIAX_CPU_BIND=none
}
end_test() {
  [ $faults -eq 0 ] && echo 'passed'
  exit $((faults > 0))
}
