#!/usr/bin/env bash
# Looks for everything that Triax needs and does nothing where all is found. As root on Debian or Ubuntu it installs what is
# missing; elsewhere it lists each missing one with its packages and ends with 1.
# usage: setup.sh [--no-install] [CMake arguments, e.g. -DTRIAX_WITH_DNNL=OFF]
#        setup.sh --markdown     the table of docs/install.md
#        setup.sh --keys         the keys of scripts/dependencies.txt
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
table=$root/scripts/dependencies.txt
install=yes

# rows: the table without comments, columns parted by '|' without blanks around it. column KEY N: one cell.
rows() { sed -e '/^#/d' -e '/^$/d' -e 's/ *| */|/g' "$table"; }
column() { rows | awk -F'|' -v key="$1" -v n="$2" '$1 == key { print $n }'; }

markdown() {
  echo "| what | at least | kind | Debian, Ubuntu | RHEL, Fedora (EPEL, CRB) | Spack | conda-forge | used for |"
  echo "|---|---|---|---|---|---|---|---|"
  rows | awk -F'|' '{ printf "| %s | %s | %s | `%s` | `%s` | `%s` | `%s` | %s |\n", $2, $3, $4, $5, $6, $7, $8, $9 }'
}

case "${1:-}" in
  --markdown) markdown; exit 0 ;;
  --keys) rows | cut -d'|' -f1; exit 0 ;;
  --no-install) install=no; shift ;;
esac

missing=()      # keys of what is needed and not there
recommended=()  # keys of what would be good to have
unprobed=()     # keys that could not be looked for, since a compiler or CMake is missing
reasons=()      # "KEY (why what was found cannot be used)"

at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

probe_tools() {
  local found version
  found=no
  for compiler in "${CXX:-c++}" g++ clang++; do
    command -v "${compiler%% *}" >/dev/null 2>&1 && { found=yes; break; }
  done
  [ $found = yes ] || missing+=(cxx)
  version=$(cmake --version 2>/dev/null | awk 'NR == 1 { print $3 }' || true)
  if [ -z "$version" ]; then
    missing+=(cmake)
  elif ! at_least "$(column cmake 3)" "$version"; then
    missing+=(cmake)
    reasons+=("cmake ($(command -v cmake) is version $version)")
  elif ! command -v make >/dev/null 2>&1 && ! command -v ninja >/dev/null 2>&1; then
    missing+=(cmake)
    reasons+=("cmake (no make and no ninja)")
  fi
}

# The libraries are looked for by the very CMake code that configures Triax.
probe_libraries() {
  local dir log status=0
  dir=$(mktemp -d)
  log=$dir/log
  cmake -S "$root/cmake/probe" -B "$dir/build" "$@" >"$log" 2>&1 || status=$?
  if [ $status -ne 0 ]; then
    cat "$log" >&2
    echo "setup: the probe itself failed (above)" >&2
    rm -rf "$dir"
    exit 1
  fi
  mapfile -t missing < <(sed -n 's/^missing: \([a-z0-9_]*\).*/\1/p' "$log")
  mapfile -t reasons < <(sed -n 's/^missing: \([a-z0-9_]* (.*\)$/\1/p' "$log")
  mapfile -t recommended < <(sed -n 's/^-- recommended: \([a-z0-9_]*\).*/\1/p' "$log")
  rm -rf "$dir"
}

probe() {
  missing=() recommended=() unprobed=() reasons=()
  probe_tools
  if [ ${#missing[@]} -eq 0 ]; then
    probe_libraries "$@"
  else
    mapfile -t unprobed < <(rows | awk -F'|' '$4 != "optional" && $1 != "cxx" && $1 != "cmake" { print $1 }')
  fi
}

# Debian packages of the keys given, each once.
debian_packages() {
  local key
  for key in "$@"; do column "$key" 5; done | tr ' ' '\n' | sort -u
}

can_install() { [ $install = yes ] && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; }

list_missing() {
  local key reason
  echo "setup: not found, and needed:"
  for key in "$@"; do
    printf '  %s, at least %s (%s)\n' "$(column "$key" 2)" "$(column "$key" 3)" "$(column "$key" 9)"
    for reason in "${reasons[@]}"; do
      [ "${reason%% *}" = "$key" ] && echo "    seen:   ${reason#* }"
    done
    printf '    Debian: %s\n    RHEL:   %s\n    Spack:  %s\n    conda:  %s\n' "$(column "$key" 5)" "$(column "$key" 6)" \
      "$(column "$key" 7)" "$(column "$key" 8)"
  done
}

# Installs the packages of the keys given; 1 if apt-get fails, with apt_fault saying how.
updated=no apt_fault=
apt_install() {
  local packages
  mapfile -t packages < <(debian_packages "$@")
  echo "setup: installing ${packages[*]}"
  export DEBIAN_FRONTEND=noninteractive
  if [ $updated = no ] && ! apt-get -q update </dev/null; then
    apt_fault="apt-get update failed (no network?)"
    return 1
  fi
  updated=yes
  apt-get -q install -y --no-install-recommends "${packages[@]}" </dev/null && return 0
  apt_fault="apt-get install failed"
  return 1
}

probe "$@"
if can_install; then
  # A bare machine needs two rounds: the second probe can look for libraries once there is a compiler.
  before=
  while [ ${#missing[@]} -gt 0 ] && [ "$before" != "${missing[*]}" ]; do
    before="${missing[*]}"
    apt_install "${missing[@]}" || break
    probe "$@"
  done
  # Its absence is no error, nor is a failure to install it.
  if [ ${#missing[@]} -eq 0 ] && [ ${#recommended[@]} -gt 0 ] && apt_install "${recommended[@]}"; then
    probe "$@"
  fi
fi
if [ ${#missing[@]} -gt 0 ]; then
  list_missing "${missing[@]}" >&2
  if [ ${#unprobed[@]} -gt 0 ]; then
    echo "setup: without these the libraries cannot be looked for; docs/install.md lists them." >&2
  fi
  [ -z "$apt_fault" ] || echo "setup: $apt_fault" >&2
  can_install || echo "setup: 'make setup' as root installs them on Debian and Ubuntu; a library in a folder of its own" \
    "is found through CMAKE_PREFIX_PATH (docs/install.md)." >&2
  exit 1
fi
for key in "${recommended[@]}"; do
  echo "setup: recommended, not found: $(column "$key" 2) ($(column "$key" 9)); Debian $(column "$key" 5)"
done
echo "setup: everything needed is here"
