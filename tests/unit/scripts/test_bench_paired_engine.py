"""The comparison of the engine with CTranslate2 called directly: turns and ratios."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts" / "bench"))

import paired_engine


def test_tasks_take_turns_and_the_ratio_says_how_much_faster_the_first_is() -> None:
    order: list[str] = []
    seconds = {"engine": 2.0, "direct": 1.0, "same_search": 4.0}
    found = paired_engine.paired(
        {name: lambda text, name=name: order.append(name) for name in seconds},
        [["a"], ["b"], ["c"]],
        lambda: sum(seconds[name] for name in order),
    )
    first, second, third = seconds
    assert order == [
        *(first, second, third),  # warms up
        *(first, second, third),
        *(second, third, first),
        *(third, first, second),
    ]
    assert found == {
        "seconds": seconds,
        "speed_against": {"direct": 0.5, "same_search": 2.0},
    }
