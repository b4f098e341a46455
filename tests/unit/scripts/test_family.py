"""`scripts/family.sh` with a `tmt` that notes what it is asked for."""

import os
import subprocess
from pathlib import Path

import pytest

from transformer_mt.config.loading import find_config, load_config
from transformer_mt.config.schema import Config

SCRIPT = Path(__file__).parents[3] / "scripts" / "family.sh"


def run(folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], list[list[str]]]:
    """Run the script in a folder; return also the arguments of each call of `tmt`."""
    calls, program = folder / "calls", folder / "bin" / "tmt"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" END >> {calls}\n")
    program.chmod(0o755)
    (folder / "data" / "demo").mkdir(parents=True)
    found = subprocess.run(
        ["bash", SCRIPT, *arguments],
        cwd=folder,
        env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    text = calls.read_text() if calls.exists() else ""
    return found, [call.splitlines() for call in text.split("END\n")[:-1]]


def config_of(call: list[str]) -> Config:
    assert call[:2] == ["train", "--config"]
    return load_config(find_config(call[2]), [word.removeprefix("--set=") for word in call[3:]])


@pytest.mark.parametrize("corpus", ["multi30k", "demo"])
def test_stations_are_configs_that_differ_in_what_they_are_named_for(tmp_path, corpus):
    found, calls = run(tmp_path, "--corpus", corpus, "--updates", "7")
    assert found.returncode == 0, found.stderr
    configs = {config.name: config for config in map(config_of, calls[:-1])}
    assert calls[-1][: len(configs) + 1] == ["compare", *(f"runs/{name}" for name in configs)]
    assert {config.data.tgt_lang for config in configs.values()} == {
        "de" if corpus == "multi30k" else "fr"
    }
    assert {config.training.max_steps for config in configs.values()} == {7}

    def settings(station: str) -> dict[str, object]:
        return configs[f"family_{corpus}_7_{station}_1"].model.model_dump()

    pairs = {
        ("gru_none", "gru_additive"): {"attention"},
        ("gru_dot", "gru_scaled_dot"): {"attention"},
        ("gru_additive", "rnn_additive"): {"cell"},
        ("gru_none_one_direction", "gru_none_reversed"): {"reverse_source"},
        ("convolutional", "dilated"): {"dilations"},
        ("decoder_only", "decoder_only_both"): {"loss_on"},
        ("decoder_only", "pattern_fixed_1"): {"decoder_pattern"},
        ("deep_pre", "deep_pre_child2019"): {"init"},
    }
    for (one, other), names in pairs.items():
        first, second = settings(one), settings(other)
        assert {name for name in first if first[name] != second[name]} == names


def test_some_stations_with_several_seeds(tmp_path):
    found, calls = run(tmp_path, "--only", "gru_none,transformer", "--seeds", "1,2")
    assert found.returncode == 0, found.stderr
    names = [f"{name}_{seed}" for name in ("gru_none", "transformer") for seed in (1, 2)]
    assert [config_of(call).name for call in calls[:-1]] == [
        f"family_multi30k_600_{name}" for name in names
    ]
    assert [config_of(call).seed for call in calls[:-1]] == [1, 2, 1, 2]


def test_an_unknown_station_is_one_line_with_all_there_are(tmp_path):
    found, calls = run(tmp_path, "--only", "gru_nine")
    assert (found.returncode, calls) == (2, [])
    assert found.stderr.startswith("family.sh: no station gru_nine; there are: rnn_none ")
