"""Train, evaluate and use neural machine translation models.

    import transformer_mt as tmt

    model = tmt.load("runs/base")
    for translation in model.translate(["A dog runs.", "Two men are talking."]):
        print(translation.text, translation.score)

`docs/python.md` shows the rest. Importing this package imports nothing else: a name below is loaded
when it is first used, torch when a model is loaded or trained.
"""

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOMES = {
    "Candidate": "translation.results",
    "Config": "config.schema",
    "ConfigError": "errors",
    "DataError": "errors",
    "DivergedError": "errors",
    "Evaluation": "evaluation",
    "InterruptedRun": "errors",
    "Line": "translation.requests",
    "Model": "translation.model",
    "ModelError": "errors",
    "RunResult": "training.model_selection",
    "Score": "metrics.scores",
    "TargetScore": "translation.results",
    "TmtError": "errors",
    "Translation": "translation.results",
    "backtranslate": "api",
    "distill": "api",
    "evaluate": "api",
    "load": "api",
    "train": "api",
}
"""The module of each public name."""

__all__ = [
    "Candidate",
    "Config",
    "ConfigError",
    "DataError",
    "DivergedError",
    "Evaluation",
    "InterruptedRun",
    "Line",
    "Model",
    "ModelError",
    "RunResult",
    "Score",
    "TargetScore",
    "TmtError",
    "Translation",
    "backtranslate",
    "distill",
    "evaluate",
    "load",
    "train",
]

if TYPE_CHECKING:
    from transformer_mt.api import backtranslate, distill, evaluate, load, train
    from transformer_mt.config.schema import Config
    from transformer_mt.errors import (
        ConfigError,
        DataError,
        DivergedError,
        InterruptedRun,
        ModelError,
        TmtError,
    )
    from transformer_mt.evaluation import Evaluation
    from transformer_mt.metrics.scores import Score
    from transformer_mt.training.model_selection import RunResult
    from transformer_mt.translation.model import Model
    from transformer_mt.translation.requests import Line
    from transformer_mt.translation.results import Candidate, TargetScore, Translation
else:  # a type checker that saw this function would let any name pass

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used."""
        if name not in _HOMES:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """List the public names, loaded or not."""
        return sorted({*globals(), *__all__})
