# Shared by the scripts of checkpoints: where the binary is, how a run is started, what two runs must have alike.
triax=$1
mpiexec=${MPIEXEC:-mpiexec}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export OMP_NUM_THREADS=1
failed=0
fail() { echo "FAILED: $*"; failed=1; }
expect_code() { [ "$2" -eq "$1" ] || fail "$3: exit code $2, expected $1: $(tail -3 err)"; }

# train RANKS OPTIONS...: output in out and err. `model` holds what all runs of a script share.
train() {
  local ranks=$1
  shift
  # shellcheck disable=SC2086,SC2154
  "$mpiexec" -n "$ranks" "$triax" train $model "$@" >out 2>err
}
# steps RUN...: what every step of these runs (one after the other) computed, a line each.
steps() {
  local run
  for run in "$@"; do
    sed -n 's/^{"iteration":\([0-9]*\),"lm_loss":\([^,]*\),"grad_norm":\([^,]*\),"learning_rate":\([^,]*\),"loss_scale":\([^,]*\),"consumed_samples":\([0-9]*\),.*/\1 \2 \3 \4 \5 \6/p' "$run/metrics.jsonl"
    grep '"split":"validation"' "$run/metrics.jsonl"
  done | sort -n -k1,1 -t' '
}
content() { "$triax" ckpt ls "$1" --hash | grep '^content'; }
