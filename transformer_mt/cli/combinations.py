"""Options of `tmt translate` that have no effect, or cannot be had, beside or without others."""

from collections.abc import Collection, Mapping

from transformer_mt.errors import ConfigError

NEEDS: Mapping[str, tuple[str, ...]] = {
    "--samples": ("--mbr",),
    "--alignment-layer": ("--alignments", "--attention"),
    "--attention": ("--json",),
    "--alternatives": ("--json",),
    "--timings": ("--json",),
}
"""What an option changes or is written with: one of these."""

PHRASES = ("--constraints", "--glossary", "--tab constraints")
SAMPLES = ("--sample", "--mbr")

CLASHES: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...] = (
    (("--sample",), ("--mbr",), "it draws samples by itself"),
    (("--beam-size",), ("--sample",), "--n-best N gives N samples"),
    (("--beam-size",), ("--mbr",), "--samples N draws N translations"),
    (("--beam-groups",), SAMPLES, "samples do not avoid each other"),
    (
        ("--length-penalty", "--length-penalty-kind", "--coverage-penalty"),
        ("--mbr",),
        "samples are ranked by what they have in common",
    ),
    (("--shortlist",), (*SAMPLES, "a second --model"), "it goes with beam search and one model"),
    (PHRASES, (*SAMPLES, "--beam-groups"), "only plain beam search can hold phrases"),
    (
        ("--alignments", "--attention"),
        ("--protect",),
        "they count words of the text that the model saw, which it changes",
    ),
)
"""Options that do not go with others, and why."""


def check_together(used: Collection[str]) -> None:
    """Refuse options that do not go together.

    Args:
        used: Names of options that were given; those of no interest here do not matter.

    Raises:
        ConfigError: Names two of them.
    """
    for name, needed in NEEDS.items():
        if name in used and not any(other in used for other in needed):
            raise ConfigError(f"{name} has no effect without {' or '.join(needed)}: add it")
    for names, others, reason in CLASHES:
        for name in names:
            for other in others:
                if name in used and other in used:
                    raise ConfigError(f"{name} does not go with {other}: {reason}; drop one")
