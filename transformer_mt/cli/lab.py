"""`tmt lab`: experiments that explain why the Transformer is as it is."""

import dataclasses
import logging
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from transformer_mt.cli.command import examples
from transformer_mt.cli.options import ConfigArgument, ConfigName, Overrides, either, read_numbers
from transformer_mt.cli.output_files import check_output
from transformer_mt.config.loading import find_config, load_config
from transformer_mt.errors import ConfigError

logger = logging.getLogger(__name__)

group = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Experiments that explain, with figures and numbers.",
    epilog=examples(
        "tmt lab schedule --config base",
        "tmt lab scaling",
        "tmt lab complexity --output figures",
        "tmt lab memory --task copy",
    ),
)

Folder: TypeAlias = Annotated[
    Path, typer.Option("--output", metavar="DIR", help="Folder of the files.")
]


def register(app: typer.Typer) -> None:
    """Add `tmt lab` to the program."""
    app.add_typer(group, name="lab")


@group.command(
    epilog=examples("tmt lab schedule --config base", "tmt lab schedule multi30k_tiny --steps 6000")
)
def schedule(
    argument: ConfigArgument = None,
    config: ConfigName = None,
    steps: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=2,
            help="Updates of the run. Default: training.max_steps, else ten warm-ups.",
        ),
    ] = None,
    settings: Overrides = [],  # noqa: B006 - typer reads the default; nothing changes it
    output: Folder = Path("lab"),
) -> None:
    """Draw the schedules of the learning rate.

    All of them, with the peak and the warm-up of a config, by default those of `base`.

    Equation 3 of the paper's section 5.3 is `noam`.
    """
    _check(output, "schedule")
    if argument is None and config is None:
        config = "base"
    loaded = load_config(find_config(either(argument, config, "--config", "a config")), settings)

    from transformer_mt.lab.pictures import draw_schedules, save_experiment
    from transformer_mt.lab.schedules import schedule_curves

    warmup_steps = max(1, loaded.training.schedule.warmup_steps)
    curves = schedule_curves(
        loaded.training,
        d_model=loaded.model.d_model,
        num_steps=steps or loaded.training.max_steps or 10 * warmup_steps,
    )
    rows = [
        {"step": step, **{name: rates[i] for name, rates in curves.rates.items()}}
        for i, step in enumerate(curves.steps)
    ]
    for path in save_experiment("schedule", draw_schedules(curves), rows, output):
        typer.echo(path)


@group.command(epilog=examples("tmt lab scaling", "tmt lab scaling --keys 16"))
def scaling(
    num_keys: Annotated[
        int, typer.Option("--keys", metavar="N", min=2, help="Keys that each query sees.")
    ] = 64,
    output: Folder = Path("lab"),
) -> None:
    """Show what dividing scores by sqrt(d_k) does.

    Random queries and keys, as in footnote 4 of the paper's section 3.2.1: without the division
    the scores grow with sqrt(d_k), one key takes all the weight, and gradients vanish.
    """
    _check(output, "scaling")

    from transformer_mt.lab.pictures import draw_scaling, save_experiment
    from transformer_mt.lab.scaling import measure_scaling

    points = measure_scaling(num_keys=num_keys)
    rows = [dataclasses.asdict(point) for point in points]
    figure = draw_scaling(points, num_keys=num_keys)
    typer.echo(f"{'d_k':>5}  divided  deviation  entropy  greatest weight  gradient")
    for point in points:
        typer.echo(
            f"{point.d_k:>5}  {'yes' if point.divided else 'no':>7}  {point.score_deviation:>9.2f}"
            f"  {point.entropy_nats:>7.2f}  {point.largest_weight:>15.3f}"
            f"  {point.gradient_norm:>8.2g}"
        )
    for path in save_experiment("scaling", figure, rows, output):
        typer.echo(path)


@group.command(
    epilog=examples("tmt lab complexity", "tmt lab complexity --lengths 512,1024,2048,4096,8192")
)
def complexity(
    lengths: Annotated[
        str, typer.Option(metavar="N,N,..", help="Tokens of the sequences; two or more.")
    ] = "256,512,1024,2048,4096",
    output: Folder = Path("lab"),
) -> None:
    """Measure a layer's time and memory by length.

    The paper's Table 1, measured: self-attention of a decoder, restricted, strided and fixed; an
    LSTM; a convolution; all with 256 channels, forward and backward, one sequence, on the CPU.
    """
    _check(output, "complexity")
    numbers = _numbers(lengths)

    from transformer_mt.lab.complexity import exponents, measure_complexity
    from transformer_mt.lab.pictures import draw_complexity, save_experiment

    costs = measure_complexity(numbers)
    fitted = exponents(costs)
    typer.echo(f"{'layer':<12}{'tokens':>8}{'seconds':>10}{'MiB':>9}")
    for cost in costs:
        typer.echo(
            f"{cost.layer:<12}{cost.length:>8,}{cost.seconds:>10.4f}"
            f"{cost.memory_bytes / 2**20:>9,.1f}"
        )
    for layer, (time, memory) in fitted.items():
        typer.echo(f"{layer:<12}time n^{time:.2f}, memory n^{memory:.2f} at the greatest lengths")
    rows = [dataclasses.asdict(cost) for cost in costs]
    for path in save_experiment("complexity", draw_complexity(costs), rows, output):
        typer.echo(path)


@group.command(epilog=examples("tmt lab memory", "tmt lab memory --task recall --updates 1000"))
def memory(
    task: Annotated[
        Literal["recall", "copy", "reverse"],
        typer.Option(help="Say the first symbol of the source, all of them, or all in reverse."),
    ] = "copy",
    updates: Annotated[int, typer.Option(metavar="N", min=1, help="Updates of each model.")] = 300,
    output: Folder = Path("lab"),
) -> None:
    """Show how far back models remember.

    Trains small models on random symbols, sources of 1 to 100 tokens, and tests them at some
    lengths: a plain RNN and an LSTM whose decoder gets the last state only, an LSTM with attention,
    and Transformers with each positional scheme.
    """
    _check(output, f"memory_{task}")

    from transformer_mt.lab.memory import measure_memory
    from transformer_mt.lab.pictures import draw_memory, save_experiment

    on_progress = partial(logger.info, "training: %s")
    points = measure_memory(task, num_updates=updates, on_progress=on_progress)
    distances = sorted({point.distance for point in points})
    typer.echo(f"{'accuracy at':<28}{''.join(f'{distance:>6}' for distance in distances)}")
    for model in dict.fromkeys(point.model for point in points):
        own = {point.distance: point.accuracy for point in points if point.model == model}
        typer.echo(f"{model:<28}{''.join(f'{own[distance]:>6.2f}' for distance in distances)}")
    rows = [dataclasses.asdict(point) for point in points]
    for path in save_experiment(f"memory_{task}", draw_memory(points, task=task), rows, output):
        typer.echo(path)


def _check(output: Path, name: str) -> None:
    """Refuse what could not be drawn or written, before anything is measured."""
    from transformer_mt.plots.style import check_matplotlib

    check_matplotlib()
    if output.exists() and not output.is_dir():
        raise ConfigError(f"cannot write into {output}: it is a file; name a folder")
    check_output(output / f"{name}.csv")


def _numbers(text: str) -> list[int]:
    numbers = sorted(set(read_numbers(text, int)))
    if len(numbers) < 2 or numbers[0] < 32:
        raise ConfigError(
            f"--lengths {text}: expected two or more numbers from 32 with commas between them"
        )
    return numbers
