# The menu of everyday commands. Each is an ordinary cargo command; `just` itself is never needed.

# This menu.
default:
    @just --list --unsorted

# Build everything.
build:
    cargo build --workspace --all-targets

# Run all tests.
test *ARGS:
    cargo test --workspace {{ ARGS }}

# Format check, lints, documentation: all without a warning.
lint:
    cargo fmt --check
    cargo clippy --workspace --all-targets -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# Format the code.
fmt:
    cargo fmt

# Simulate fresh seeds for a while, with costly assertions.
sim SECONDS="60":
    SIM_SECONDS={{ SECONDS }} cargo test -p gannet-store --features invariants --test simulation -- --nocapture

# Replay one seed of the simulation.
replay SEED:
    SIM_SEED={{ SEED }} cargo test -p gannet-store --features invariants --test simulation -- --nocapture

# Torture the server: kills, runs that are cut off from power.
torture ROUNDS="200" RUNS="8" *ARGS:
    cargo build --release -p gannet
    TORTURE_BINARY=$(realpath target/release/gannet) TORTURE_ROUNDS={{ ROUNDS }} TORTURE_RUNS={{ RUNS }} TORTURE_CUTS=24 \
        cargo test -p gannet --test torture {{ ARGS }} -- --nocapture --test-threads 1

# Random transactions on a server that is killed so many times a round, judged by the checker of isolation.
isolation SECONDS="60" KILLS="3":
    cargo build --release -p gannet
    mkdir -p target/isolation
    cargo run -p gannet-lab -- isolation run --serve target/release/gannet --dir target/isolation --kills {{ KILLS }} --replace --seconds {{ SECONDS }}

# Fuzz a target for a while: page, change, record, files; with FEATURES sql: row, key, value, copy, catalog; with server: message.
fuzz TARGET SECONDS="60" FEATURES="":
    cd fuzz && cargo +nightly fuzz run --features "{{ FEATURES }}" {{ TARGET }} -- -max_total_time={{ SECONDS }} -timeout=10

# Codecs and nodes under miri.
miri:
    MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=2 cargo +nightly miri test -p gannet-store --lib -- node:: entry:: log::record change::

# Models of latch and page table: every order of steps.
models:
    cargo test --manifest-path models/Cargo.toml --test models

# Measure: workloads of the laboratory, for example `just bench store lookups --dir bench-data`.
bench *ARGS:
    cargo run --release -p gannet-lab -- {{ ARGS }}

# What this machine gives a database.
doctor *ARGS:
    cargo run --release -- doctor {{ ARGS }}

# The embedded API, from one end to the other.
example:
    cargo run --release --example kv

# Licences of dependencies.
licences:
    .ci/licences

# What the CI does.
ci:
    .ci/run
