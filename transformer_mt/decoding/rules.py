"""Rules that change what may follow a hypothesis, and at what price.

Letters: B sentences, W slots of the beam, T tokens so far, V vocabulary.
"""

from typing import Protocol

from torch import Tensor

from transformer_mt.decoding.candidates import Prefixes


class Rule(Protocol):
    """Sees all open hypotheses before each step of the search and edits the step.

    What it does to a hypothesis depends on the tokens of that hypothesis and on its sentence, and
    on nothing else. It may lower log-probabilities but not raise them: the search stops by them.
    """

    def __call__(self, log_probs: Tensor, prefixes: Prefixes) -> None:
        """Edit the log-probabilities of the next token (B, W, V) in place."""
        ...
