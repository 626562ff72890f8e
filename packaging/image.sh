#!/bin/sh
# An image of containers from the tarball in target/dist: ENGINE is podman, docker or buildah, IMAGE its name.
set -eu
cd "$(dirname "$0")/.."
. packaging/settings.sh
engine=${ENGINE:-$(command -v podman || command -v docker || command -v buildah || true)}
[ -n "$engine" ] || { echo "podman and docker are missing: apt-get install podman"; exit 1; }
tarball="slackwater-$VERSION-$MACHINE-linux.tar.gz"
[ -f "target/dist/$tarball" ] || { echo "target/dist/$tarball is missing: make tarball"; exit 1; }
# A context of its own: docker copies all of target/dist to its server otherwise.
context=target/dist/image
rm -rf "$context"
mkdir "$context"
ln "target/dist/$tarball" "$context/"
"$engine" build --file packaging/Containerfile --build-arg "TARBALL=$tarball" \
  --label "org.opencontainers.image.version=$VERSION" --tag "${IMAGE:-slackwater}" "$context"
rm -rf "$context"
