"""`tmt translate` as a process: slow, named and closed pipes, Ctrl-C."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.commands import tmt as run

PROGRAM = [sys.executable, "-m", "transformer_mt"]
SLOW = {"OMP_NUM_THREADS": "1"}


def start(*arguments: object, stdout: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*PROGRAM, "translate", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=os.environ | SLOW,
    )


def test_every_line_of_a_slow_pipe_is_answered_before_the_next(tiny_bundle):
    with start("--model", tiny_bundle, "--beam-size", 1) as process:
        assert process.stdin
        assert process.stdout
        answers = []
        for line in (b"A dog.\n", b"\n", b"The cat.\n"):
            process.stdin.write(line)
            process.stdin.flush()
            answers.append(process.stdout.readline())
        process.stdin.close()
        assert process.stdout.read() == b""
        assert process.wait(timeout=300) == 0
    assert all(answer.endswith(b"\n") for answer in answers)
    assert [answer == b"\n" for answer in answers] == [False, True, False]


def test_interrupted_it_keeps_what_is_finished_and_says_130(tiny_bundle, tmp_path):
    output = tmp_path / "out.txt"
    with start("--model", tiny_bundle, "--output", output) as process:
        assert process.stdin
        assert process.stderr
        process.stdin.write(b"A dog.\nThe cat.\n")
        process.stdin.flush()
        deadline = time.monotonic() + 300
        while not (output.exists() and output.read_bytes().count(b"\n") == 2):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=300) == 130
        errors = process.stderr.read()
    assert output.read_bytes().count(b"\n") == 2
    assert b"Traceback" not in errors
    assert f"stopped by Ctrl-C: {output} is incomplete\n".encode() in errors


def test_a_closed_pipe_prints_no_error(tiny_bundle):
    with start("--model", tiny_bundle, "--beam-size", 1) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write(b"A dog.\n")
        process.stdin.flush()
        assert process.stdout.readline()
        process.stdout.close()
        process.stdin.write(b"The cat.\n")
        process.stdin.close()
        errors = process.stderr.read()
        assert process.wait(timeout=300) == 141
    assert b"error" not in errors.lower()
    assert b"Traceback" not in errors


def test_named_pipes_are_read_as_they_come(tiny_bundle, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    threading.Thread(target=lambda: Path(pipe).write_bytes(b"A dog.\n\nThe cat.\n")).start()
    result = run("translate", "--model", tiny_bundle, "--input", pipe)
    assert result.exit_code == 0, result.stderr
    assert result.stdout_bytes.count(b"\n") == 3
