# What the scripts here have in common; they source it in the repository's root.

# librdkafka without TLS: OpenSSL would have to be the system's.
FEATURES=${FEATURES:-kafka,kafka-zstd,sqlite,postgres,parquet,s3,zookeeper}

# PROFILE=dev FEATURES=sqlite tries the packages out without an optimized build.
PROFILE=${PROFILE:-release}
BUILT=target/$PROFILE
[ "$PROFILE" != dev ] || BUILT=target/debug

PACKAGING="$PWD/target/packaging"
ZIG_PYTHON="$PACKAGING/bin/python"
export ZIG_PYTHON
LINK="-C linker=$PWD/packaging/zig-cc -C linker-features=-lld -C strip=symbols"

VERSION=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
MACHINE=$(uname -m)
# The time in packages: that of the commit, so that the same commit makes the same files. It is not exported
# as SOURCE_DATE_EPOCH, because C libraries would be built again for each commit, and all that uses them.
TIME=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
