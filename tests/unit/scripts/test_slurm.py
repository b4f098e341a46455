"""The SLURM script, with stand-ins for `srun`, `scontrol` and `tmt`."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "slurm" / "train.sbatch"

STAND_INS = {
    # Two tasks; like `srun --kill-on-bad-exit`, the greatest exit code.
    "srun": """[ "$1" = --kill-on-bad-exit=1 ] || exit 99
shift; worst=0
for rank in 0 1; do
    SLURM_PROCID=$rank SLURM_LOCALID=$rank SLURM_NTASKS=2 "$@"; code=$?
    ((code > worst)) && worst=$code
done
exit $worst""",
    "scontrol": """case $1 in
show) printf 'node7\\nnode8\\n' ;;
requeue) echo "requeue $2" ;;
esac""",
    # A signal that the script ignored, its children would ignore, too.
    "tmt": """bash -c 'kill -TERM $$; echo deaf to TERM' 2> /dev/null
printf '%s|' "$RANK" "$LOCAL_RANK" "$WORLD_SIZE" "$MASTER_ADDR" "$MASTER_PORT" "$@"
echo; exit "$CODE" """,
}


def run(folder: Path, code: int, restarts: int = 0) -> tuple[int, list[str]]:
    for name, text in STAND_INS.items():
        (folder / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (folder / name).chmod(0o755)
    job = {"SLURM_JOB_ID": "41", "SLURM_JOB_NODELIST": "node[7-8]", "SLURM_RESTART_COUNT": restarts}
    result = subprocess.run(
        ["bash", SCRIPT, "base.yaml", "--set", "seed=2"],
        env=os.environ
        | {"PATH": f"{folder}:{os.environ['PATH']}", "CODE": str(code)}
        | {name: str(value) for name, value in job.items()},
        capture_output=True,
        text=True,
        timeout=300,
    )
    return result.returncode, result.stdout.splitlines()


def test_each_task_gets_its_rank_and_the_address_of_the_first(tmp_path):
    code, lines = run(tmp_path, code=0)
    assert code == 0
    assert lines == [
        f"{rank}|{rank}|2|node7|20041|train|--config|base.yaml|--set|seed=2|" for rank in (0, 1)
    ]


@pytest.mark.parametrize("code", [75, 1, 137])
def test_a_job_that_can_resume_is_requeued(tmp_path, code):
    assert run(tmp_path, code)[0] == 0
    assert run(tmp_path, code)[1][-1] == "requeue 41"


@pytest.mark.parametrize("code", [2, 3, 4, 5])
def test_a_job_that_would_fail_again_is_not_requeued(tmp_path, code):
    found, lines = run(tmp_path, code)
    assert found == code
    assert "requeue" not in lines[-1]


def test_failures_are_requeued_a_few_times_and_preemptions_always(tmp_path):
    assert run(tmp_path, code=1, restarts=5) == (1, run(tmp_path, code=0)[1])
    assert run(tmp_path, code=75, restarts=500)[1][-1] == "requeue 41"
