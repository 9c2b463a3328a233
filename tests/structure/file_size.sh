#!/usr/bin/env bash
# No source file is longer than 400 lines.
source "$(dirname "$0")/lib.sh"
while read -r file; do
  lines=$(wc -l <"$file")
  [ "$lines" -le 400 ] || fault "$file: $lines lines, the cap is 400: split it by concept"
done < <(product_files | grep -E '\.(h|cpp|cc|c|cu|cuh)$')
finish "no file over 400 lines"
