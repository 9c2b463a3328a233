#!/usr/bin/env bash
# All headers of all layers in one translation unit: a name that two of them define in one namespace fails here. In
# translation units of their own it would pass, and the linker would keep either of the two.
# usage: one_definition.sh ROOT FLAGS-FILE COMPILER...
source "$(dirname "$0")/lib.sh"
flags=$2
shift 2
source=$(mktemp --suffix=.cpp)
trap 'rm -f "$source"' EXIT
product_files | grep -E "^(${layers// /|})/.*\.h$" | grep -v '/cuda/' | sed 's/.*/#include "&"/' >"$source"
"$@" -fsyntax-only -I"$root" "@$flags" "$source" || fault "the headers of all layers do not go together (above)"
finish "$(wc -l <"$source") headers in one translation unit"
