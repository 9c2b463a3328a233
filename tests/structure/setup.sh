#!/usr/bin/env bash
# scripts/setup.sh: silent where all is found; lists a hidden library with its four names and ends with 1; as root it
# installs exactly what is missing, after one update (apt-get and id are stand-ins here: nothing is installed).
# usage: setup.sh ROOT
set -euo pipefail
root=$(cd "$1" && pwd)
setup=$root/scripts/setup.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "setup.sh: $1"; echo "$out"; exit 1; }
hide=-DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON

status=0
out=$("$setup" --no-install 2>&1) || status=$?
[ $status -eq 0 ] || fail "ends with $status where this very build found everything"

status=0
out=$("$setup" --no-install $hide 2>&1) || status=$?
[ $status -eq 1 ] || fail "ends with $status, not 1, where nlohmann-json is hidden"
for words in "nlohmann-json, at least 3.9" "Debian: nlohmann-json3-dev" "RHEL:   json-devel" "Spack:  nlohmann-json" \
  "conda:  nlohmann_json"; do
  grep -qF -- "$words" <<<"$out" || fail "does not say '$words'"
done
! grep -q "Debian: libfmt-dev" <<<"$out" || fail "lists fmt, which is there"

# As root with apt-get: one update, one install of the one package; still hidden afterwards, so it must end with 1.
mkdir "$work/bin"
printf '#!/bin/sh\necho "$@" >>"%s/apt.log"\n' "$work" >"$work/bin/apt-get"
printf '#!/bin/sh\necho 0\n' >"$work/bin/id"
chmod +x "$work/bin/apt-get" "$work/bin/id"
status=0
out=$(PATH=$work/bin:$PATH "$setup" $hide 2>&1) || status=$?
[ $status -eq 1 ] || fail "ends with $status, not 1, where an installation brought nothing"
out=$out$'\n'$(cat "$work/apt.log")
[ "$(grep -c update "$work/apt.log")" -eq 1 ] || fail "more or less than one apt-get update"
grep -qx -- "-q install -y --no-install-recommends nlohmann-json3-dev" "$work/apt.log" || fail "does not install that package alone"

# Where all is found apt-get is not called, even as root.
rm "$work/apt.log"
status=0
out=$(PATH=$work/bin:$PATH "$setup" 2>&1) || status=$?
[ $status -eq 0 ] && [ ! -e "$work/apt.log" ] || fail "calls apt-get although everything is found"

# Without a compiler and CMake, the tools are what it asks for.
mkdir "$work/bare"
for tool in bash sh sed awk sort head tr cut mktemp rm id cat dirname; do ln -s "$(command -v $tool)" "$work/bare/$tool"; done
status=0
out=$(env -u CXX PATH="$work/bare" "$setup" --no-install 2>&1) || status=$?
[ $status -eq 1 ] && grep -q "C++20 compiler" <<<"$out" && grep -q "CMake" <<<"$out" || fail "does not name the missing tools"

# A parallel HDF5 of another MPI is refused, naming both: a stand-in for it, which loads an MPI of another name.
cat >"$work/hdf5.c" <<'END'
int other_mpi(void);
long H5P_CLS_FILE_ACCESS_ID_g;
int H5open(void) { return 0; }
long H5Pcreate(long list) { return list + other_mpi(); }
int H5Pset_fapl_mpio(long list, int comm, int info) { return comm + info + (int)list; }
END
echo 'int other_mpi(void) { return 0; }' >"$work/mpi.c"
cc -shared -fPIC -Wl,-soname,libmpi.so.99 -o "$work/libmpi.so.99" "$work/mpi.c"
cc -shared -fPIC -o "$work/libhdf5.so" "$work/hdf5.c" "$work/libmpi.so.99"
status=0
out=$("$setup" --no-install -DHDF5_C_LIBRARY_hdf5="$work/libhdf5.so" 2>&1) || status=$?
[ $status -eq 1 ] && grep -q "was built on another MPI (libmpi.so.99)" <<<"$out" || fail "does not refuse the HDF5 of another MPI"

echo "ok: setup probes, lists and installs as said"
