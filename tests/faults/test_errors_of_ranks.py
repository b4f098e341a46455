"""An error that comes to one rank alone: none of the others stays."""

import errno
import os
import signal
from pathlib import Path

import pytest

import transformer_mt
from tests.faults.dying import at_line, run_ranks
from transformer_mt.errors import DataError
from transformer_mt.training.trainer import train

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
PACKAGE = str(Path(transformer_mt.__file__).parent)
ERRORS = [
    RuntimeError("some"),
    OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    MemoryError(),
    DataError("some"),
]


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("size", "hurt", "parallel"), [(2, 0, "ddp"), (2, 1, "fsdp"), (3, 2, "ddp")]
)
def test_an_error_of_one_rank_at_any_line_ends_all_in_time(run_config, size, hurt, parallel):
    changes = {"training__max_steps": 3, "training__validation__every_steps": 2}
    changes["training__parallel"] = parallel
    train(run_config("once", **changes))  # what this imports, no rank has to

    def run(number: int) -> list[int]:
        settings = run_config(f"hurt-{number}", **changes)
        error = ERRORS[number % len(ERRORS)]

        def fail() -> None:
            raise error

        def work(rank: int) -> None:
            signal.alarm(120)  # kills a process even while it waits with Python's lock
            if rank == hurt:
                at_line(number, [PACKAGE], fail)
            train(settings)

        return run_ranks(size, work)

    numbers = range(50, 1650, 161)
    ends = {number: run(number) for number in numbers}
    print(f"{len(numbers)} points")
    for number, codes in ends.items():
        # Some errors are met: a tokenizer that cannot be found is made, a batch is cut in two.
        is_met, have_left = not any(codes), all(code > 0 for code in codes)
        assert is_met or have_left, f"line {number}: {codes}"
    assert sum(map(all, ends.values())) > len(numbers) // 2
