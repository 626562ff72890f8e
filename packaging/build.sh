#!/bin/sh
# Builds what is published, into target/dist:
#
#   tree/bin/      slackwater, slackwater-power
#   tree/lib/      slackwater/libslackwater_sockets.so
#   tree/share/    manual pages, completions of shells; doc/slackwater: licenses, the SBOM
#
# The programs are release builds without symbols, linked for an old glibc: see zig-cc. All packages are made
# from this tree.
set -eu
cd "$(dirname "$0")/.."
. packaging/settings.sh
tree=target/dist/tree

# Arguments of `cargo rustc` reach the last step alone, so that what has been compiled for another linker is
# used again.
cargo rustc --profile "$PROFILE" -p slackwater --bin slackwater --features "$FEATURES" -- $LINK
cargo rustc --profile "$PROFILE" -p slackwater-power --bin slackwater-power -- $LINK
cargo rustc --profile "$PROFILE" -p slackwater-sockets --lib -- $LINK

rm -rf target/dist/tree
mkdir -p "$tree/bin" "$tree/lib/slackwater" "$tree/share/man/man1" "$tree/share/doc/slackwater"
cp "$BUILT/slackwater" "$BUILT/slackwater-power" "$tree/bin/"
cp "$BUILT/libslackwater_sockets.so" "$tree/lib/slackwater/"
slackwater="$tree/bin/slackwater"
"$slackwater" man "$tree/share/man/man1"
gzip -9n "$tree"/share/man/man1/*.1
completions() {
  mkdir -p "$tree/share/$2"
  "$slackwater" completions "$1" > "$tree/share/$2/$3"
}
completions bash bash-completion/completions slackwater
completions zsh zsh/vendor-completions _slackwater
completions fish fish/vendor_completions.d slackwater.fish
cp LICENSE "$tree/share/doc/slackwater/"
SOURCE_DATE_EPOCH=$TIME python3 -B packaging/sbom.py --features "$FEATURES" --out "$tree/share/doc/slackwater"
du -sh "$tree/bin"/*
