#!/usr/bin/env bash
# Commands in a document and what they print: doc_commands.sh check|update TRIAX FILE.md...
# In a fenced block, a line `$ ...` with triax in it is a command of the shell, the lines up to the next one or the fence are
# its output. `check` runs them and compares; `update` writes what they print now. Only commands whose output is the same
# every time belong there.
set -euo pipefail
mode=$1
triax=$(readlink -f "$2")
shift 2
path=$(mktemp -d)
trap 'rm -rf "$path"' EXIT
ln -s "$triax" "$path/triax"
export PATH="$path:$PATH"
faults=0
for file in "$@"; do
  fenced=0 skip=0
  while IFS= read -r line; do
    if [[ $line == '```'* ]]; then
      fenced=$((1 - fenced)) skip=0
    elif [ $fenced = 1 ] && [[ $line == '$ '*triax\ * ]]; then
      printf '%s\n' "$line"
      bash -c "${line#\$ }" 2>&1 || true
      skip=1
      continue
    fi
    [ $skip = 1 ] || printf '%s\n' "$line"
  done <"$file" >"$path/new"
  if [ "$mode" = update ]; then
    cp "$path/new" "$file"
  elif ! diff -u "$file" "$path/new"; then
    echo "FAULT: $file: a command prints something else now; scripts/doc_commands.sh update TRIAX $file"
    faults=1
  fi
done
exit $faults
