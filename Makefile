# Two commands do all the set-up: `make run` trains a real vocabulary, `make test` runs the tests.
# Needed beforehand: Python 3.11 or newer with its venv module, and a Rust toolchain (https://rustup.rs).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUST := $(shell find rust -name '*.rs' -not -path 'rust/target/*') rust/Cargo.toml rust/Cargo.lock
CARGO := cargo --quiet

.PHONY: run man test dist test-installed test-tokenizers-1 test-faults test-syscalls test-large test-cluster test-hosts \
	compose-test test-rust test-checked test-asan fuzz fuzz-files lint format docs bench bench-quick bench-micro \
	bench-rebalancing clean

# The package itself, built in place. The stamps keep a second `make` from doing any of it again.
$(VENV)/.tools: constraints.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt maturin
	@touch $@

$(VENV)/.built: $(VENV)/.tools $(RUST)
	@echo "building and installing the package (a few minutes the first time)"
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation --editable '.[verify]' django
	@touch $@

$(VENV)/.dev: $(VENV)/.built
	$(BIN)/python -m pip install --quiet -c constraints.txt --group dev
	@touch $@

corpus: $(VENV)/.built
	$(BIN)/python jobs/sample_corpus.py corpus.tmp
	rm -rf corpus && mv corpus.tmp corpus

run: corpus
	$(BIN)/dist-bpe train corpus --group-by lang --vocab-size 16000 -o run --overwrite

# A file stays on one process, so that its fixtures are made once; most of the time goes to waiting for Ray to start.
test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile

# Ten thousand simulated worlds, a crash at every step that touches the disk, nodes killed and frozen: minutes.
test-faults: $(VENV)/.dev
	$(BIN)/python -m pytest -m faults --ignore tests/run/test_syscalls.py

# Each call to the system of a small run fails, by strace: ten minutes; every one of them with SYSCALLS_EVERY=1.
test-syscalls: $(VENV)/.dev
	@command -v strace > /dev/null || { echo "strace is needed: apt-get install strace"; exit 1; }
	$(BIN)/python -m pytest -m faults tests/run/test_syscalls.py

# A row group of two gigabytes under one of memory, thousands of tiny files: minutes.
test-large: $(VENV)/.dev
	$(BIN)/python -m pytest -m large

# A cluster of network namespaces that share no disk, with an S3 store; one is cut off. Root and iproute2 are needed.
test-hosts: $(VENV)/.dev
	$(BIN)/python -m pytest -m hosts

# docker-compose.yml for real, on podman; tests/test_containers.py says what it needs. The image is built the first time.
compose-test: $(VENV)/.dev
	$(BIN)/python -m pytest -m containers

# Clusters of `ray start`: the Jobs API, metrics, an autoscaler; in an environment with `ray[default]`, and without this
# package, which has to travel as a wheel: minutes.
CLUSTER := .venv-cluster
test-cluster: $(VENV)/.dev
	rm -rf dist && $(BIN)/maturin build --quiet --release --out dist
	test $(CLUSTER)/.ready -nt pyproject.toml || { $(PYTHON) -m venv $(CLUSTER) && \
		$(CLUSTER)/bin/python -m pip install --quiet --upgrade pip && \
		$(CLUSTER)/bin/python -m pip install --quiet -c constraints.txt "$$(echo dist/*.whl)[verify,cluster,remote]" && \
		$(CLUSTER)/bin/python -m pip install --quiet -c constraints.txt --group cluster && \
		$(CLUSTER)/bin/python -m pip uninstall --quiet --yes dist_bpe && touch $(CLUSTER)/.ready; }
	cd tests && ../$(CLUSTER)/bin/python -m pytest -m cluster engine/test_cluster.py

# What is published, built here: a wheel for this machine and a source distribution.
dist: $(VENV)/.tools
	rm -rf dist
	$(BIN)/maturin build --quiet --release --locked --out dist
	$(BIN)/maturin sdist --out dist

# A wheel or source distribution as a user installs it, without this folder on the path; the release does it for each.
DISTRIBUTION ?= $(wildcard dist/*)
test-installed:
	for file in $(DISTRIBUTION); do \
		rm -rf build/installed && $(PYTHON) -m venv build/installed && \
		build/installed/bin/python -m pip install --quiet "$$file[verify]" pytest pytest-timeout hypothesis django && \
		(cd tests && ../build/installed/bin/python -m pytest cli/test_commands.py counting/test_table.py vocabulary/test_vocabulary.py test_releases.py) || exit 1; done

# Exports as the candidate of `tokenizers` 1.0 reads them, in an environment with it and with this package as a wheel:
# half a minute, and the build.
TOKENIZERS_1 := .venv-tokenizers-1
test-tokenizers-1: $(VENV)/.tools
	rm -rf build/tokenizers-1 && $(BIN)/maturin build --quiet --release --locked --out build/tokenizers-1
	$(PYTHON) -m venv $(TOKENIZERS_1)
	grep -v '^tokenizers==' constraints.txt > build/tokenizers-1/constraints.txt
	$(TOKENIZERS_1)/bin/python -m pip install --quiet --force-reinstall --no-deps build/tokenizers-1/*.whl
	$(TOKENIZERS_1)/bin/python -m pip install --quiet -c build/tokenizers-1/constraints.txt build/tokenizers-1/*.whl \
		tokenizers==1.0.0rc3 tiktoken pytest pytest-timeout hypothesis
	cd tests && ../$(TOKENIZERS_1)/bin/python -m pytest vocabulary/test_tokenizers.py

# The native core alone: its twins, properties and levels; no interpreter needed.
test-rust:
	# Optimised, but without link-time optimisation of a dozen test programs.
	cd rust && CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 $(CARGO) test --release

# The same with debug assertions and checks for overflow, which stop what would wrap around.
test-checked:
	cd rust && CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true \
		CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true $(CARGO) test --release --target-dir target/checked

# The same under AddressSanitizer, which stops a read or write outside what is allocated. Only a nightly compiler has it.
test-asan:
	@rustup toolchain list 2> /dev/null | grep -q ^nightly || \
		{ echo "a nightly compiler is needed: rustup toolchain install nightly --profile minimal"; exit 1; }
	cd rust && CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 RUSTFLAGS=-Zsanitizer=address \
		cargo +nightly test --quiet --release --lib --tests --target-dir target/asan \
		--target $$(rustc -vV | sed -n 's/^host: //p')

# The properties of the core (fast == slow twin: scanner, counter, special tokens, normaliser, merging, learner, encoder)
# with new random cases, round after round; a failure is shrunk and printed, and ends it.
FUZZ_SECONDS ?= 600
PROPERTIES := random_ short_sequences runs_of_numbers pieces_are normalised_ documents_are added_words merges_as \
	tiny_tables wide_weights long_words one_language both_ways replay_counts the_queue
fuzz:
	cd rust && end=$$(( $$(date +%s) + $(FUZZ_SECONDS) )) && while [ $$(date +%s) -lt $$end ]; do \
		CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 PROPTEST_CASES=5000 \
		$(CARGO) test --release --lib --tests -- $(PROPERTIES) || exit 1; done

# What is made from the options and commands, and published with the package.
man: $(VENV)/.built
	$(BIN)/python -m dist_bpe.cli.manual > dist_bpe.data/data/share/man/man1/dist-bpe.1
	$(BIN)/python -c "from dist_bpe.run.config import json_schema; from dist_bpe.storage.files import to_json; print(to_json(json_schema()).decode(), end='')" > docs/run.schema.json

# Damaged twins of every kind of file that is read: sources, lists of words, tables, mixtures, vocabularies; ten minutes for
# each of three files of tests, or FUZZ_SECONDS. A failure names its seed.
fuzz-files: $(VENV)/.dev
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(BIN)/python -m pytest -m fuzz --timeout 0 tests/corpus tests/counting tests/vocabulary

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/stubtest --mypy-config-file pyproject.toml dist_bpe._core
	$(BIN)/lint-imports --no-cache
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	cd rust && $(CARGO) fmt --check
	cd rust && $(CARGO) clippy --all-targets -- -D warnings
	cd rust && $(CARGO) clippy --features python -- -D warnings

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	cd rust && cargo fmt

# The documentation as a site, build/site/index.html: any warning ends it, and so does a page that would load a font, a
# script or a picture from another host. The package itself is not needed.
$(VENV)/.docs: $(VENV)/.tools
	$(BIN)/python -m pip install --quiet -c constraints.txt --group docs
	@touch $@

# Without --quiet, under which mkdocs counts no warnings and --strict lets them pass.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	! grep -rE --include='*.html' '<(script|link|img|iframe|source)[^>]* (src|href)="?(https?:)?//' build/site

$(VENV)/.bench: $(VENV)/.built
	$(BIN)/python -m pip install --quiet -c constraints.txt --group bench
	@touch $@

# Beside all peers: about seventeen minutes of a core that nothing else uses. BENCH="--peers gigatoken --rounds 5" and the like
# choose; benchmarks/bench.py --help lists more.
bench: $(VENV)/.bench
	$(BIN)/python benchmarks/bench.py $(BENCH)

bench-quick: $(VENV)/.bench
	$(BIN)/python benchmarks/bench.py --quick

# Each stage alone: the native core by criterion, the binding by pytest-benchmark.
bench-micro: $(VENV)/.bench $(VENV)/.dev
	cd rust && $(CARGO) bench
	$(BIN)/python -m pytest benchmarks/test_binding.py

# What mixtures cost each of 26 languages: half an hour. Twice that and more with the slow peer: --methods ''.
bench-rebalancing: $(VENV)/.bench
	$(BIN)/python benchmarks/parallel.py benchmarks/.work/parallel
	$(BIN)/python benchmarks/rebalancing.py benchmarks/.work/parallel

clean:
	rm -rf $(VENV) $(CLUSTER) $(TOKENIZERS_1) rust/target build dist corpus corpus.tmp run dist_bpe/*.so
