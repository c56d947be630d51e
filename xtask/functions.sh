# What the suites in this folder have in common; to be sourced.

# Builds commands. `cargo xtask test` has built them with the tests, and says so with FRESHWIRE_TARGET: cargo would compile half of the workspace
# once more, without the features of development dependencies.
build_commands() {
    if [ -n "${FRESHWIRE_TARGET:-}" ]; then return; fi
    cargo build --quiet --workspace ${FRESHWIRE_WITHOUT:+--exclude "$FRESHWIRE_WITHOUT"} ${FRESHWIRE_FEATURES:+--features "$FRESHWIRE_FEATURES"} "${@/#/--bin=}"
}

# What a suite does after each test, whatever became of it.
after_test() { :; }

# Runs each function that has an underscore in its name and is none of the helpers (a pattern), or the one that is named behind it.
run_tests() {
    local helpers=$1 passed=0 test tests code
    tests=${2:-$(declare -F | awk '{ print $3 }' | grep _ | grep -vxE "$helpers|after_test|build_commands|run_tests")}
    for test in $tests; do
        echo "--- $test"
        # In a shell of its own, outside any condition, so that `set -e` holds inside the function.
        set +e
        (
            trap after_test EXIT
            set -e
            "$test"
        )
        code=$?
        set -e
        if [ "$code" != 0 ]; then
            echo "test result: FAILED. $passed passed; 1 failed; 0 ignored"
            exit 1
        fi
        passed=$((passed + 1))
    done
    echo "test result: ok. $passed passed; 0 failed; 0 ignored"
}
