#!/usr/bin/env bash
# No committed text names a path of somebody's machine.
source "$(dirname "$0")/lib.sh"
pattern='(^|[^A-Za-z0-9_./$}-])/(root|home|Users|work|scratch)/[A-Za-z0-9._-]+'
while read -r line; do
  fault "$line"
done < <(product_files | grep -vE '^(tests/structure/|configs/.*\.txt$)' | tr '\n' '\0' | xargs -0 grep -InE -- "$pattern" | cut -c1-160 || true)
finish "no machine paths"
