#!/usr/bin/env bash
# Fetches the official SARIF 2.1.0 schema into target/schemas/ for the test that validates against it. It comes out of a crate that ships it, so
# that the usual registry is all that is needed; nothing of the crate is built.
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.8.0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/src" target/schemas
touch "$work/src/lib.rs"
cat > "$work/Cargo.toml" <<TOML
[package]
name = "fetch"
version = "0.0.0"
edition = "2024"
[dependencies]
serde-sarif = "=$version"
[workspace]
TOML
manifest=$(cargo metadata --quiet --format-version 1 --manifest-path "$work/Cargo.toml" |
    grep -o '"manifest_path":"[^"]*serde-sarif-[^"]*Cargo.toml"' | head -n 1 | cut -d '"' -f 4)
cp "$(dirname "$manifest")/src/schema.json" target/schemas/sarif-schema-2.1.0.json
echo "target/schemas/sarif-schema-2.1.0.json"
