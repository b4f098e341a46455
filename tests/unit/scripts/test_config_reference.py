"""The configuration reference is made from the settings."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))

import config_reference


def test_reference_and_schema_are_up_to_date():
    for path, text in config_reference.pages().items():
        # Not a plain comparison: pytest would print both files.
        is_current = path.read_text(encoding="utf-8") == text
        assert is_current, f"{path.name}: run python scripts/config_reference.py"


def test_every_setting_of_a_group_has_a_row():
    page = config_reference.pages()[config_reference.DOCS / "configuration.md"]
    section = page.split("## `training`\n")[1].split("\n## ")[0]
    assert "| `label_smoothing` | number >= 0, < 1 | `0.1` |" in section
    assert "| `optimizer` | type `adam`, `adamw`, `muon` | type `adam` |" in section
