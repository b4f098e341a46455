"""`tmt serve`."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from tests.commands import tmt


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "0.0.0.0"], "--host 0.0.0.0: other machines could use the server without"),
        (["--host", "example.org"], "give --key-file FILE, or --insecure"),
        (["--key-file", "none.txt"], "--key-file none.txt: cannot be read: no such file"),
        (["--key-file", "empty.txt"], "--key-file empty.txt: expected a key on each line"),
        (["--key-file", "short.txt"], "a key has at least 8 characters"),
        (["--beam-size", "9"], "--beam-size 9: a server takes at most 8"),
        (["--model", "en-de=nowhere"], "nowhere: no such folder"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(
    options: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").write_text("# none\n")
    Path("short.txt").write_text("secret\n")
    result = tmt("serve", *options)
    assert result.exit_code in (2, 4)
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_port_in_use_is_refused_before_models_are_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        result = tmt("serve", "--port", other.getsockname()[1])
    assert (result.exit_code, "address already in use" in result.stderr) == (2, True)


def test_a_server_answers_and_finishes_what_it_took_when_it_is_stopped(tiny_bundle: Path) -> None:
    key = "canary-key-0123"
    command = [sys.executable, "-m", "transformer_mt", "serve", "--model", str(tiny_bundle)]
    command += ["--port", "0", "--batch-wait", "0", "--log-requests"]
    environment = os.environ | {"TMT_SERVE_KEYS": f"{key} other-key-0123"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stderr is not None
        lines = []
        for line in server.stderr:
            lines.append(line)
            if "serving en-de on http://127.0.0.1:" in line:
                break
        address = re.search(r"http://\S+", lines[-1])
        assert address is not None, lines
        fields = {"q": "canary. " * 200, "source": "en", "target": "de", "api_key": key}
        answers = []

        def ask() -> None:
            answers.append(httpx.post(f"{address[0]}/translate", json=fields, timeout=30))

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        while (
            b"in_flight 3"
            not in httpx.get(
                f"{address[0]}/metrics", headers={"Authorization": f"Bearer {key}"}
            ).content
            and not answers
        ):
            pass
        server.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        lines += server.stderr.readlines()
        assert server.wait(10) == 0
    assert [found.status_code for found in answers] == [200] * 3
    written = "".join(lines).lower()
    assert '"route": "/translate", "status": 200' in written
    assert "canary" not in written
