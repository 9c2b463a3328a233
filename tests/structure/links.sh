#!/usr/bin/env bash
# Relative links in README.md and docs/*.md lead to files, their #anchors to headings, and every path of the README's
# "where is ..." table exists.
source "$(dirname "$0")/lib.sh"

# The anchors of a page: headings in lower case, punctuation dropped, blanks as hyphens.
anchors() {
  awk '/^```/ { code = !code } !code && /^#+ / { sub(/^#+ +/, ""); print tolower($0) }' "$1" |
    sed -e 's/[^a-z0-9 _-]//g' -e 's/ /-/g'
}

for page in README.md CHANGELOG.md $(find docs -name '*.md' | sort); do
  [ -f "$page" ] || continue
  while read -r link; do
    case $link in *://* | mailto:*) continue ;; esac
    path=${link%%#*}
    target=$page
    [ -z "$path" ] || target=$(dirname "$page")/$path
    if [ ! -e "$target" ]; then
      fault "$page: link to '$link': no such file"
    elif [ "$link" != "$path" ] && [ -f "$target" ] && ! grep -qxF -- "${link#*#}" <<<"$(anchors "$target")"; then
      fault "$page: link to '$link': no such heading"
    fi
  done < <(awk '/^```/ { code = !code } !code' "$page" | sed 's/`[^`]*`//g' | grep -oE '\]\([^) ]+\)' | sed -e 's/^](//' -e 's/)$//' || true)
done

rows=0
while read -r path; do
  rows=$((rows + 1))
  [ -e "$path" ] || fault "README.md: the 'where is' table names $path, which does not exist"
done < <(awk '/^## Where is/ { on = 1; next } /^## / { on = 0 } on && /^\|/' README.md | grep -oE '`[^`]+`' | tr -d '`' || true)
[ "$rows" -ge 20 ] || fault "README.md: the 'where is' table names $rows paths, expected 20 or more"
finish "links resolve, $rows paths of the README's table exist"
