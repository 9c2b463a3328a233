# Shared by the scripts that run single commands: where the binary is, a directory of its own, what a command must do.
# At the end of a script: `exit $((faults > 0))`.
set -u
triax=$1
mpiexec=${MPIEXEC:-mpiexec}
export OMP_NUM_THREADS=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
faults=0

fault() {
  echo "FAULT: $1"
  faults=$((faults + 1))
}

# expect CODE TEXT COMMAND...: the exit code, and a text somewhere in the output (as a fixed string).
expect() {
  local code=$1 text=$2
  shift 2
  local output
  output=$("$@" 2>&1)
  local got=$?
  if [ $got -ne "$code" ] || ! grep -qF -- "$text" <<<"$output"; then
    fault "$*: exit code $got (want $code), wanted \"$text\" in:"
    sed 's/^/    /' <<<"$output"
  fi
}
