# Developer entry points. `make` lists them.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# Number of simulated clusters that `make sim` runs: half of them the same each time, half drawn from the commit.
SEEDS ?= 200
COMMIT_SEED := $(shell printf '%d' "0x$$(git rev-parse --short=8 HEAD 2>/dev/null || echo 0)")
# A trace that the demo replays where it is present; its published distribution elsewhere.
PHILLY_TRACE ?= ../shared/data/traces/philly_jobs.csv.gz
# How often `make chaos` makes each fault.
CHAOS_REPETITIONS ?= 9
# Simulated clusters of `make chaos`, ten minutes each: three quarters of an hour of two cores.
CHAOS_SEEDS ?= 500
# A program of another build: `make chaos PREVIOUS=FILE` upgrades from it as well.
PREVIOUS ?=
# How long `make fuzz` takes, beside the build.
FUZZ_MINUTES ?= 60
# What `make image` builds with.
IMAGE_ENGINE ?= podman
# Further arguments: `make demo ARGS=--keep`.
ARGS ?=

TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/muster
NEXTEST := $(CACHE)/tools/bin/cargo-nextest nextest
# End-to-end tests, the demo and the benchmarks start the built programs through these.
export MUSTER_BIN := $(TARGET)/debug/muster
export MUSTER_TRAINER_BIN := $(TARGET)/debug/muster-trainer

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: build ## a cluster of 3 replicas and 4 workers trains a model while leader, agent, host and GPU die
	$(MUSTER_BIN) demo $(if $(wildcard $(PHILLY_TRACE)),--trace $(PHILLY_TRACE)) $(ARGS)

.PHONY: dev
dev: build ## leave such a cluster running to play with (Ctrl-C stops it)
	$(MUSTER_BIN) dev $(ARGS)

.PHONY: build
build: bootstrap ## build muster, its supervisor and the example trainer, for development
# Whole workspace and examples: cargo then resolves the same features as for the tests, which share everything that this compiles
# (docs/adr/0058-one-build-for-programs-and-tests.md; `cargo xtask tidy` checks it).
	cargo build --locked --workspace --bins --examples

.PHONY: release
release: bootstrap ## build what users install: optimised, without debug assertions, stripped, into target/dist
	cargo build --locked --profile release -p muster-cli -p muster-supervisor -p muster-gpu-check
	tools/scripts/strip-programs $(TARGET)/release $(TARGET)/dist

.PHONY: client
client: bootstrap ## build the client alone, without RocksDB, replicas and workers, into target/client
	cargo build --locked --profile release -p muster-cli --no-default-features --target-dir $(TARGET)/client

.PHONY: test
test: build bootstrap-test ## what CI tests: unit, golden, property and end-to-end tests, then the simulation
	$(NEXTEST) run --locked --workspace
	cargo test --locked --workspace --doc
	$(MAKE) --no-print-directory sim ARGS=--skip-mutants

.PHONY: soak
soak: build bootstrap-test ## all tests, those that CI samples or leaves out among them: trials, chaos runs, known bugs; then the release
	$(NEXTEST) run --locked --workspace --profile soak
	cargo test --locked --workspace --doc
	$(MAKE) --no-print-directory sim ARGS=--skip-mutants
	$(MAKE) --no-print-directory deployment-release

.PHONY: sim
sim: build ## simulate SEEDS clusters with faults; a failure prints the one command that replays it
	$(MUSTER_BIN) chaos sim --seeds $(SEEDS) --second-half $(COMMIT_SEED) $(ARGS)

.PHONY: trials
trials: build ## a training under one fault at a time, on hosts with a network each; what each costs (ARGS='--trial NAME')
	$(MUSTER_BIN) chaos tasks $(ARGS)

.PHONY: chaos
chaos: build ## some 75 minutes of two cores: a cluster under load and every fault, CHAOS_REPETITIONS times each; then CHAOS_SEEDS simulated clusters
	$(MUSTER_BIN) chaos run --profile all --repetitions $(CHAOS_REPETITIONS) --out chaos-report/all $(ARGS)
	$(MUSTER_BIN) chaos run --profile snapshot-storm --repetitions $(CHAOS_REPETITIONS) --out chaos-report/snapshots $(ARGS)
	$(MUSTER_BIN) chaos run --profile wipe-and-rejoin --repetitions $(CHAOS_REPETITIONS) --out chaos-report/wiped $(ARGS)
	$(MUSTER_BIN) chaos run --profile membership --repetitions $(CHAOS_REPETITIONS) --out chaos-report/members $(ARGS)
	$(if $(PREVIOUS),for run in $$(seq $(CHAOS_REPETITIONS)); do \
		$(MUSTER_BIN) chaos run --profile upgrade --previous $(PREVIOUS) --seed $$run --out chaos-report/upgrade-$$run $(ARGS) || exit; done)
	$(MUSTER_BIN) chaos sim --seeds $(CHAOS_SEEDS) --faults-seconds 240 --skip-mutants

.PHONY: bench
bench: bootstrap ## measure the figures of docs/benchmarks.md with the release build (ARGS='--quick', ARGS=submit)
	cargo build --locked --profile release -p muster-cli -p muster-supervisor -p muster-bench
	MUSTER_BIN=$(TARGET)/release/muster $(TARGET)/release/muster-bench $(ARGS)

.PHONY: evaluation
evaluation: ## draw up docs/evaluation.md and its pictures again from the traces (ARGS=--check: fail if they differ)
# By itself: the simulator needs nothing of what the replicas store.
	cargo run --locked -p muster-simulate --example evaluation -- --traces $(dir $(PHILLY_TRACE)) $(ARGS)

.PHONY: fuzz
fuzz: bootstrap ## feed every decoder anything for FUZZ_MINUTES (ARGS=TARGET: that one alone)
	tools/scripts/fuzz --minutes $(FUZZ_MINUTES) $(ARGS)

.PHONY: deb
deb: release ## build the Debian package of the release into target/package
	rm -rf $(TARGET)/package
	tools/scripts/package-deb $(TARGET)/dist $(TARGET)/package

.PHONY: image
image: deb ## build the container image localhost/muster out of the package (IMAGE_ENGINE=docker: not by podman)
	$(IMAGE_ENGINE) build --file deploy/container/Containerfile --tag localhost/muster:latest $(TARGET)/package

.PHONY: deployment
deployment: build bootstrap-deployment ## check units, package, compose file, chart and manifests by their own tools
	tools/scripts/check-deploy $(TARGET)/debug

.PHONY: deployment-release
deployment-release: release bootstrap-deployment ## the same with the release
	tools/scripts/check-deploy $(TARGET)/dist

.PHONY: fmt
fmt: ## format the code
	cargo fmt --all
	cargo fmt --manifest-path tools/fuzz/cargo-fuzz/Cargo.toml

.PHONY: lint
lint: bootstrap ## format check, clippy and the house rules
	cargo fmt --all --check
	cargo fmt --manifest-path tools/fuzz/cargo-fuzz/Cargo.toml --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo xtask tidy

.PHONY: ci
ci: ## exactly what CI runs
	bash .ci/run

.PHONY: bootstrap
bootstrap: ## install or name what the build needs
	@tools/scripts/bootstrap

.PHONY: bootstrap-test bootstrap-deployment
bootstrap-test bootstrap-deployment: bootstrap-%:
	@tools/scripts/bootstrap --$*

.PHONY: clean
clean: ## remove what the build made
	cargo clean
