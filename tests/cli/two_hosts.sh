#!/usr/bin/env bash
# Two hosts that are network namespaces, joined by a link throttled to 200 Mbit/s: what crosses the link, by the kernel's
# own counters, against what the ledger says; and the hierarchical all-reduce against flat ones. two_hosts.sh TRIAX SOURCE.
# Exit code 77: this machine does not allow it.
set -u
triax=$1
mpiexec=${MPIEXEC:-mpiexec}
skip() {
  echo "SKIPPED: $1"
  exit 77
}
[ "$(id -u)" -eq 0 ] || skip 'network namespaces need root'
for tool in ip tc nsenter unshare; do command -v $tool >/dev/null || skip "$tool is not installed (iproute2, util-linux)"; done
"$mpiexec" --version 2>&1 | grep -q HYDRA || skip 'the launcher is not hydra (MPICH)'

bridge=tx$$
net=10.93.$(($$ % 250))
work=$(mktemp -d)
host() { echo "tx$$h$1"; }
cleanup() {
  for i in 1 2; do ip netns del "$(host $i)" 2>/dev/null; done
  ip link del $bridge 2>/dev/null
  rm -rf "$work"
}
trap cleanup EXIT

make_hosts() {
  ip link add $bridge type bridge && ip addr add $net.254/24 dev $bridge && ip link set $bridge up || return 1
  for i in 1 2; do
    local name
    name=$(host $i)
    ip netns add "$name" && ip link add "tx$$v$i" type veth peer name eth0 netns "$name" || return 1
    ip link set "tx$$v$i" master $bridge up || return 1
    nsenter --net=/var/run/netns/"$name" sh -c "ip addr add $net.$i/24 dev eth0 && ip link set eth0 up && ip link set lo up &&
      tc qdisc add dev eth0 root tbf rate 200mbit burst 32kb latency 1s" || return 1
  done
}
make_hosts 2>"$work/why" || skip "no network namespaces or no token bucket filter: $(head -1 "$work/why")"

# Stands in for ssh: options, address, command. Its own host name, so that MPI sees two hosts.
cat >"$work/launch" <<LAUNCH
#!/usr/bin/env bash
while [[ \${1:-} == -* ]]; do shift; done
name=tx$$h\${1##*.}
shift
exec nsenter --net=/var/run/netns/\$name unshare --uts -- sh -c "hostname \$name; \$*"
LAUNCH
chmod +x "$work/launch"
# Namespaces share memory between processes, which two hosts do not: all MPI messages take TCP.
export UCX_TLS=tcp,self UCX_NET_DEVICES=eth0 OMP_NUM_THREADS=1
on_two_hosts() {
  timeout 120 "$mpiexec" -launcher ssh -launcher-exec "$work/launch" -localhost $net.254 \
    -hosts $net.1:2,$net.2:2 -n 4 "$@"
}
# Bytes that left a host by eth0, headers included.
sent_by() { nsenter --net=/var/run/netns/"$(host "$1")" awk '$1 == "eth0:" { print $10 }' /proc/net/dev; }

faults=0
fault() {
  echo "FAULT: $1"
  faults=$((faults + 1))
}

on_two_hosts "$triax" topo >"$work/topo" 2>&1 || fault 'triax topo on two hosts'
grep -q '4 ranks on 2 node(s)' "$work/topo" || { cat "$work/topo"; fault 'two nodes were not found'; }

# crossing ALGORITHM: bytes over the link, both ways, of all-reduces of 1 MiB, by the kernel and by the ledger.
declare -A counted wire time_us
calls=10  # one checked, one to warm up, the rest timed; all of them out of place and in place
crossing() {
  local before=$(($(sent_by 1) + $(sent_by 2)))
  on_two_hosts "$triax" bench coll --algorithm "$1" --min-bytes 1M --max-bytes 1M --turns 1 \
    --calls $((calls - 2)) --format csv >"$work/$1.csv" 2>"$work/$1.err" || { cat "$work/$1.err"; fault "bench coll --algorithm $1 on two hosts"; }
  wire[$1]=$(($(sent_by 1) + $(sent_by 2) - before))
  counted[$1]=$(tail -1 "$work/$1.csv" | cut -d, -f21)
  time_us[$1]=$(tail -1 "$work/$1.csv" | cut -d, -f11)
}

size=$((1 << 20))
printf '%-18s %14s %14s %12s\n' algorithm 'counted/call' 'on the wire' 'time_us'
for algorithm in hierarchical ring halving-doubling direct library; do
  crossing $algorithm
  counts=${counted[$algorithm]}
  [ $algorithm = library ] && counts='not counted'
  printf '%-18s %14s %14s %12s\n' $algorithm "$counts" $((wire[$algorithm] / (2 * calls))) "${time_us[$algorithm]}"
  [ $algorithm = library ] && continue
  # Headers of TCP and IP, acknowledgements, the start of the job: at most 12 % and 300 kB beside what the ledger counts.
  least=$((counts * 2 * calls))
  most=$((least * 112 / 100 + 300000))
  [ "${wire[$algorithm]}" -ge "$least" ] && [ "${wire[$algorithm]}" -le "$most" ] ||
    fault "$algorithm: ${wire[$algorithm]} bytes crossed the link, the ledger says $least for $((2 * calls)) calls"
done
# 2 nodes of 2 ranks, S = 1 MiB, both ways together: hierarchical 2 S, ring 3 S, direct 4 S.
[ "${counted[hierarchical]}" -eq $((2 * size)) ] || fault "hierarchical counts ${counted[hierarchical]}, not 2 S"
[ "${counted[ring]}" -eq $((3 * size)) ] || fault "ring counts ${counted[ring]}, not 3 S"
[ "${counted[direct]}" -eq $((4 * size)) ] || fault "direct counts ${counted[direct]}, not 4 S"
for flat in ring halving-doubling direct; do
  [ "${wire[hierarchical]}" -lt "${wire[$flat]}" ] || fault "hierarchical sends no less over the link than $flat"
done
[ $faults -eq 0 ] && echo 'two hosts: passed'
exit $((faults > 0))
