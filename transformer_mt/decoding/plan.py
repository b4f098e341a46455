"""What the options of a run mean for the search of one batch."""

from collections.abc import Sequence

from transformer_mt.decoding.candidates import Selection, select_best
from transformer_mt.decoding.options import SearchOptions
from transformer_mt.decoding.sampling import Sampling


def selection_of(options: SearchOptions, sources: Sequence[tuple[int, ...]]) -> Selection:
    """Return what chooses the hypotheses to go on with."""
    if options.sample:
        return Sampling(
            sources,
            num_samples=options.n_best,
            seed=options.seed,
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
        )
    return select_best
