#!/usr/bin/env bash
# What can only be checked on a machine with a GPU, in one run. Needs nothing but the binaries (and, for two checks, a Python
# with PyTorch that happens to be there): no registry, no compiler.
#
#   scripts/gpu-acceptance.sh [--device cuda|emulated] [--golden FILE]... [--out FILE] [DIRECTORY OF BINARIES]
#
# The directory (default target/release) holds syncaudit, dflash-train and the two shared objects. Prints a table of checks and
# writes it as JSON to --out, else to $OUT/gpu-acceptance.json where $OUT is set, else to reports/gpu-acceptance.json.
# Exit: 0 nothing failed (skipped checks are named), 1 a check failed, 2 misused.
set -u -o pipefail

device=cuda golden=() out= binaries=
while [ $# -gt 0 ]; do
    case $1 in
    --device) device=${2:?--device needs cuda or emulated}; shift 2 ;;
    --golden) golden+=("$(realpath "${2:?--golden needs a file}")"); shift 2 ;;
    --out) out=${2:?--out needs a file}; shift 2 ;;
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "gpu-acceptance: unknown option $1; see --help" >&2; exit 2 ;;
    *) binaries=$1; shift ;;
    esac
done
case $device in cuda | emulated) ;; *) echo "gpu-acceptance: --device is cuda or emulated" >&2; exit 2 ;; esac
for file in "${golden[@]}"; do
    [ -f "$file" ] || { echo "gpu-acceptance: there is no golden file $file" >&2; exit 2; }
done
binaries=${binaries:-target/release}
for binary in syncaudit dflash-train; do
    [ -x "$binaries/$binary" ] || {
        echo "gpu-acceptance: $binaries/$binary is missing; build with: cargo build --release" >&2
        exit 2
    }
done
binaries=$(cd "$binaries" && pwd)
out=${out:-${OUT:-reports}/gpu-acceptance.json}
mkdir -p "$(dirname "$out")"
out=$(realpath "$out")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
syncaudit=$binaries/syncaudit trainer=$binaries/dflash-train
steps=20

names=() results=() details=()
record() { # name, pass|fail|skip, detail
    names+=("$1") results+=("$2") details+=("$(printf '%s' "$3" | tr '\n\t"\\' '  '"''" | tr -d '\000-\037')")
    printf '%-38s %-5s %s\n' "$1" "$2" "${details[-1]:0:200}"
}
# The last line a command said, which is where ours put the reason.
last() { grep -v -e '^ *$' -e '^syncaudit: ' "$1" | tail -n 1; }
# The value of a key whose first occurrence in a JSON report is at its top.
field() { sed -n "s/.*\"$2\": *\"\{0,1\}\([^\",}]*\).*/\1/p" "$1" | head -n 1; }

audited() { # name of the report, arguments of the trainer
    local name=$1
    shift
    "$syncaudit" run --device "$device" --no-trace --format "json=$name.json" -- \
        "$trainer" --steps $steps --log-every 10 --metrics "$name.jsonl" "$@" >"$name.out" 2>"$name.err"
}
# Without a driver of its own, the emulated device is reached through `syncaudit run` only.
plain() {
    if [ "$device" = emulated ]; then
        "$syncaudit" run --device emulated --no-trace --report-only --format json=plain.json -- "$trainer" "$@"
    else
        "$trainer" "$@"
    fi
}
losses() { sed -n 's/.*"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1"; }

printf 'gpu-acceptance: device %s\n' "$device"
if command -v nvidia-smi >/dev/null; then nvidia-smi --query-gpu=name,driver_version --format=csv,noheader; fi

"$syncaudit" doctor --device "$device" >doctor.out 2>&1
status=$?
[ $status -eq 0 ] && record doctor pass "one known wait caused and found" || record doctor fail "exit $status: $(last doctor.out)"

audited default
status=$?
waits=$(field default.json ordinary_waits_per_step)
if [ $status -eq 0 ] && [ "$(field default.json verdict)" = pass ] && [ "$(losses default.jsonl | wc -l)" -eq $steps ]; then
    record "default trainer never waits" pass "$waits waits per ordinary step"
else
    record "default trainer never waits" fail "exit $status, $waits waits per ordinary step: $(last default.err)"
fi

for options in "--algorithm domino" "--graph" "--algorithm domino --graph --precision bf16"; do
    # shellcheck disable=SC2086 # several words
    audited options $options
    status=$?
    waits=$(field options.json ordinary_waits_per_step)
    if [ $status -eq 0 ] && [ "$(field options.json verdict)" = pass ] && [ "$(losses options.jsonl | wc -l)" -eq $steps ]; then
        record "never waits: $options" pass "$waits waits per ordinary step"
    else
        record "never waits: $options" fail "exit $status, $waits waits per ordinary step: $(last options.err)"
    fi
done

# The same step issued call by call and replayed: same kernels, same order, same bits, on a GPU too.
for algorithm in dflash domino; do
    audited calls --algorithm $algorithm --precision bf16
    audited graph --algorithm $algorithm --precision bf16 --graph
    if [ -s calls.jsonl ] && cmp -s calls.jsonl graph.jsonl; then
        record "graph changes no metric: $algorithm" pass "$steps steps equal to the last bit"
    else
        record "graph changes no metric: $algorithm" fail "$(diff calls.jsonl graph.jsonl | head -n 3)"
    fi
done

for algorithm in dflash domino; do
    audited legacy --waits legacy --algorithm $algorithm
    status=$?
    waits=$(field legacy.json ordinary_waits_per_step)
    missing=
    for place in metrics anchors scalars acks batch_copy; do
        grep -q "reference/src/waits/$place.rs" legacy.json || missing="$missing $place"
    done
    if [ $status -eq 1 ] && [ "$(field legacy.json verdict)" = fail ] && [ -z "$missing" ]; then
        record "legacy trainer is found out: $algorithm" pass "all five sources named, $waits waits per ordinary step"
    else
        record "legacy trainer is found out: $algorithm" fail "exit $status, not named:${missing:- none}; $(last legacy.err)"
    fi
done

# The historical anchor width changes the shape of matrix products, and with it how a GPU's library rounds; the rest changes
# no arithmetic.
audited rest --waits metrics,scalars,acks,batch-copy
if [ -s default.jsonl ] && diff <(losses default.jsonl) <(losses rest.jsonl) >losses.diff; then
    record "waits change no loss" pass "$steps losses equal to the last bit"
else
    record "waits change no loss" fail "$(head -n 3 losses.diff)"
fi

plain kernels --compare >kernels.out 2>&1
status=$?
if [ $status -ne 0 ]; then
    record "kernels equal their host versions" fail "exit $status: $(last kernels.out)"
elif grep -q 'no GPU here' kernels.out; then
    record "kernels equal their host versions" skip "$(last kernels.out)"
else
    record "kernels equal their host versions" pass "$(last kernels.out)"
fi

verified() { # name of the check, file, options
    local name=$1 file=$2 status
    shift 2
    plain verify "$file" "$@" >verify.out 2>&1
    status=$?
    if [ $status -eq 0 ]; then
        record "$name" pass "$(last verify.out)"
    else
        record "$name" fail "exit $status: $(last verify.out)"
    fi
}
for file in "${golden[@]}"; do
    verified "golden values: $(basename "$file")" "$file"
    verified "in bf16: $(basename "$file")" "$file" --precision bf16 --tolerance 1e-1
done
[ ${#golden[@]} -gt 0 ] || record "golden values" skip "no --golden FILE given"

plain capture-check >capture.out 2>capture.err
status=$?
if [ $status -eq 0 ] && grep -q 'nothing in it waits' capture.out; then
    record "default step can be captured" pass "$(grep 'nothing in it waits' capture.out)"
else
    record "default step can be captured" fail "exit $status: $(last capture.err)"
fi
plain capture-check --waits legacy >capture.out 2>capture.err
status=$?
if [ $status -ne 0 ] && grep -q "can't be captured" capture.err; then
    record "legacy step can't be captured" pass "$(grep -o "can't be captured.*" capture.err | head -n 1)"
else
    record "legacy step can't be captured" fail "exit $status: $(last capture.err)"
fi

# Feature files without Python: four rows of zeros as ids, noise between 0 and 1 as hidden states, everything supervised.
features() { # file, tokens a row, width
    local rows=4 ids hidden header
    ids=$((rows * $2 * 8)) hidden=$((rows * $2 * $3 * 2))
    header=$(printf '{"input_ids":{"dtype":"I64","shape":[%d,%d],"data_offsets":[0,%d]},' $rows "$2" $ids
        printf '"hidden_states":{"dtype":"BF16","shape":[%d,%d,%d],"data_offsets":[%d,%d]},' $rows "$2" "$3" $ids $((ids + hidden))
        printf '"loss_mask":{"dtype":"U8","shape":[%d,%d],"data_offsets":[%d,%d]}}' $rows "$2" $((ids + hidden)) $((ids + hidden + rows * $2)))
    while [ $((${#header} % 8)) -ne 0 ]; do header+=' '; done
    {
        # shellcheck disable=SC2059 # the format is the eight bytes of the header's length
        printf "\\x$(printf %02x $((${#header} % 256)))\\x$(printf %02x $((${#header} / 256)))\0\0\0\0\0\0"
        printf %s "$header"
        head -c $ids /dev/zero
        # Bytes 0x3c to 0x3f: every pair of them is a bf16 between 0.01 and 1.
        head -c $hidden /dev/urandom | LC_ALL=C tr '\000-\377' "$(printf '<=>?%.0s' {1..64})"
        head -c $((rows * $2)) /dev/zero | tr '\0' '\1'
    } >"$1"
}
features tiny.safetensors 64 128
if plain --features tiny.safetensors --steps 4 --metrics features.jsonl >features.out 2>&1; then
    record "recorded features" pass "$(losses features.jsonl | wc -l) steps"
else
    record "recorded features" fail "$(last features.out)"
fi

# The published recipe: 211 ms a step on an H200. The wall time of a run holds compilation and set-up, so the time of a step is
# the difference of two runs over that of their steps.
recipe() { # steps; prints milliseconds
    local begin
    begin=$(date +%s%3N)
    "$trainer" --preset qwen3-8b --algorithm domino --graph --features recipe.safetensors --steps "$1" --log-every 50 \
        --metrics recipe.jsonl >recipe.out 2>recipe.err || return 1
    echo $(($(date +%s%3N) - begin))
}
if [ "$device" = emulated ]; then
    record "published recipe" skip "needs a GPU"
elif features recipe.safetensors 768 20480 && short=$(recipe 10) && long=$(recipe 60); then
    step=$(((long - short) / 50)) needs=$(grep '^needs' recipe.err)
    if losses recipe.jsonl | grep -q -i -e nan -e null; then
        record "published recipe" fail "a loss is not a number"
    elif [ "$step" -le 253 ]; then
        record "published recipe" pass "$step ms a step, published on an H200: 211; $needs"
    else
        record "published recipe" fail "$step ms a step, more than 1.2 times the 211 published on an H200; $needs"
    fi
else
    record "published recipe" fail "$(last recipe.err)"
fi

cat >torch_step.py <<'PYTHON'
import contextlib, sys, torch
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = torch.randn(32, 64, device="cuda")
with_profiler = "--profiler" in sys.argv
profile = torch.profiler.profile() if with_profiler else contextlib.nullcontext()
with profile:
    for step in range(8):
        torch.cuda.nvtx.range_push(f"step {step}")
        loss = model(data).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        torch.cuda.nvtx.range_pop()
print("loss", value)
PYTHON
torch_check() { # name, argument
    local status
    "$syncaudit" run --device cuda --no-trace --format json=torch.json -- python3 torch_step.py $2 >torch.out 2>torch.err
    status=$?
    if ! grep -q '^loss ' torch.out; then
        record "$1" fail "the script did not finish: $(last torch.err)"
    elif [ $status -eq 1 ] && grep -q 'device-to-host-read' torch.json; then
        record "$1" pass "the .item() of every step was found"
    elif [ $status -eq 2 ] && [ -n "$2" ]; then
        # torch.profiler holds the only CUPTI subscription: the script has to be left alone, and the report has to say so.
        record "$1" pass "inconclusive, as it must be: $(sed -n '/"reasons"/,/\]/p' torch.json | tr -d '[]"\n' | cut -c1-160)"
    else
        record "$1" fail "exit $status: $(last torch.err)"
    fi
}
if [ "$device" = emulated ]; then
    record "PyTorch" skip "needs a GPU"
    record "PyTorch under torch.profiler" skip "needs a GPU"
elif ! python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' >/dev/null 2>&1; then
    record "PyTorch" skip "no python3 with a PyTorch that sees a GPU"
    record "PyTorch under torch.profiler" skip "no python3 with a PyTorch that sees a GPU"
else
    torch_check "PyTorch" ""
    torch_check "PyTorch under torch.profiler" --profiler
fi

failed=0
{
    printf '{\n  "schema": "syncaudit.gpu-acceptance/1",\n  "device": "%s",\n  "checks": [\n' "$device"
    for i in "${!names[@]}"; do
        [ "${results[$i]}" = fail ] && failed=$((failed + 1))
        comma=,
        [ "$i" -eq $((${#names[@]} - 1)) ] && comma=
        printf '    {"check": "%s", "result": "%s", "detail": "%s"}%s\n' \
            "${names[$i]}" "${results[$i]}" "${details[$i]}" "$comma"
    done
    printf '  ]\n}\n'
} >"$out"
printf '%d checks, %d failed; written to %s\n' "${#names[@]}" "$failed" "$out"
[ "$failed" -eq 0 ]
