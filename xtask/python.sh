#!/usr/bin/env bash
# Builds the wheel of bindings/python, installs it into an environment of its own and runs the package's tests there.
# `python.sh --check` says whether that is possible, `python.sh --build` runs no test. FRESHWIRE_PYTHON names another interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."

# The first one that can make an environment: Debian's needs python3-venv for that.
find_python() {
    local python
    for python in ${FRESHWIRE_PYTHON:-python3 /usr/bin/python3}; do
        if "$python" -c 'import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    return 1
}

python=$(find_python) || {
    echo "no Python 3.11 to 3.13 with venv: apt-get install python3 python3-venv" >&2
    exit 1
}
if [ "${1:-}" = --check ]; then exit 0; fi

target=${CARGO_TARGET_DIR:-target}/python
crate=bindings/python
mkdir -p "$(dirname "$target")"
exec 9>"$target.lock"
flock 9
# What was installed, for which interpreter: an unchanged environment is used again.
wanted="$("$python" -VV) $(sha256sum <"$crate/tests/requirements.txt")"
if [ "$(cat "$target/installed" 2>/dev/null)" != "$wanted" ]; then
    rm -rf "$target"
    mkdir -p "$target"
    "$python" -m venv "$target/venv"
    "$target/venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: \
        --require-hashes --requirement "$crate/tests/requirements.txt"
    echo "$wanted" >"$target/installed"
fi

rm -rf "$target/wheels"
"$target/venv/bin/maturin" build --quiet --profile "${FRESHWIRE_PROFILE:-dev}" --manifest-path "$crate/Cargo.toml" \
    --interpreter "$target/venv/bin/python" --out "$target/wheels"
"$target/venv/bin/pip" install --quiet --disable-pip-version-check --no-index --force-reinstall "$target"/wheels/*.whl
flock -u 9
if [ "${1:-}" = --build ]; then exit 0; fi
"$target/venv/bin/python" -m pytest "$crate/tests" --rootdir "$crate" --strict-markers -p no:cacheprovider "$@"
