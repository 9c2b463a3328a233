#!/usr/bin/env bash
# The figures in the headers of the job scripts: what a rehearsal prints.
# usage: job_figures.sh [--check|--check-first] TRIAX jobs/NAME...
# writes them, or with --check compares (1: some differ); --check-first: of a script with several runs only the first.
# Words must be equal; numbers of a predicted time, which follow the cost model, may differ by 5 %.
set -euo pipefail
check=no
export TRIAX_REHEARSE=1
case ${1:-} in
  --check | --check-first)
    check=yes
    [ "$1" = --check ] || TRIAX_REHEARSE=first
    shift
    ;;
esac
TRIAX=$(readlink -f "$1")
export TRIAX
unset DATA_PATH TOKENIZER_TYPE TOKENIZER_MODEL TRIAX_OPTIONS
shift
status=0

# One run: the lines that say what it is and costs. Several, which have a label each: one line each.
figures() {
  local out code=0
  out=$(bash "$1") || code=$?
  if [ $code -ne 0 ] && [ $code -ne 3 ]; then
    echo "$1: the rehearsal ends with $code" >&2
    exit 1
  fi
  if [ "$(grep -c '^job: rehearsal of [^ ]*$' <<<"$out")" -eq 1 ]; then
    grep -E '^(layout|batch|FLOPs|memory|step time|first loss)  ' <<<"$out" | sed 's/^/#   /'
    grep -E '^  tp .* cross' <<<"$out" | sed 's/^ */#   groups      /' || true
  else
    awk '/^job: rehearsal of / { label = $NF } /^summary / { sub(/^summary +/, ""); print "#   " label ": " $0 }' <<<"$out"
  fi
}

# same OLD NEW
same() {
  awk -v old="$1" -v new="$2" 'BEGIN {
    n = split(old, a, /\n/); if (n != split(new, b, /\n/)) exit 1
    for (i = 1; i <= n; i++) {
      words = split(a[i], x, / +/); if (words != split(b[i], y, / +/)) exit 1
      for (w = 1; w <= words; w++) {
        if (x[w] == y[w]) continue
        if (a[i] !~ /predicted on/ && x[w + 1] != "s/step") exit 1
        if (x[w] !~ /^[0-9.]+,?$/ || y[w] !~ /^[0-9.]+,?$/) exit 1
        d = x[w] - y[w]; if (d < 0) d = -d
        if (d > 0.05 * x[w]) exit 1
      }
    }
  }'
}

for script in "$@"; do
  new=$(figures "$script")
  if [ $check = yes ]; then
    old=$(sed -n '/^# figures:/,/^# end of figures/{/^#   /p}' "$script")
    if [ $TRIAX_REHEARSE = first ]; then old=$(head -n "$(wc -l <<<"$new")" <<<"$old"); fi
    if ! same "$old" "$new"; then
      echo "$script: its header's figures are not those of the rehearsal ('scripts/job_figures.sh TRIAX $script' writes them):"
      diff <(echo "$old") <(echo "$new") || true
      status=1
    fi
    continue
  fi
  awk -v new="$new" '/^# end of figures/ { skip = 0 } !skip { print } /^# figures:/ { print new; skip = 1 }' "$script" >"$script.new"
  cat "$script.new" >"$script"
  rm "$script.new"
done
exit $status
