#!/bin/sh
# Runs the tests that compare trainings under other numbers of threads, vector instructions and
# load, and prints a line for each variation. `make test-variations` does this with the project's
# Python. Further arguments go to pytest, such as -m "not slow".
python=${PYTHON:-python}
files="tests/models/parallel/test_runs_in_a_row.py tests/models/parallel/test_strategy.py
    tests/models/parallel/test_sharded_smoe.py tests/models/test_postprocessor.py
    tests/models/test_deep_ensemble.py tests/models/test_smoe_training.py
    tests/experiments/test_run.py tests/experiments/test_kill.py
    tests/experiments/test_split_runs.py tests/experiments/test_two_processes.py"
failed=0

# vary SETTING...: runs the tests with these environment variables.
vary() {
    # shellcheck disable=SC2086
    if env "$@" "$python" -m pytest -q $files $options >"$log" 2>&1; then
        echo "passed: $*: $(tail -n 1 "$log")"
    else
        failed=1
        cat "$log"
        echo "FAILED: $*"
    fi
}

# under_load SETTING...: the same beside two processes that do nothing but compute.
under_load() {
    yes >/dev/null &
    first=$!
    yes >/dev/null &
    second=$!
    vary "$@"
    kill $first $second
}

options=$*
log=$(mktemp)
trap 'rm -f "$log"' EXIT
vary OMP_NUM_THREADS=1
vary OMP_NUM_THREADS=2
vary OMP_NUM_THREADS=4
vary ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 DNNL_MAX_CPU_ISA=AVX2
vary ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE
under_load OMP_NUM_THREADS=2
exit $failed
