"""Share of placeholders and tags that `tmt translate --protect` preserves, and its cost in BLEU.

Placeholders and tags are put at random places of source lines; the translation without them is
scored, so that the figure beside that of the plain lines is the harm done to the text. Compared
with translating what stands between the marks by itself.

    python -m experiments.protection MODEL SRC REF [--num-lines 300]
"""

import argparse
import random
import re
from pathlib import Path

from sacrebleu.metrics import BLEU

from transformer_mt.bundle import load_bundle
from transformer_mt.locations import find_bundle
from transformer_mt.text.marks import PROTECTED, marks_in, missing
from transformer_mt.translation.markup.protection import Protector
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.translator import Translator


def insert(line: str, kind: str, rng: random.Random) -> str:
    """Put marks of a kind at a random place."""
    words = line.split()
    place = rng.randrange(len(words))
    if kind == "tags":
        words[place] = f"<b>{words[place]}</b>"
    elif kind == "two pairs of tags":
        for other, name in zip(rng.sample(range(len(words)), 2), "bi", strict=True):
            words[other] = f"<{name}>{words[other]}</{name}>"
    else:
        words.insert(place, {"placeholder": "{name}", "URL": "https://example.com/a?b=1"}[kind])
    return " ".join(words)


def main() -> None:
    """Print a line for each kind of marks and way to keep them."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "src", "ref"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--num-lines", type=int, default=300)
    arguments = parser.parse_args()
    sources, references = (
        path.read_text(encoding="utf-8").split("\n")[: arguments.num_lines]
        for path in (arguments.src, arguments.ref)
    )
    translator = Translator(load_bundle(find_bundle(arguments.model)), SearchOptions())

    def bleu(texts: list[str]) -> str:
        """Score texts without what was to be protected."""
        plain = [re.sub(" +", " ", PROTECTED.sub("", text)).strip() for text in texts]
        return f"{BLEU().corpus_score(plain, [references]).score:.1f}"

    print("plain lines: BLEU", bleu([t.text for t in translator.translate(sources)]))
    for kind in ("placeholder", "URL", "tags", "two pairs of tags"):
        rng = random.Random(1)
        lines = [insert(line, kind, rng) for line in sources]
        protector = Protector(translator)
        ways = {"as text": translator.translate(lines), "--protect": protector.translate(lines)}
        for way, found in ways.items():
            texts = [translation.text for translation in found]
            whole = sum(
                not missing(marks_in(a), b) for a, b in zip(lines, texts, strict=True)
            ) / len(lines)
            print(f"{kind}, {way}: lines with all marks {whole:.1%}, BLEU {bleu(texts)}")
        print(f"  {protector.counts}")


if __name__ == "__main__":
    main()
