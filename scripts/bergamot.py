"""A model exported to Bergamot, run by its WebAssembly client under Node, and compared with ours.

    npm install @browsermt/bergamot-translator
    echo '{"type": "commonjs"}' > node_modules/@browsermt/bergamot-translator/worker/package.json
    python scripts/bergamot.py --model runs/mine --check test.en --references test.de

The second line mends version 0.4.9, whose worker Node takes for a module. Prints one line for each
type of weights: the share of greedy translations that are the same, and BLEU here and there.
Translations that reach the length limit are compared by BLEU alone: the client's limit depends on
the longest sentence of a batch.
"""

import argparse
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from transformer_mt.bundle import Bundle, load_bundle
from transformer_mt.exchange.export import card_program, export
from transformer_mt.exchange.settings import BERGAMOT, Quantization
from transformer_mt.locations import find_bundle
from transformer_mt.metrics.scores import score
from transformer_mt.translation.batch_search import BatchSearch
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.requests import Request

MAX_FACTOR = 2.0
"""Longest translation for each token of the source, in that client."""
AT_ONCE = 32


def main() -> None:
    """Export, translate with both, compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="run or bundle")
    parser.add_argument("--check", type=Path, required=True, help="source sentences")
    parser.add_argument("--references", type=Path, required=True, help="their translations")
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--modules", type=Path, default=Path("node_modules"), help="of npm")
    arguments = parser.parse_args()
    sources, references = (
        path.read_text(encoding="utf-8").splitlines()[: arguments.sentences]
        for path in (arguments.check, arguments.references)
    )
    bundle = load_bundle(find_bundle(arguments.model))
    ours, ended = here(bundle, sources)
    for quantization in BERGAMOT.quantizations:
        with TemporaryDirectory() as folder:
            exported = Path(folder) / "exported"
            export(bundle, "bergamot", exported, sentences=None, quantization=quantization)
            (Path(folder) / "node_modules").symlink_to(arguments.modules.resolve())
            theirs = there(bundle, exported, sources, quantization)
        same = sum(ours[i] == theirs[i] for i in ended) / len(ended)
        bleu = [
            score(lines, references, metrics=["bleu"], tgt_lang=bundle.config.data.tgt_lang)[0]
            for lines in (ours, theirs)
        ]
        print(
            f"{quantization}: greedy {same:.1%} of {len(ended)} identical; {len(ours)} sentences, "
            f"BLEU {bleu[0].value:.2f} here, {bleu[1].value:.2f} there"
        )


def here(bundle: Bundle, sources: Sequence[str]) -> tuple[list[str], list[int]]:
    """Translate greedily with our program; return, too, which ended before the limit."""
    options = SearchOptions(beam_size=1, max_length_factor=MAX_FACTOR, max_length_offset=2)
    search = BatchSearch(bundle, options, None)
    ids = list(map(bundle.tokenizers.src.encode, sources))
    found = []
    for start in range(0, len(sources), AT_ONCE):
        requests = [Request(tuple(source)) for source in ids[start : start + AT_ONCE]]
        found += [own[0].tokens for own in search(requests)]
    pairs = enumerate(zip(ids, found, strict=True))
    ended = [i for i, (source, target) in pairs if len(target) < MAX_FACTOR * len(source)]
    return list(map(bundle.tokenizers.tgt.decode, found)), ended


def there(
    bundle: Bundle, exported: Path, sources: Sequence[str], quantization: Quantization
) -> list[str]:
    """Translate greedily with the program of the model card, which reads lines here."""
    program = card_program(bundle, "bergamot", quantization)
    path = exported / "translate.mjs"
    path.write_text(program, encoding="utf-8")
    done = subprocess.run(
        ["node", path.name, "1"], cwd=exported, input="\n".join(sources) + "\n", text=True,
        capture_output=True, check=True,
    )  # fmt: skip
    return [line.strip() for line in done.stdout.splitlines()]


if __name__ == "__main__":
    main()
