"""Lexically constrained beam search: hypotheses that must hold given phrases.

Letters: B sentences, W slots of the beam, T tokens so far, V vocabulary.
"""

import functools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transformer_mt.search.continuations import Continuations, Prefixes, select_best
from transformer_mt.search.logit_processors import LogitProcessor, apply_except_at
from transformer_mt.text.special_ids import EOS_ID

Phrase = tuple[int, ...]


@dataclass(frozen=True)
class PhraseProgress:
    """How far a hypothesis is with its phrases.

    Attributes:
        missing: Phrases it does not hold.
        begun: Its last tokens, as far as they begin a missing phrase.
        just_ended: The phrase that its last token completes; empty if it completes none.
    """

    missing: tuple[Phrase, ...]
    begun: Phrase = ()
    just_ended: Phrase = ()

    def after(self, token: int, *, continues_word: bool = False) -> "PhraseProgress":
        """Return the progress of the hypothesis with one more token.

        Args:
            token: The token.
            continues_word: Whether it prolongs the word before it, so that a phrase that has just
                ended does not count.
        """
        if continues_word and self.just_ended:
            return PhraseProgress((*self.missing, self.just_ended)).after(token)
        latest = (*self.begun, token)
        for start in range(len(latest)):
            end = latest[start:]
            if end in self.missing:
                place = self.missing.index(end)
                return PhraseProgress(
                    (*self.missing[:place], *self.missing[place + 1 :]), just_ended=end
                )
            if any(phrase[: len(end)] == end for phrase in self.missing):
                return PhraseProgress(self.missing, end)
        return PhraseProgress(self.missing)

    @property
    def num_missing(self) -> int:
        """Tokens that it still has to add, if it completes the phrase that it has begun."""
        return sum(map(len, self.missing)) - len(self.begun)

    def next_tokens(self) -> list[int]:
        """Return the next tokens of missing phrases: of the one begun, or else the first of any."""
        size = len(self.begun)
        return [phrase[size] for phrase in self.missing if phrase[:size] == self.begun]


class PhraseConstraints:
    """The phrases of a batch: a logits processor and a selection for the search.

    As a processor it forbids eos while a phrase is missing, a phrase that is only the beginning of
    a word, and, when no more tokens are left than the phrases need, everything else. As a selection
    it is dynamic beam allocation (Post and Vilar 2018): the next tokens of missing phrases are
    always among the candidates, and the slots of a sentence are shared among banks of hypotheses
    that have the same number of phrase tokens; differs: what a bank cannot fill goes to the best
    candidates of all. A sentence with C phrase tokens has C more slots than the beam.

    Args:
        phrases: For each sentence of the batch; none is empty.
        limits: Maximum length of each target in tokens incl. eos (B,); more than its phrases have.
        beam_size: Slots of a sentence without phrases.
        continues_word: Tokens that would prolong the word before them (V,), True or False.
        processors: All others; they do not bind the next tokens of missing phrases.
    """

    def __init__(
        self,
        phrases: Sequence[tuple[Phrase, ...]],
        limits: NDArray[np.int64],
        *,
        beam_size: int,
        continues_word: Tensor,
        processors: Sequence[LogitProcessor] = (),
    ) -> None:
        self._phrases = phrases
        self._limits = limits
        self._continues_word = continues_word
        self._continuing = frozenset(torch.nonzero(continues_word).flatten().tolist())
        self._processors = processors
        sizes = np.array([sum(map(len, of_one)) for of_one in phrases])
        self.num_slots = beam_size + int(sizes.max(initial=0))
        self._num_unused = self.num_slots - beam_size - sizes
        self._known: list[dict[bytes, PhraseProgress]] = [{} for _ in phrases]

    def restrict(self, log_probs: Tensor, prefixes: Prefixes) -> None:
        """Edit the log-probabilities of the next token (B, W, V): a `LogitProcessor`."""
        num_left = self._limits[prefixes.sentences] - prefixes.tokens.shape[2] - 1
        lines = self._constrained(prefixes)
        if self._processors:
            wanted = [
                (line, slot, token)
                for line in lines
                for slot in range(log_probs.shape[1])
                for token in self._progress(prefixes, line, slot).next_tokens()
            ]
            index = torch.tensor(wanted, dtype=torch.long, device=log_probs.device).view(-1, 3)
            apply_except_at(index.unbind(1), self._processors, log_probs, prefixes)
        for line in lines:
            for slot in range(log_probs.shape[1]):
                progress = self._progress(prefixes, line, slot)
                row = log_probs[line, slot]
                if progress.just_ended:
                    row.masked_fill_(self._continues_word, -torch.inf)
                if progress.missing:
                    row[EOS_ID] = -torch.inf
                    if sum(map(len, progress.missing)) >= num_left[line]:
                        _keep_only(row, progress.next_tokens())

    def __call__(self, log_probs: Tensor, scores: Tensor, prefixes: Prefixes) -> Continuations:
        """Choose continuations, of each bank the best: a `Selection`."""
        num_open = prefixes.num_open - self._num_unused[prefixes.sentences]
        best = select_best(
            log_probs,
            scores,
            Prefixes(prefixes.sentences, prefixes.tokens, num_open, prefixes.groups),
        )
        lines = self._constrained(prefixes)
        if not lines:
            return best
        width = max(best.scores.shape[1], int(num_open[lines].max()))
        result = Continuations(
            scores=np.full((len(num_open), width), -np.inf, dtype=np.float32),
            slots=np.zeros((len(num_open), width), dtype=np.int64),
            tokens=np.zeros((len(num_open), width), dtype=np.int64),
        )
        for field in ("scores", "slots", "tokens"):
            getattr(result, field)[:, : best.scores.shape[1]] = getattr(best, field)
        forced = self._forced(log_probs, scores, prefixes, lines)
        for line in lines:
            free = zip(best.scores[line], best.slots[line], best.tokens[line], strict=True)
            candidates = {(int(s), int(t)): float(x) for x, s, t in free if x > -np.inf}
            candidates |= forced[line]
            chosen = self._share(prefixes, line, candidates, int(num_open[line]))
            result.scores[line] = -np.inf
            for place, (slot, token) in enumerate(chosen):
                result.scores[line, place] = candidates[slot, token]
                result.slots[line, place], result.tokens[line, place] = slot, token
        return result

    def _forced(
        self, log_probs: Tensor, scores: Tensor, prefixes: Prefixes, lines: Sequence[int]
    ) -> dict[int, dict[tuple[int, int], float]]:
        """Return what no beam may leave out: each hypothesis with its best token, and its next."""
        favourites = log_probs[lines].argmax(-1).cpu().numpy()
        places = [
            (line, slot, token)
            for line, best in zip(lines, favourites, strict=True)
            for slot in range(log_probs.shape[1])
            for token in (
                int(best[slot]),
                *self._progress(prefixes, line, slot).next_tokens(),
            )
        ]
        index = torch.tensor(places, device=log_probs.device).T
        values = log_probs[tuple(index)] + scores[index[0], index[1]]
        found: dict[int, dict[tuple[int, int], float]] = defaultdict(dict)
        for (line, slot, token), value in zip(places, values.tolist(), strict=True):
            if value != -np.inf:
                found[line][slot, token] = value
        return found

    def _share(
        self,
        prefixes: Prefixes,
        line: int,
        candidates: dict[tuple[int, int], float],
        num_open: int,
    ) -> list[tuple[int, int]]:
        """Choose candidates (slot, token) for the open slots of a sentence, best first."""
        order = sorted(candidates, key=lambda place: (-candidates[place], place))
        num_banks = 1 + sum(map(len, self._phrases[prefixes.sentences[line]]))
        banks = [
            num_banks - 1 - self._after(self._progress(prefixes, line, slot), token).num_missing
            for slot, token in order
        ]
        shares = np.full(num_banks, num_open // num_banks)
        shares[-1] += num_open % num_banks
        is_chosen = np.zeros(len(order), dtype=bool)
        for place, bank in enumerate(banks):
            if shares[bank] > 0:
                is_chosen[place] = True
                shares[bank] -= 1
        others = np.flatnonzero(~is_chosen)[: num_open - is_chosen.sum()]
        is_chosen[others] = True
        return [place for place, wanted in zip(order, is_chosen, strict=True) if wanted]

    def _constrained(self, prefixes: Prefixes) -> list[int]:
        return [line for line, i in enumerate(prefixes.sentences) if self._phrases[i]]

    def _progress(self, prefixes: Prefixes, line: int, slot: int) -> PhraseProgress:
        """Return how far a hypothesis is, from how far it was one token ago."""
        sentence = int(prefixes.sentences[line])
        tokens = prefixes.tokens[line, slot]
        known = self._known[sentence]
        key = tokens.tobytes()
        if key not in known:
            before = known.get(tokens[:-1].tobytes()) if tokens.size else None
            if before is not None:
                known[key] = self._after(before, int(tokens[-1]))
            else:
                known[key] = functools.reduce(
                    self._after, tokens.tolist(), PhraseProgress(self._phrases[sentence])
                )
        return known[key]

    def _after(self, progress: PhraseProgress, token: int) -> PhraseProgress:
        return progress.after(token, continues_word=token in self._continuing)


def _keep_only(row: Tensor, tokens: Sequence[int]) -> None:
    """Set log-probabilities (V,) to -inf, but for some tokens."""
    index = torch.tensor(tokens, device=row.device)
    kept = row[index]
    row.fill_(-torch.inf)
    row[index] = kept
