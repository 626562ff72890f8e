#!/bin/sh
# Compiles launcher.c for a module: packaging/launcher.sh _slackwater.abi3.so OUT
set -eu
cd "$(dirname "$0")/.."
. packaging/settings.sh
names=target/dist/python_names.c
nm --dynamic --undefined-only "$1" | sed -n 's/^ *U \(_\?Py[A-Za-z0-9_]*\)$/char \1[1];/p' > "$names"
[ -s "$names" ] || { echo "$1 names no symbol of Python: is it the module?"; exit 1; }
packaging/zig-cc -O2 -s -rdynamic "-DVERSION=\"$VERSION\"" -o "$2" packaging/launcher.c "$names" -ldl
