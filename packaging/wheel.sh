#!/bin/sh
# target/dist/slackwater-VERSION-cp310-abi3-manylinux_2_28_MACHINE.whl: the Python package, its extension
# module, and the tree of build.sh.
set -eu
cd "$(dirname "$0")/.."
. packaging/settings.sh

# The project with what a build from source does not have. Its files must be in its folder.
project=target/dist/python
rm -rf "$project" target/dist/*.whl
mkdir -p "$project/data/data/share"
cp python/slackwater/README.md "$project/"
cp -r python/slackwater/slackwater "$project/slackwater"
find "$project" -name __pycache__ -prune -exec rm -r {} +
cp target/dist/tree/share/doc/slackwater/* "$project/"
# Programs go to the folder bin of an environment, and the rest to its folder share.
cp -r target/dist/tree/bin "$project/data/scripts"
cp -r target/dist/tree/share/. "$project/data/data/share/"
rm -r "$project/data/data/share/doc"
sed 's|^manifest-path = "../../|&../|' python/slackwater/pyproject.toml > "$project/pyproject.toml"
cat >> "$project/pyproject.toml" << 'END_OF_TOML'
data = "data"
sbom = { rust = false, auditwheel = false, include = ["sbom.cdx.json"] }
END_OF_TOML

out="$PWD/target/dist"
cd "$project"
"$PACKAGING/bin/maturin" build --profile "$PROFILE" --interpreter "$PACKAGING/bin/python" \
  --compatibility manylinux_2_28 --auditwheel check --features "$FEATURES" --out "$out" -- $LINK
ls -l "$out"/*.whl
