"""Effort of interactive translation: how many words a person would type to get the reference.

A simulated person reads each translation up to the first word that differs from the reference,
types that word, and lets the rest be completed, until the whole reference is there.

    python scripts/interactive_effort.py --model runs/multi30k_transformer --lines 200 \
        --src test_2016_flickr.en --ref test_2016_flickr.de

Source: Barrachina et al. 2009, "Statistical approaches to computer-assisted translation" (word
stroke ratio); differs: a word that is among those offered is chosen, and counted by itself.
"""

import argparse
import itertools
from difflib import SequenceMatcher
from pathlib import Path

import transformer_mt as tmt
from transformer_mt.text.lines import read_lines
from transformer_mt.translation.completions import completions
from transformer_mt.translation.load import make_translator
from transformer_mt.translation.requests import Line
from transformer_mt.translation.translator import Translator

NUM_OFFERED = 5


def main() -> None:
    """Print the shares of words that are typed, chosen, and right by themselves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--src", type=Path, required=True)
    parser.add_argument("--ref", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=200)
    options = parser.parse_args()
    translator = make_translator(tmt.load(options.model, device="cpu").bundle, {})
    pairs = zip(read_lines(options.src), read_lines(options.ref), strict=True)
    num_words = num_chosen = num_typed = num_edited = 0
    for source, reference in itertools.islice(pairs, options.lines):
        words = reference.split()
        text = translator.translate([source])[0].text
        kept = SequenceMatcher(None, words, text.split(), autojunk=False).get_matching_blocks()
        chosen, typed = effort(translator, source, text, words)
        num_words += len(words)
        num_edited += len(words) - sum(block.size for block in kept)
        num_chosen, num_typed = num_chosen + chosen, num_typed + typed
    print(f"{num_words} words of {options.lines} references")
    print(f"not in the translation, so typed when it is edited: {num_edited / num_words:.1%}")
    print(f"completed: {num_chosen / num_words:.1%} are chosen from {NUM_OFFERED} words offered,")
    print(f"  {num_typed / num_words:.1%} are typed")


def effort(translator: Translator, source: str, text: str, words: list[str]) -> tuple[int, int]:
    """Return how many words are chosen from those offered, and how many typed.

    Args:
        translator: What translates.
        source: A sentence.
        text: Its translation.
        words: Of its reference.
    """
    chosen = typed = done = 0
    while True:
        found = text.split()
        while done < len(words) and found[done : done + 1] == words[done : done + 1]:
            done += 1
        if done == len(words):
            return chosen, typed
        prefix = "".join(f"{word} " for word in words[:done])
        others = completions(translator, Line(source, prefix=prefix), NUM_OFFERED + 1)
        offered = [one.text.split()[done : done + 1] for one in others]
        is_offered = [words[done]] in offered
        chosen, typed = chosen + is_offered, typed + (not is_offered)
        done += 1
        prefix += f"{words[done - 1]} "
        text = completions(translator, Line(source, prefix=prefix), 1)[0].text


if __name__ == "__main__":
    main()
