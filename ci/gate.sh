#!/bin/sh
# Records one or more runs of a training program and checks them against configuration and baseline. All that the CI examples
# beside it do is call this. Exit status: that of `syncaudit check` (0 fine, 1 new waits, 2 can't tell), 2 if the program itself fails.
#
# SYNCAUDIT_COMMAND   the program, as typed in a shell (needed), for example: python train.py --steps 20
# SYNCAUDIT_BASELINE  accepted waits; default: what the configuration names, else none
# SYNCAUDIT_CONFIG    configuration; default: syncaudit.toml where there is one
# SYNCAUDIT_DEVICE    auto (default), cuda or emulated
# SYNCAUDIT_RUNS      how many runs (default 1); with more, only what all of them have counts
# SYNCAUDIT_OUT       folder for traces and reports (default .syncaudit/ci)
set -eu

: "${SYNCAUDIT_COMMAND:?is not set: give the training command}"
out=${SYNCAUDIT_OUT:-.syncaudit/ci}
runs=${SYNCAUDIT_RUNS:-1}
mkdir -p "$out"
# What an earlier check left must not be taken for this one's, should there be none.
rm -f "$out/check.json" "$out/check.md" "$out/check.sarif" "$out/check.xml"

# "$@" collects the traces.
set --
run=1
while [ "$run" -le "$runs" ]; do
    trace=$out/run-$run
    rm -rf "$trace"
    status=0
    syncaudit run --device "${SYNCAUDIT_DEVICE:-auto}" --report-only ${SYNCAUDIT_CONFIG:+--config "$SYNCAUDIT_CONFIG"} \
        --trace "$trace" -o "$out/run-$run.txt" -- sh -c "$SYNCAUDIT_COMMAND" || status=$?
    if [ "$status" -ne 0 ]; then
        echo "gate: the run itself failed with status $status; its waits are not judged" >&2
        exit 2
    fi
    set -- "$@" "$trace"
    run=$((run + 1))
done

# Annotations where the host turns them into such, plain text elsewhere; the other reports are for artifacts and comments.
if [ "${GITHUB_ACTIONS:-}" = true ]; then shown=github; else shown=text; fi
status=0
syncaudit check "$@" ${SYNCAUDIT_CONFIG:+--config "$SYNCAUDIT_CONFIG"} ${SYNCAUDIT_BASELINE:+--baseline "$SYNCAUDIT_BASELINE"} \
    --format "$shown=-" --format "json=$out/check.json" --format "markdown=$out/check.md" --format "sarif=$out/check.sarif" \
    --format "junit=$out/check.xml" || status=$?
if [ -n "${GITHUB_STEP_SUMMARY:-}" ] && [ -f "$out/check.md" ]; then cat "$out/check.md" >> "$GITHUB_STEP_SUMMARY"; fi
exit "$status"
