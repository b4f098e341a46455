"""Runs `device_cases.py` apart from other tests."""

import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).with_name("device_cases.py")


def test_updates_and_searches_on_a_simulated_second_device() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(CASES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED and "SKIPPED" in done.stdout:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
