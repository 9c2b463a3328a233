#!/usr/bin/env bash
# scripts/setup.sh: silent where all is found; lists what is hidden with its four names and ends with 1; as root it
# installs exactly what is missing, after one update (apt-get and id are stand-ins here: nothing is installed).
# usage: setup.sh ROOT [CMake arguments of this build]
set -euo pipefail
root=$(cd "$1" && pwd)
setup=$root/scripts/setup.sh
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
hide=-DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON

# try COMMAND...: its output in out, its exit status in status. fail WORDS: the test ends here.
try() { status=0; out=$("$@" 2>&1) || status=$?; }
fail() { echo "setup.sh: $1"; echo "$out"; exit 1; }
says() { grep -qF -- "$1" <<<"$out" || fail "does not say '$1'"; }

mkdir "$work/bin" "$work/bare"
printf '#!/bin/sh\necho "$@" >>"%s/apt.log"\n' "$work" >"$work/bin/apt-get"
printf '#!/bin/sh\necho 0\n' >"$work/bin/id"
chmod +x "$work/bin/apt-get" "$work/bin/id"

# Where all is found nothing happens, even as root with apt-get.
try env PATH="$work/bin:$PATH" "$setup" "$@"
[ $status -eq 0 ] || fail "ends with $status where this very build found everything"
[ ! -e "$work/apt.log" ] || fail "calls apt-get although everything is found"
rm -f "$work/apt.log"

# As root: one update, one install of the one package; still hidden afterwards, so it ends with 1.
try env PATH="$work/bin:$PATH" "$setup" "$@" $hide -DTRIAX_WITH_DNNL=OFF
[ $status -eq 1 ] || fail "ends with $status, not 1, where an installation brought nothing"
out=$out$'\n'$(cat "$work/apt.log")
[ "$(grep -c update "$work/apt.log")" -eq 1 ] || fail "more or less than one apt-get update"
says "-q install -y --no-install-recommends nlohmann-json3-dev"
[ "$(wc -l <"$work/apt.log")" -eq 2 ] || fail "calls apt-get more than twice"

# As root without a network: what is missing is listed all the same.
printf '#!/bin/sh\nexit 100\n' >"$work/bin/apt-get"
try env PATH="$work/bin:$PATH" "$setup" "$@" $hide -DTRIAX_WITH_DNNL=OFF
[ $status -eq 1 ] || fail "ends with $status, not 1, where apt-get fails"
says "apt-get update failed"
says "Spack:  nlohmann-json"
try env PATH="$work/bin:$PATH" "$setup" "$@" -DTRIAX_WITH_DNNL=AUTO -DDNNL_INCLUDE_DIR=/none
[ $status -eq 0 ] || fail "ends with $status where only oneDNN is missing and apt-get fails"
says "recommended, not found: oneDNN"

# Without root: a hidden library with its four names, and a parallel HDF5 of another MPI, refused with the reason. The
# latter is a stand-in that loads an MPI of another name.
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
try "$setup" --no-install "$@" $hide -DHDF5_C_LIBRARY_hdf5="$work/libhdf5.so"
[ $status -eq 1 ] || fail "ends with $status, not 1, where nlohmann-json is hidden"
says "nlohmann-json, at least 3.9"
says "Debian: nlohmann-json3-dev"
says "RHEL:   json-devel"
says "Spack:  nlohmann-json"
says "conda:  nlohmann_json"
says "was built on another MPI (libmpi.so.99)"
! grep -q "Debian: libfmt-dev" <<<"$out" || fail "lists fmt, which is there"

# Without a compiler and CMake, the tools are what it asks for.
for tool in bash sh sed awk sort head tr cut mktemp rm id cat dirname; do ln -s "$(command -v $tool)" "$work/bare/$tool"; done
try env -u CXX PATH="$work/bare" "$setup" --no-install "$@"
[ $status -eq 1 ] || fail "ends with $status, not 1, without a compiler"
says "C++20 compiler"
says "CMake with a generator"

echo "ok: setup probes, lists and installs as said"
