// Compiled by nobody: carries the include paths of a layer for headers.sh.
