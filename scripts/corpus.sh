#!/bin/sh
# Fetches two Debian packages, unpacks them without installing, and writes plain texts to train on into .corpus/:
# austen.txt (six novels) and linux-doc.txt (the kernel's documentation). Needs apt-get, dpkg-deb, a C++ compiler and zlib.
set -eu

cd "$(dirname "$0")/.."
out=.corpus
mkdir -p "$out/packages"

for tool in apt-get dpkg-deb; do
  if ! command -v "$tool" >/dev/null 2>&1; then
    echo "corpus: $tool not found: this needs Debian or Ubuntu; data/demo/ holds a smaller text" >&2
    exit 2
  fi
done

# unpack PACKAGE DIRECTORY
unpack() {
  [ -d "$2" ] && return
  (cd "$out/packages" && rm -f "$1"_*.deb && apt-get download -q -o APT::Sandbox::User=root "$1" >&2) || {
    echo "corpus: cannot download $1: run 'apt-get update' as root, or check the network" >&2
    exit 5
  }
  rm -rf "$2.tmp"
  dpkg-deb -x "$out/packages/$1"_*.deb "$2.tmp"
  mv "$2.tmp" "$2"
}

unpack r-cran-janeaustenr "$out/janeaustenr.unpacked"
mkdir -p "$out/janeaustenr"
cp "$out"/janeaustenr.unpacked/usr/lib/R/site-library/janeaustenr/data/Rdata.* "$out/janeaustenr/"
"${CXX:-c++}" -std=c++20 -O2 -o "$out/rdb_text" scripts/rdb_text.cpp -lz
"$out/rdb_text" "$out/janeaustenr/Rdata.rdb" >"$out/austen.txt.tmp"
mv "$out/austen.txt.tmp" "$out/austen.txt"

unpack linux-doc-6.1 "$out/linux-doc.unpacked"
# The order of names in the C locale, so that every machine makes the same file of the same package.
find "$out/linux-doc.unpacked/usr/share/doc" -type f \( -name '*.rst' -o -name '*.rst.gz' -o -name '*.txt' -o -name '*.txt.gz' \) |
  grep -v '/_sources/\|/html/' | LC_ALL=C sort >"$out/linux-doc.files"
while read -r file; do
  gzip -cdf "$file"
  printf '\f\n'
done <"$out/linux-doc.files" >"$out/linux-doc.txt.tmp"
mv "$out/linux-doc.txt.tmp" "$out/linux-doc.txt"

wc -c "$out/austen.txt" "$out/linux-doc.txt"
