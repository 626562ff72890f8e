#!/bin/sh
# target/dist/slackwater-VERSION-MACHINE-linux.tar.gz: the tree of build.sh, to be unpacked into /usr/local.
set -eu
cd "$(dirname "$0")/.."
. packaging/settings.sh
name="slackwater-$VERSION-$MACHINE-linux"
tar --create --directory target/dist/tree --transform "s|^\.|$name|" --sort=name --owner=0 --group=0 \
  --numeric-owner --mtime="@$TIME" . | gzip -9n > "target/dist/$name.tar.gz"
ls -l "target/dist/$name.tar.gz"
