# `make` or `make help` lists the targets. Every target does its own set-up: it names what is missing, installs it
# and continues. Pass arguments with ARGS: make run ARGS='--size small --path plain,tls1.3-p256'

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# Stages depend on each other and measure time, so they never run in parallel.
.NOTPARALLEL:
.PHONY: help run setup dist book test test-full test-dist bench bench-links bench-pools bench-failover bench-shares bench-documents bench-observe bench-scale-out truth compare-truth predict-truth faults soak deny peers tde-proof bench-tde

# rustup's default directory, for a shell that was opened before rustup was installed.
export PATH := $(PATH):$(HOME)/.cargo/bin

ARGS ?=
TARGET := $(or $(CARGO_TARGET_DIR),target)
WITH := scripts/with-toolchain
CARGO := $(WITH) cargo
STAGE := scripts/stage
# `make test` builds once, with the features that the whole workspace asks for, and starts programs directly: `cargo run` and
# `cargo build -p` ask for fewer features, with which most crates would be built again.

help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | column -t -s '|' 2>/dev/null \
		|| sed -nE 's/^([a-z-]+):.*## (.*)/  make \1    \2/p' $(firstword $(MAKEFILE_LIST))

run: ## build the release and run `ciphertoll run` with ARGS='…'
	@scripts/setup run
	@$(CARGO) build --release --locked -p ciphertoll-cli -p ciphertoll-proxy -p ciphertoll-tde-preload
	@$(TARGET)/release/ciphertoll run $(ARGS)

ARCHITECTURES ?= $(if $(filter aarch64,$(shell uname -m)),arm64,amd64)

dist: ## build packages, tarball and bills of materials into dist/ (ARCHITECTURES='amd64 arm64')
	@scripts/setup dist
	@scripts/dist dist $(TARGET)/dist $(ARCHITECTURES)

book: ## build the documentation as a site into target/book/site
	@scripts/setup run
	@scripts/fetch-mdbook $(TARGET)/book
	@$(CARGO) build --locked -p ciphertoll-cli -p ciphertoll-proxy
	@scripts/book $(TARGET)/book $(TARGET)/book/bin/mdbook $(TARGET)/debug/ciphertoll $(TARGET)/debug/ciphertoll-proxy

setup: ## install everything needed to build, run and test
	@scripts/setup test

# Programs that tests need and that Debian 12 does not have. What comes from Debian sid, which changes from day to day, is
# for `make test-full` only (scripts/test-sid).
FETCHED := postgres-18 ferretdb mariadb-11.8 debian-13:postgres-17 openssl-3.5

test: ## check format and lints, run all tests; prints the seconds of each stage (ARGS='cli::faults' runs only tests with this in their name)
	@$(STAGE) setup scripts/setup test
	@$(STAGE) fmt $(CARGO) fmt --all --check
	@$(STAGE) shell scripts/check-shell
	@$(STAGE) clippy $(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	@$(STAGE) fuzz-lock $(CARGO) fetch --quiet --locked --manifest-path checks/fuzz/Cargo.toml
	@$(STAGE) peers scripts/build-peers $(TARGET)/peers
	@$(STAGE) build $(CARGO) test --quiet --workspace --locked --no-run
	@$(STAGE) servers scripts/fetch-servers '$(FETCHED)' $(TARGET)/debug/ciphertoll
	@$(STAGE) drivers scripts/fetch-drivers $(TARGET)/drivers
	@$(STAGE) test $(WITH) $(TARGET)/debug/ciphertoll-test-runner $(ARGS)
	@$(STAGE) doctest $(CARGO) test --quiet --workspace --locked --doc

test-dist: ## build the packages twice, compare the bytes, and use them in clean roots of Debian 12 and 13 (needs root); then the CI scripts, images and manifests
	@scripts/setup full
	@scripts/dist dist $(TARGET)/dist $(ARCHITECTURES)
	@$(STAGE) test-packages scripts/test-dist dist $(TARGET)/dist
	@$(STAGE) test-ci scripts/test-ci dist $(TARGET)/ci
	@$(STAGE) test-deploy scripts/test-deploy dist $(TARGET)/deploy

test-full: test ## make test, make book, make test-dist, the documentation, servers and proxies of Debian sid, Oracle's MySQL (fetches 554 MB), captures compared with tshark, containers that observe names and savings that it predicts, PostgreSQL's suite under page encryption, the suites of drivers for Go, SQLAlchemy, Django, PHP and JDBC through the sidecar, its alerts, its console with pgbouncer_exporter, load hosts on Kubernetes, libFuzzer, make deny
	@$(STAGE) setup-full scripts/setup full
	@RUSTDOCFLAGS="-D warnings" $(STAGE) doc $(CARGO) doc --workspace --no-deps --document-private-items --locked
	@$(STAGE) test-sid scripts/test-sid $(CARGO)
	@$(STAGE) test-mysql scripts/test-mysql $(CARGO)
	@$(STAGE) test-tshark scripts/test-tshark $(CARGO)
	@$(STAGE) test-tokens scripts/test-tokens $(CARGO)
	@$(STAGE) test-tde scripts/test-tde $(TARGET) $(CARGO)
	@$(STAGE) test-observe-podman scripts/test-observe-podman $(TARGET)/debug/ciphertoll
	@$(CARGO) build --release --locked -p ciphertoll-cli -p ciphertoll-proxy
	@$(STAGE) test-observe-circle scripts/test-observe-circle $(TARGET)/release/ciphertoll
	@$(STAGE) test-go scripts/test-drivers-go $(TARGET)/go-suites $(TARGET)/release/ciphertoll-proxy
	@$(STAGE) test-sqlalchemy scripts/test-drivers-sqlalchemy $(TARGET)/sqlalchemy $(TARGET)/release/ciphertoll-proxy
	@$(STAGE) test-django scripts/test-drivers-django $(TARGET)/django $(TARGET)/release/ciphertoll-proxy
	@$(STAGE) test-php scripts/test-drivers-php $(TARGET)/php $(TARGET)/release/ciphertoll-proxy
	@$(STAGE) test-jdbc scripts/test-drivers-jdbc $(TARGET)/jdbc $(TARGET)/release/ciphertoll-proxy
	@$(STAGE) test-alerts scripts/test-alerts $(TARGET)/release/ciphertoll-proxy
	@$(STAGE) test-console scripts/test-console $(TARGET)/console $(TARGET)/release/ciphertoll-proxy
	@$(STAGE) test-kubernetes scripts/test-kubernetes $(TARGET)/kubernetes $(TARGET) $(CARGO)
	@$(STAGE) fuzz $(WITH) scripts/fuzz-smoke 60
	@$(STAGE) book $(MAKE) --no-print-directory book
	@$(STAGE) test-dist $(MAKE) --no-print-directory test-dist
	@$(STAGE) deny scripts/deny

bench: ## compare ciphertoll with sysbench, libmariadb and a bare loop; then bench-pools, bench-documents, bench-tde
	@scripts/setup bench
	@scripts/build-peers $(TARGET)/peers
	@$(CARGO) build --release --locked -p ciphertoll-cli -p ciphertoll-bench
	@$(TARGET)/release/ciphertoll-peers $(ARGS)
	@$(MAKE) --no-print-directory bench-pools
	@$(MAKE) --no-print-directory bench-documents
	@$(MAKE) --no-print-directory bench-tde

bench-links: ## measure emulated links: accuracy, throughput, CPU cost (ARGS='--by tun')
	@scripts/setup bench
	@$(CARGO) build --release --locked -p ciphertoll-cli -p ciphertoll-bench
	@$(TARGET)/release/ciphertoll-links $(ARGS)

bench-pools: ## compare the sidecar with PgBouncer, Odyssey, ProxySQL, MySQL Router, no proxy and the cheapest possible relays (ARGS='--only connect', '--baseline ../other/target/dist')
	@scripts/setup bench
	@scripts/build-peers $(TARGET)/peers
	@scripts/build-pgbouncer $(TARGET)/pgbouncer
	@$(CARGO) build --profile dist --locked -p ciphertoll-cli -p ciphertoll-proxy -p ciphertoll-bench
	@PATH="$(abspath $(TARGET))/pgbouncer:$$PATH" $(TARGET)/dist/ciphertoll-pools $(ARGS)

bench-failover: ## compare failovers of PostgreSQL through the sidecar, by libpq with several hosts, and through PgBouncer: when clients write again
	@scripts/setup test
	@$(CARGO) test --release --quiet --locked -p ciphertoll-proxy --test proxy -- --ignored "bench-failover"

bench-shares: ## measure the p99 of one user's queries through the sidecar, alone and while another user floods the pool
	@scripts/setup test
	@$(CARGO) test --release --quiet --locked -p ciphertoll-proxy --test proxy -- --ignored "bench-shares"

bench-documents: ## compare loading and find-one on FerretDB with pymongo and go-ycsb (ARGS='--only load')
	@scripts/setup bench
	@scripts/build-go-ycsb $(TARGET)/go-ycsb
	@$(CARGO) build --release --locked -p ciphertoll-cli -p ciphertoll-bench
	@PATH="$(abspath $(TARGET))/go-ycsb:$$PATH" $(TARGET)/release/ciphertoll-documents $(ARGS)

bench-observe: ## measure the CPU time of `ciphertoll observe`, compared with a loop that only counts packets (needs root; ARGS='--connects 5000')
	@scripts/setup bench
	@$(CARGO) build --release --locked -p ciphertoll-cli -p ciphertoll-bench
	@$(TARGET)/release/ciphertoll-observe-cost $(ARGS)

bench-scale-out: ## simulate 1,000 load hosts: the coordinator's CPU and memory per trial (ARGS='--hosts 100')
	@scripts/setup bench
	@$(CARGO) build --release --locked -p ciphertoll-bench
	@$(TARGET)/release/ciphertoll-scale-out $(ARGS)

# Use an idle machine: the differences are a few per cent.
BENCH_TDE := run --server postgres --path plain --at-rest none,tde,tde+cipher=null,gocryptfs --clients 2 --blocks 30 --trial-time 250ms --pin auto $(ARGS)

bench-tde: ## measure page encryption: the cost per page, and the CPU cost per transaction
	@scripts/setup bench
	@$(CARGO) run --profile dist --locked -p ciphertoll-tde --example crossing
	@$(CARGO) build --profile dist --locked -p ciphertoll-cli -p ciphertoll-tde-preload
	@echo "Read cached rows; goal: the server's CPU under tde within 2 %"
	@$(TARGET)/dist/ciphertoll $(BENCH_TDE) --workload select-only --scale 100000
	@echo "Read rows that are mostly not cached; goal: at most 1.08 times the CPU"
	@$(TARGET)/dist/ciphertoll $(BENCH_TDE) --workload select-only --scale 800000 --set postgres.shared_buffers=16MB
	@echo "Write rows; goal: at most 1.03 times the CPU"
	@$(TARGET)/dist/ciphertoll $(BENCH_TDE) --workload tpcb-like --scale 100000

tde-proof: ## test page encryption on every installed PostgreSQL, and on 14, 16, 17 and 18, which it fetches; names each
	@scripts/setup test
	@scripts/fetch-servers 'postgres-14 postgres-16 postgres-17 postgres-18 debian-sid:postgres-18' $(CARGO) run --quiet --locked -p ciphertoll-cli --
	@CIPHERTOLL_TDE_VERSIONS=all $(CARGO) test --locked -p ciphertoll-tde -p ciphertoll-tde-preload $(ARGS) -- --nocapture

truth: ## measure known answers: plain against plain, and injected slowdowns (ARGS='--at-rest none,gocryptfs' compares two drivers on encrypted files)
	@scripts/setup bench
	@$(CARGO) build --release --locked -p ciphertoll-cli -p ciphertoll-bench
	@$(TARGET)/release/ciphertoll-truth $(ARGS)

compare-truth: ## check `ciphertoll compare` with identical runs and with an injected slowdown of 5 % (ARGS='--pairs 5')
	@scripts/setup bench
	@$(CARGO) build --release --locked -p ciphertoll-cli -p ciphertoll-bench
	@$(TARGET)/release/ciphertoll-compare-truth $(ARGS)

predict-truth: ## predict situations that a calibration did not contain, then measure them (ARGS='--server postgres'); about 40 minutes
	@scripts/setup bench
	@$(CARGO) build --release --locked -p ciphertoll-cli -p ciphertoll-proxy -p ciphertoll-bench
	@$(TARGET)/release/ciphertoll-predictions $(ARGS)

faults: ## hit each process of a run with each fault: what it says, whether `resume` completes it, what is left (ARGS='--only sidecar'); about 30 minutes
	@scripts/setup bench
	@scripts/build-peers $(TARGET)/peers
	@$(CARGO) build --release --locked -p ciphertoll-cli -p ciphertoll-proxy -p ciphertoll-bench
	@$(TARGET)/release/ciphertoll-faults $(ARGS)

soak: ## run the sidecar under churn, reloads, kills, restarts, 5,000 clients and an upgrade (ARGS='--minutes 30')
	@scripts/setup bench
	@$(CARGO) build --release --locked -p ciphertoll-cli -p ciphertoll-proxy -p ciphertoll-bench
	@$(TARGET)/release/ciphertoll-soak $(ARGS)

deny: ## check dependencies: licences, bans, sources and, if reachable, advisories
	@scripts/deny

peers: ## compile the C peers of make bench into target/peers
	@scripts/setup bench
	@scripts/build-peers $(TARGET)/peers
