"""Options of `tmt translate` that need or exclude each other."""

from collections.abc import Collection, Mapping

import typer

from transformer_mt.cli.options import changed_settings, given_options, search_options_of
from transformer_mt.errors import ConfigError

SETTINGS_FOR_JSON = ("decoding.attention", "decoding.alternatives")
NEEDS: Mapping[str, tuple[str, ...]] = {
    "decoding.mbr_samples": ("decoding.mbr",),
    "--corrections": ("--interactive",),
    "decoding.alignment_layer": ("--alignments", "decoding.attention"),
    **dict.fromkeys(SETTINGS_FOR_JSON, ("--json",)),
}
"""Options and settings that have an effect only with one of these."""

PHRASES = ("--constraints", "--glossary", "--tab constraints")
SAMPLES = ("--sample", "decoding.mbr")
CLASHES: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...] = (
    (("--sample",), ("decoding.mbr",), "it samples by itself"),
    (("--beam-size",), ("--sample",), "--n-best N gives N samples"),
    (("--beam-size",), ("decoding.mbr",), "decoding.mbr_samples is the number of samples"),
    (("decoding.beam_groups",), SAMPLES, "samples do not avoid each other"),
    (
        ("--length-penalty", "decoding.length_penalty_kind", "decoding.coverage_penalty"),
        ("decoding.mbr",),
        "samples are ranked by what they have in common",
    ),
    (
        ("decoding.shortlist",),
        (*SAMPLES, "a second --model"),
        "it needs beam search and one model",
    ),
    (
        PHRASES,
        (*SAMPLES, "decoding.beam_groups"),
        "only plain beam search can enforce phrases",
    ),
    (
        ("--alignments", "decoding.attention"),
        ("--protect",),
        "they count words of the text that the model saw, which it changes",
    ),
    (
        ("--interactive",),
        (
            *("--input", "--output", "--json", "--n-best", "--prefix", "--constraints", "--tab"),
            *("--alignments", "--protect", "--split-sentences", "--sample", "decoding.mbr"),
            *("--format", "--memory"),
        ),
        "it answers one sentence after the other",
    ),
)
"""Options and settings that exclude each other, and why."""


def checked_search_options(ctx: typer.Context) -> dict[str, object]:
    """Return the options of the search; refuse those that do not go together.

    Raises:
        ConfigError: Names two of them, or one that is out of its bounds.
    """
    given = search_options_of(ctx)
    more = {
        "a second --model": len(ctx.params["model"] or []) > 1,
        "--tab constraints": ctx.params["tab"] == "constraints",
    }
    names = [*given_options(ctx), *changed_settings(ctx, given)]
    _check_together([*names, *(name for name, is_so in more.items() if is_so)])
    n_best, beam_size = ctx.params["n_best"], given.get("beam_size")
    if isinstance(beam_size, int) and n_best > beam_size:
        raise ConfigError(f"--n-best {n_best} needs --beam-size {n_best} or more; got {beam_size}")
    return given


def _check_together(used: Collection[str]) -> None:
    """Refuse options and settings that do not go together; other names do not matter."""
    for name, needed in NEEDS.items():
        if name in used and not any(other in used for other in needed):
            raise ConfigError(f"{name} has no effect without {' or '.join(needed)}: add it")
    for names, others, reason in CLASHES:
        for name in names:
            for other in others:
                if name in used and other in used:
                    raise ConfigError(f"{name} does not go with {other}: {reason}; drop one")
