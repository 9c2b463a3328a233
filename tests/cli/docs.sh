#!/usr/bin/env bash
# Documents that hold commands and their output print what the binary prints: docs.sh TRIAX SOURCE. Sabotage: a changed number
# is found.
. "$(dirname "$0")/expect.sh"
check() { bash "$1/scripts/doc_commands.sh" check "$triax" "$2"; }
expect 0 '' check "$2" "$2/docs/which-parallelism.md"
sed 's/\(^  1  .* \)[0-9]/\19/; t; s/fit 73/fit 37/' "$2/docs/which-parallelism.md" >changed.md
cmp -s changed.md "$2/docs/which-parallelism.md" && fault 'the sabotage changed nothing'
expect 1 'prints something else now' check "$2" changed.md
exit $((faults > 0))
