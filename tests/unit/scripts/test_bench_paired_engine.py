"""The comparison of the engine with CTranslate2 called directly: turns and ratios."""

import itertools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts" / "bench"))

import paired_engine


def test_tasks_take_turns_and_the_ratio_says_how_much_faster_the_first_is() -> None:
    order: list[str] = []
    seconds = {"engine": 2.0, "direct": 1.0, "same_search": 4.0}
    now = itertools.accumulate(
        itertools.chain.from_iterable([0, s] for s in [*seconds.values()] * 3)
    )
    found = paired_engine.paired(
        {name: lambda text, name=name: order.append(name) for name in seconds},
        [["a"], ["b"], ["c"]],
        lambda: next(now),
    )
    assert order == list(seconds) * 4  # the first time warms up
    assert found == {
        "seconds": seconds,
        "speed_against": {"direct": 0.5, "same_search": 2.0},
    }
