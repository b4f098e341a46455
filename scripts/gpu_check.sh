#!/usr/bin/env bash
# Checks and measures this machine in six minutes at most: one JSON file of results in OUT_DIR.
#
#   scripts/gpu_check.sh OUT_DIR            on a CUDA machine
#   scripts/gpu_check.sh OUT_DIR --dry-run  the same sections in small, on any processor
#
# Uses .venv if it is there, else the python3 of the machine (or $PYTHON).
set -euo pipefail
if [ $# -lt 1 ] || [ "${1#-}" != "$1" ]; then
    sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
out=$(mkdir -p "$1" && cd "$1" && pwd)
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
if [ -z "${PYTHON:-}" ] && [ -x .venv/bin/python ]; then python=.venv/bin/python; fi
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
# Fragmentation would otherwise decide what fits: padded peers ask for a new shape at every step.
export PYTORCH_CUDA_ALLOC_CONF=${PYTORCH_CUDA_ALLOC_CONF:-expandable_segments:True}
exec "$python" scripts/gpu_check.py "$out" "$@"
