#!/bin/sh
# target/dist/slackwater-VERSION-cp310-abi3-manylinux_2_28_MACHINE.whl: the Python package, its extension
# module, and the tree of build.sh.
set -eu
cd "$(dirname "$0")/.."
. packaging/settings.sh

# The project with what a build from source does not have. Its files must be in its folder.
project=target/dist/python
rm -rf "$project" target/dist/*.whl
mkdir -p "$project/data/data/share" "$project/data/data/lib"
cp python/slackwater/README.md "$project/"
cp -r python/slackwater/slackwater "$project/slackwater"
find "$project" -name __pycache__ -prune -exec rm -r {} +
cp target/dist/tree/share/doc/slackwater/* "$project/"
# Scripts go to the folder bin of an environment, and the rest to its folders lib and share.
mkdir "$project/data/scripts"
cp target/dist/tree/bin/slackwater-power "$project/data/scripts/"
cp -r target/dist/tree/lib/. "$project/data/data/lib/"
cp -r target/dist/tree/share/. "$project/data/data/share/"
rm -r "$project/data/data/share/doc"
sed 's|^manifest-path = "../../|&../|' python/slackwater/pyproject.toml > "$project/pyproject.toml"
cat >> "$project/pyproject.toml" << 'END_OF_TOML'
data = "data"
sbom = { rust = false, auditwheel = false, include = ["sbom.cdx.json"] }
END_OF_TOML

dist="$PWD/target/dist"
module() {
  (cd "$project" && "$PACKAGING/bin/maturin" build --profile "$PROFILE" \
    --interpreter "$PACKAGING/bin/python" --compatibility manylinux_2_28 \
    --auditwheel check --features "$FEATURES" --out "$1" -- $LINK)
}
# Twice the engine would be twice the size: the program of a wheel loads the module. It needs to know which.
module "$dist/python/first"
packaging/launcher.sh "$BUILT/lib_slackwater.so" "$project/data/scripts/slackwater"
rm -r "$dist/python/first"
module "$dist"
ls -l "$dist"/*.whl
