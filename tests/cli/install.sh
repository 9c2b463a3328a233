#!/usr/bin/env bash
# cmake --install into a prefix of its own: install.sh TRIAX SOURCE BUILD. The installed program works in any directory, and has
# what belongs beside it.
. "$(dirname "$0")/expect.sh"
source_dir=$2 build=$3
prefix=$work/prefix
cmake --install "$build" --prefix "$prefix" >log 2>&1 || { cat log; fault 'cmake --install'; }
for file in bin/triax share/man/man1/triax.1 share/bash-completion/completions/triax share/triax/jobs/70b_3d.slurm \
  share/triax/jobs/common.sh share/triax/jobs/site.sh.template share/triax/configs/demo.cfg share/doc/*/README.md; do
  [ -s "$(echo "$prefix"/$file)" ] || fault "$file is not installed"
done
[ ! -e "$prefix/share/triax/jobs/site.sh" ] || fault "a user's own site.sh is installed"
mkdir elsewhere && cd elsewhere || exit 1
installed=$prefix/bin/triax
expect 0 'triax ' env -u LD_LIBRARY_PATH "$installed" --version
expect 0 'llama3-70b' "$installed" --list-models
# A job script beside it finds it.
expect 0 'summary     demo tp2-pp2-dp2' env -u TRIAX TRIAX_REHEARSE=1 bash "$prefix/share/triax/jobs/small_3d.slurm"
expect 0 'finished at iteration 1' "$mpiexec" -n 2 "$installed" train --config "$prefix/share/triax/configs/parity-t1.cfg" --train-iters 1

# The manual page has every honoured option, and troff no complaint.
options=$("$installed" options | sed '/^Every switch/,$d' | grep -o '^  --[A-Za-z0-9_-]*' | sort -u)
for option in $options; do
  grep -qF -- ".BR \\-\\-$(sed 's/^--//;s/-/\\-/g' <<<"$option") " "$prefix/share/man/man1/triax.1" || fault "the manual page lacks $option"
done
if command -v groff >/dev/null; then
  complaints=$(groff -man -ww -Tascii -z "$prefix/share/man/man1/triax.1" 2>&1)
  [ -z "$complaints" ] || fault "troff: $complaints"
fi
cmp "$prefix/share/man/man1/triax.1" <("$installed" options --man) || fault 'the installed manual page is not the program'"'"'s'
# Completion: commands, options, words of a choice.
completes() {
  local words
  words=$(bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _triax; echo "${COMPREPLY[@]}"' - \
    "$prefix/share/bash-completion/completions/triax" "${@:2}")
  [ "$words" = "$1" ] || fault "completion of '${*:2}' gives '$words', not '$1'"
}
completes 'train trace' triax tr
completes 'zb-h1 zb-h2 zb-v' triax train --pipeline-schedule zb
completes '--zero-stage' triax train --zero-st
completes '--sequence-parallel' triax train --sequence
# The module file names the prefix.
module=$(find "$prefix/share/modulefiles/triax" -type f)
grep -qx "set prefix $prefix" "$module" || fault 'the module file does not name the prefix'
grep -q '@' "$module" && fault 'the module file has a place left open'

[ $faults -eq 0 ] && echo 'ok: install'
exit $((faults > 0))
