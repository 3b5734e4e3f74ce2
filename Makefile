# `make` or `make help` lists the targets. Every target does its own set-up: it names what is missing, installs it
# and goes on. Pass arguments through ARGS: make run ARGS='--size small --path plain,tls1.3-p256'

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# Stages build on one another and measure time: never side by side.
.NOTPARALLEL:
.PHONY: help run setup test test-full bench bench-links bench-pools bench-documents truth compare-truth deny peers tde-proof bench-tde

# rustup's default place, for a shell that was opened before rustup was installed.
export PATH := $(PATH):$(HOME)/.cargo/bin

ARGS ?=
TARGET := $(or $(CARGO_TARGET_DIR),target)
WITH := scripts/with-toolchain
CARGO := $(WITH) cargo
STAGE := scripts/stage

help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | column -t -s '|' 2>/dev/null \
		|| sed -nE 's/^([a-z-]+):.*## (.*)/  make \1    \2/p' $(firstword $(MAKEFILE_LIST))

run: ## build the release and run `ciphertoll run` (ARGS='…' is passed on)
	@scripts/setup run
	@$(CARGO) build --release --locked -p ciphertoll-cli -p ciphertoll-proxy -p ciphertoll-tde-preload
	@$(TARGET)/release/ciphertoll run $(ARGS)

setup: ## install what building, running and testing need
	@scripts/setup test

test: ## format, lints, all tests and a short fuzz run; each stage prints its seconds
	@$(STAGE) setup scripts/setup test
	@$(STAGE) fmt $(CARGO) fmt --all --check
	@$(STAGE) clippy $(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	@$(STAGE) peers scripts/build-peers $(TARGET)/peers
	@$(STAGE) servers scripts/fetch-servers 'postgres-18 ferretdb' $(CARGO)
	@$(STAGE) drivers scripts/fetch-drivers $(TARGET)/drivers
	@$(STAGE) test $(CARGO) test --workspace --locked --no-fail-fast
	@$(STAGE) fuzz $(WITH) scripts/fuzz-smoke 4

test-full: test ## make test, the documentation, the tests marked as long, those on Oracle's MySQL (fetches 554 MB), PostgreSQL's own suite under page encryption, pgx's own suite through the sidecar, a longer fuzz run, make deny
	@$(STAGE) setup-full scripts/setup full
	@RUSTDOCFLAGS="-D warnings" $(STAGE) doc $(CARGO) doc --workspace --no-deps --document-private-items --locked
	@$(STAGE) test-mysql scripts/test-mysql $(CARGO)
	@$(STAGE) test-tde scripts/test-tde $(TARGET) $(CARGO)
	@$(CARGO) build --release --locked -p ciphertoll-proxy
	@$(STAGE) test-pgx scripts/test-drivers-pgx $(TARGET)/pgx $(TARGET)/release/ciphertoll-proxy
	@$(STAGE) test-long $(CARGO) test --workspace --locked -- --ignored
	@$(STAGE) fuzz-long $(WITH) scripts/fuzz-smoke 60
	@$(STAGE) deny scripts/deny

bench: ## measure ciphertoll beside its peers: sysbench, libmariadb, the bare-loop floor; then bench-pools, bench-documents, bench-tde
	@scripts/setup bench
	@scripts/build-peers $(TARGET)/peers
	@$(CARGO) build --release --locked -p ciphertoll-cli -p ciphertoll-bench
	@$(TARGET)/release/ciphertoll-peers $(ARGS)
	@$(MAKE) --no-print-directory bench-pools
	@$(MAKE) --no-print-directory bench-documents
	@$(MAKE) --no-print-directory bench-tde

bench-links: ## measure long links: how exact, how fast, at what cost (ARGS='--by tun')
	@scripts/setup bench
	@$(CARGO) build --release --locked -p ciphertoll-cli -p ciphertoll-bench
	@$(TARGET)/release/ciphertoll-links $(ARGS)

bench-pools: ## measure the sidecar beside PgBouncer, ProxySQL and no proxy (ARGS='--only connect')
	@scripts/setup bench
	@scripts/build-peers $(TARGET)/peers
	@scripts/build-pgbouncer $(TARGET)/pgbouncer
	@$(CARGO) build --release --locked -p ciphertoll-cli -p ciphertoll-proxy -p ciphertoll-bench
	@PATH="$(abspath $(TARGET))/pgbouncer:$$PATH" $(TARGET)/release/ciphertoll-pools $(ARGS)

bench-documents: ## measure loading and find-one on FerretDB beside pymongo and go-ycsb (ARGS='--only load')
	@scripts/setup bench
	@scripts/build-go-ycsb $(TARGET)/go-ycsb
	@$(CARGO) build --release --locked -p ciphertoll-cli -p ciphertoll-bench
	@PATH="$(abspath $(TARGET))/go-ycsb:$$PATH" $(TARGET)/release/ciphertoll-documents $(ARGS)

# Each on a machine that does nothing else: what is compared are a few per cent.
BENCH_TDE := run --server postgres --path plain --at-rest none,tde,tde+cipher=null,gocryptfs --clients 2 --blocks 30 --trial-time 250ms --pin auto $(ARGS)

bench-tde: ## measure page encryption: what a page pays on its way to the system, what a transaction pays in CPU
	@scripts/setup bench
	@$(CARGO) run --release --locked -p ciphertoll-tde --example crossing
	@$(CARGO) build --release --locked -p ciphertoll-cli -p ciphertoll-tde-preload
	@echo "Rows that are cached, read; goal: the server's CPU under tde within 2 %"
	@$(TARGET)/release/ciphertoll $(BENCH_TDE) --workload select-only --scale 100000
	@echo "Rows that mostly are not; goal: at most 1.08 times the CPU"
	@$(TARGET)/release/ciphertoll $(BENCH_TDE) --workload select-only --scale 800000 --set postgres.shared_buffers=16MB
	@echo "Rows written; goal: at most 1.03 times the CPU"
	@$(TARGET)/release/ciphertoll $(BENCH_TDE) --workload tpcb-like --scale 100000

tde-proof: ## prove page encryption on every PostgreSQL of this machine, and on 14, 16, 17 and 18 fetched (60 MB); say on which
	@scripts/setup test
	@scripts/fetch-servers 'postgres-14 postgres-16 postgres-17 postgres-18' $(CARGO)
	@$(CARGO) test --locked -p ciphertoll-tde -p ciphertoll-tde-preload $(ARGS) -- --nocapture

truth: ## check known answers: the null experiment and the injected delay (ARGS='--at-rest none,gocryptfs': encrypted files by two drivers)
	@scripts/setup bench
	@$(CARGO) build --release --locked -p ciphertoll-cli -p ciphertoll-bench
	@$(TARGET)/release/ciphertoll-truth $(ARGS)

compare-truth: ## check `ciphertoll compare`: pairs of equal runs, and a planted slowdown of 5 % (ARGS='--pairs 5')
	@scripts/setup bench
	@$(CARGO) build --release --locked -p ciphertoll-cli -p ciphertoll-bench
	@$(TARGET)/release/ciphertoll-compare-truth $(ARGS)

deny: ## check dependencies: licences, bans, sources and, where reachable, advisories
	@scripts/deny

peers: ## compile the C peers of make bench into target/peers
	@scripts/setup bench
	@scripts/build-peers $(TARGET)/peers
