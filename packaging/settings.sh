# What the scripts here have in common; they source it in the repository's root.

# librdkafka without TLS: OpenSSL would have to be the system's.
FEATURES=kafka,kafka-zstd,sqlite,postgres,parquet,s3,zookeeper

PACKAGING="$PWD/target/packaging"
ZIG_PYTHON="$PACKAGING/bin/python"
export ZIG_PYTHON
LINK="-C linker=$PWD/packaging/zig-cc -C linker-features=-lld -C strip=symbols"

VERSION=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
MACHINE=$(uname -m)
# Times in packages: those of the commit, so that the same commit makes the same files.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
