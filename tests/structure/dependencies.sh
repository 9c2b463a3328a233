#!/usr/bin/env bash
# scripts/dependencies.txt, the probe in cmake/ and the table of docs/install.md agree, every row is whole, and no CMake
# file outside cmake/ looks for a library that setup would not know of.
source "$(dirname "$0")/lib.sh"
keys=$(scripts/setup.sh --keys | sort)
[ -z "$(echo "$keys" | uniq -d)" ] || fault "scripts/dependencies.txt: key twice: $(echo "$keys" | uniq -d)"
while IFS='|' read -r -a cells; do
  [ ${#cells[@]} -eq 9 ] || fault "scripts/dependencies.txt: ${cells[0]}has ${#cells[@]} cells, not 9"
  for cell in "${cells[@]}"; do
    [ -n "${cell// /}" ] || fault "scripts/dependencies.txt: ${cells[0]}has an empty cell"
  done
  case "${cells[3]:-}" in " tool " | " library " | " test " | " recommended " | " optional ") ;; *)
    fault "scripts/dependencies.txt: ${cells[0]}has kind '${cells[3]:-}'" ;; esac
done < <(sed -e '/^#/d' -e '/^$/d' scripts/dependencies.txt)

probed=$(cat cmake/*.cmake | sed -n -e 's/.*triax_\(need\|recommend\)(\([a-z0-9_]\{2,\}\) [A-Za-z_0-9]*[ )].*/\2/p' -e 's/.*APPEND TRIAX_MISSING \([a-z0-9_]*\))$/\1/p' | sort -u)
for key in $probed; do
  grep -qx "$key" <<<"$keys" || fault "cmake/: probes '$key', which scripts/dependencies.txt does not have"
done
# The compiler and CMake are looked for by setup.sh itself; optional programs by those who call them.
for key in $(sed -e '/^#/d' -e '/^$/d' -e 's/ *| */|/g' scripts/dependencies.txt | awk -F'|' '$4 != "optional" && $1 != "cmake" { print $1 }'); do
  grep -qx "$key" <<<"$probed" || fault "scripts/dependencies.txt: nothing in cmake/ probes '$key'"
done

documented=$(awk '/^<!-- dependencies:begin/ { on = 1; next } /^<!-- dependencies:end/ { on = 0 } on' docs/install.md)
[ "$documented" = "$(scripts/setup.sh --markdown)" ] ||
  fault "docs/install.md: its table differs from 'scripts/setup.sh --markdown'"

while read -r line; do
  fault "$line: libraries are looked for in cmake/TriaxDependencies.cmake, with a row in scripts/dependencies.txt"
done < <(product_files | grep 'CMakeLists.txt$' | grep -v '^cmake/' | xargs grep -nE '^[^#]*(find_package|pkg_check_modules|find_library|find_path)\(' |
  grep -v 'find_package(GTest' || true)
finish "$(echo "$keys" | wc -l) dependencies agree"
