"""Threads of a training, on a machine that other programs use."""

import pytest
import torch

from transformer_mt.training import threads
from transformer_mt.training.threads import ThreadControl


class Load:
    def __init__(self, *free: float | None) -> None:
        self.free = list(free)

    def free_processors(self) -> float | None:
        return self.free.pop(0)


@pytest.fixture
def chosen(monkeypatch):
    """Number of threads as torch would hold it, 4 at first."""
    number = [4]
    monkeypatch.setattr(threads, "THREADS_ARE_GIVEN", False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: number[0])
    monkeypatch.setattr(torch, "set_num_threads", lambda n: number.__setitem__(0, n))
    return number


def test_threads_follow_the_processors_that_others_leave_free(chosen):
    control = ThreadControl(enabled=True, load=Load(4.0, 2.95, 0.2, None, 3.5, 3.9), interval=0)
    seen = []
    for _ in range(6):
        control.adjust()
        seen.append(chosen[0])
    assert seen == [4, 3, 1, 1, 3, 4]


def test_threads_stay_where_the_user_chose_them_or_results_must_repeat(chosen, monkeypatch):
    ThreadControl(enabled=False, load=Load(1.0), interval=0).adjust()
    assert chosen == [4]
    monkeypatch.setattr(threads, "THREADS_ARE_GIVEN", True)
    ThreadControl(enabled=True, load=Load(1.0), interval=0).adjust()
    assert chosen == [4]


def test_threads_are_restored_at_the_end(chosen):
    control = ThreadControl(enabled=True, load=Load(1.0), interval=0)
    control.adjust()
    assert chosen == [1]
    control.restore()
    assert chosen == [4]
