#!/usr/bin/env bash
# Documents that hold commands and their output print what the binary prints: docs.sh TRIAX SOURCE. Sabotage: a changed number
# is found.
. "$(dirname "$0")/expect.sh"
check() { bash "$1/scripts/doc_commands.sh" check "$triax" "$2"; }
expect 0 '' check "$2" "$2/docs/which-parallelism.md"
sed 's/\(^  1  .* \)[0-9]/\19/; t; s/fit 73/fit 37/' "$2/docs/which-parallelism.md" >changed.md
cmp -s changed.md "$2/docs/which-parallelism.md" && fault 'the sabotage changed nothing'
expect 1 'prints something else now' check "$2" changed.md

# A training command of README, docs or a configuration is accepted as it stands, but for data that only its reader has.
rehearse() {
  local ranks args
  ranks=$(sed -nE 's/^mpiexec -n ([0-9]+) .*/\1/p' <<<"$1")
  read -ra args < <(sed -E 's/.*triax train/train/; s/--data-path [^ ]+/--mock-data/' <<<"$1")
  (cd "$2" && "$triax" "${args[@]}" --rehearse --world-size "${ranks:-1}")
}
commands() {
  grep -rhoE --include=*.md --include=*.cfg '(mpiexec -n [0-9]+ )?[^ `]*triax train --config configs/[^`]*' "$1"/{README.md,docs,configs}
}
commands "$2" >commands.txt
[ "$(wc -l <commands.txt)" -ge 2 ] || fault "commands found: $(cat commands.txt)"
while read -r command; do expect 0 'summary' rehearse "$command" "$2"; done <commands.txt
expect 2 'must be shorter than the decay' rehearse "$(head -1 commands.txt) --train-iters 20" "$2"

# What README and docs name below runs/demo is what the demo writes there; `report` reads a run.
in_demo() {
  local path
  for path in $(grep -hoE 'runs/demo[^ `,;:)]*' "$1"/{README.md,docs/*.md}); do
    grep -qF "\"\$out${path#runs/demo}\"" "$2" || echo "$path"
  done
  for path in $(grep -hoE 'triax report runs/demo[^ `,;:)]*' "$1"/{README.md,docs/*.md} | sed 's/.* //'); do
    grep -qF -- "--run-dir \"\$out${path#runs/demo}\"" "$2" || echo "$path is no run"
  done
}
[ -z "$(in_demo "$2" "$2/scripts/demo.sh")" ] || fault "the demo does not write: $(in_demo "$2" "$2/scripts/demo.sh")"
sed 's/--run-dir "\$out\/run"/--run-dir "$out\/training"/' "$2/scripts/demo.sh" >demo.sh
in_demo "$2" demo.sh | grep -q 'runs/demo/run is no run' || fault 'a run that the demo calls otherwise is not found'
exit $((faults > 0))
