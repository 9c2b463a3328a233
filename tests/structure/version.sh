#!/usr/bin/env bash
# project(VERSION), CITATION.cff and the newest section of CHANGELOG.md name one SemVer version.
source "$(dirname "$0")/lib.sh"
project=$(sed -n 's/^project(triax VERSION \([^ ]*\).*/\1/p' CMakeLists.txt)
[[ $project =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fault "CMakeLists.txt: project(VERSION) '$project' is not MAJOR.MINOR.PATCH"
cited=$(sed -n 's/^version: *//p' CITATION.cff)
[ "$cited" = "$project" ] || fault "CITATION.cff: version $cited, project(VERSION) is $project"
newest=$(sed -n '/^## [0-9]/ { s/^## \([0-9][^ ]*\).*/\1/p; q; }' CHANGELOG.md)
[ "$newest" = "$project" ] || fault "CHANGELOG.md: newest section is $newest, project(VERSION) is $project"
finish "version $project"
