#!/usr/bin/env bash
# Downloads NVIDIA's own libraries for the tests that check us against them, without a GPU and without installing
# anything: several versions of libcupti with their headers, of the Python package nvtx and of the old NVTX library (PyPI
# wheels), the kernel compiler NVRTC, and the user-space driver (Debian's non-free libcuda1). Everything lands in
# target/vendor, by version; what is there already is not fetched again.
#
#   scripts/fetch-vendor-libs.sh [FOLDER]
#
# Needs pip and python3 for the wheels; apt-get and dpkg on a Debian system for the driver. What can't be had is said and
# skipped: the tests then skip too. NVIDIA's licences apply to what is downloaded; nothing of it is committed.
set -euo pipefail

cd "$(dirname "$0")/.."
mkdir -p "${1:-target/vendor}"
vendor="$(cd "${1:-target/vendor}" && pwd)"
scratch="$(mktemp -d "$vendor/.scratch.XXXXXX")"
trap 'rm -rf "$scratch"' EXIT

# One per record layout that differs: docs/verification.md has the table.
cupti_versions=(12.1.105 12.4.127 12.8.90 13.0.85 13.2.86 13.5.25)

# Clients of NVTX: header versions before, in and after the one that drops all ranges unless the payload extension is
# answered (0.2.12).
nvtx_versions=(0.2.10 0.2.12 0.2.13 0.2.15)

# fetch_wheel PACKAGE VERSION: unpacks a wheel into $scratch/PACKAGE-VERSION.
fetch_wheel() {
    local into="$scratch/$1-$2"
    mkdir -p "$into"
    if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$into" "$1==$2"; then
        echo "$1 $2: pip could not download it; tests with it will skip" >&2
        return 1
    fi
    python3 -m zipfile -e "$into"/*.whl "$into" || return 1
    rm "$into"/*.whl
}

fetch_nvtx() {
    local into="$vendor/nvtx-$1"
    [[ -d "$into" ]] && { echo "nvtx $1: there"; return; }
    fetch_wheel nvtx "$1" || return 0
    mv "$scratch/nvtx-$1" "$into"
    echo "nvtx $1: fetched"
}

fetch_nvtoolsext() {
    local into="$vendor/nvtoolsext"
    [[ -d "$into" ]] && { echo "nvToolsExt: there"; return; }
    fetch_wheel nvidia-nvtx-cu12 12.4.127 || return 0
    mkdir "$scratch/nvtoolsext"
    find "$scratch/nvidia-nvtx-cu12-12.4.127" -name 'libnvToolsExt.so.1' -exec mv {} "$scratch/nvtoolsext/" \;
    mv "$scratch/nvtoolsext" "$into"
    echo "nvToolsExt: fetched"
}

fetch_cupti() {
    local version="$1" package
    local into="$vendor/cupti-$version"
    [[ -d "$into" ]] && { echo "cupti $version: there"; return; }
    case "$version" in
        12.*) package=nvidia-cuda-cupti-cu12 ;;
        *) package=nvidia-cuda-cupti ;;
    esac
    fetch_wheel "$package" "$version" || return 0
    local wheel="$scratch/$package-$version"
    mkdir "$wheel/unpacked"
    find "$wheel/nvidia" -name 'libcupti.so.*' -exec mv {} "$wheel/unpacked/" \;
    find "$wheel/nvidia" -type d -name include -exec mv {} "$wheel/unpacked/include" \; -prune
    # Last and at once, so that a folder that exists is complete.
    mv "$wheel/unpacked" "$into"
    echo "cupti $version: fetched"
}

fetch_nvrtc() {
    local version="$1"
    local into="$vendor/nvrtc-$version" wheel="$scratch/nvrtc-$version"
    [[ -d "$into" ]] && { echo "nvrtc $version: there"; return; }
    mkdir -p "$wheel"
    if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --dest "$wheel" "nvidia-cuda-nvrtc-cu12==$version"; then
        echo "nvrtc $version: pip could not download nvidia-cuda-nvrtc-cu12==$version; tests with it will skip" >&2
        return
    fi
    python3 -m zipfile -e "$wheel"/*.whl "$wheel"
    # The compiler and its builtins; the .alt. pair is the same for other processors.
    rm -f "$wheel"/nvidia/cuda_nvrtc/lib/*.alt.*
    mv "$wheel/nvidia/cuda_nvrtc/lib" "$into"
    echo "nvrtc $version: fetched"
}

fetch_driver() {
    local into="$vendor/driver"
    [[ -d "$into" ]] && { echo "driver: there"; return; }
    if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
        echo "driver: needs apt-get and dpkg-deb; tests with it will skip" >&2
        return
    fi
    # The system's own sources plus the non-free component, in a private state: the system's lists are not touched.
    local apt="$scratch/apt"
    mkdir -p "$apt/parts" "$apt/state/lists/partial" "$apt/cache/archives/partial"
    : >"$apt/sources.list"
    [[ -f /etc/apt/sources.list ]] && sed -E '/^deb .*debian/ s/ main\b/ main non-free/' /etc/apt/sources.list >"$apt/sources.list"
    [[ -f /etc/apt/sources.list.d/debian.sources ]] &&
        sed -E 's/^(Components:.*)$/\1 non-free/' /etc/apt/sources.list.d/debian.sources >"$apt/parts/debian.sources"
    local options=(
        -o "Dir::Etc::SourceList=$apt/sources.list" -o "Dir::Etc::SourceParts=$apt/parts"
        -o "Dir::State=$apt/state" -o "Dir::Cache=$apt/cache"
        # The download user may not write to a private folder.
        -o "APT::Sandbox::User=root" -o "Acquire::Languages=none"
    )
    if ! apt-get -qq "${options[@]}" update || ! (cd "$scratch" && apt-get -qq "${options[@]}" download libcuda1); then
        echo "driver: apt-get could not download libcuda1 (Debian non-free); tests with it will skip" >&2
        return
    fi
    dpkg-deb -x "$scratch"/libcuda1_*.deb "$scratch/driver-package"
    mkdir "$scratch/driver"
    # The package has the file, the links to it and nothing else that matters here.
    find "$scratch/driver-package" -name 'libcuda.so*' -exec cp -a {} "$scratch/driver/" \;
    if [[ ! -e "$scratch/driver/libcuda.so.1" ]]; then
        ln -s "$(cd "$scratch/driver" && ls libcuda.so.*.* | head -n 1)" "$scratch/driver/libcuda.so.1"
    fi
    mv "$scratch/driver" "$into"
    echo "driver: fetched"
}

for version in "${cupti_versions[@]}"; do
    fetch_cupti "$version"
done
for version in "${nvtx_versions[@]}"; do
    fetch_nvtx "$version"
done
fetch_nvtoolsext
fetch_nvrtc 12.9.86
fetch_driver
