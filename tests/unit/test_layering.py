"""The rules on what may import what, read from the syntax trees of the package."""

import ast
import graphlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "transformer_mt"

# A module imports only from layers below its own; those in one layer never meet.
LAYERS = [
    {"errors", "processes", "processors"},
    {"storage"},
    {"config", "extras", "log", "versions"},
    {"plots", "locations"},
    {"text", "metrics"},
    {"documents", "packing", "out_of_memory"},
    {"data", "nn"},
    {"models", "devices"},
    {"bundle", "search"},
    {"cleaning", "translation"},
    {"evaluation", "explain", "assessment"},
    {"training", "exchange"},
    {"benchmarks", "comparison", "api", "run_list"},
    {"doctor", "serving"},
    {"cli"},
    {"__main__"},
]
RANK = {unit: rank for rank, units in enumerate(LAYERS) for unit in units}
# The same inside the big packages: a module imports only from floors below its own.
FLOORS = {
    package: [floor.split() for floor in floors]
    for package, floors in {
        "search": [
            "continuations hypothesis length_penalty",
            "beams logit_processors",
            "coverage diverse_beams phrase_constraints sampling trace",
            "beam_search",
        ],
        "translation": [
            "batching directions document_encoder options workers",
            "glossary lines_in_context long_lines memory",
            "requests results",
            "detokenize keywords mbr scoring shortlist",
            "batch_search",
            "translator",
            "alignment completions corrections load rescoring shards",
            "synthetic",
            "filling markup.placement",
            "markup.protection",
            "model",
        ],
        "training": [
            "activation_checkpointing freezing layer_compilation schedules signals state "
            "threads trackers working_weights",
            "distributed progress",
            "gradients sharding update_stats",
            "attention_kernel optimizers",
            "checkpoint muon update",
            "divergence run_directory",
            "averaging data_facts disk_space run_tokenizers holding_out warm_start",
            "prepare_data",
            "build micro_batches run validation",
            "model_selection resuming verification",
            "reporting",
            "trainer",
        ],
        "nn": [
            "padding",
            "decode_cache dropout kernels.capability kernels.expensive_operators "
            "kernels.foreach kernels.kernel_check kernels.length_groups kernels.short_tiles "
            "kernels.step_attention linear loss patterns sinusoids",
            "positional_encoding",
            "kernels.block_sparse kernels.cpu_linear masks recurrent",
            "attention kernels.cpu_attention kernels.flex kernels.short_attention "
            "recurrent_attention",
            "convolution kernels.padded layers patches",
            "initialization kernels.varlen low_rank recorded_attention",
            "kernels.dispatch",
            "kernels.choice",
        ],
        "cli": [
            "constraint_inputs input_warnings options output_files pair_inputs streaming",
            "command input_lines model_loading option_conflicts translation_output",
            "shard_options",
            "data_sample data_split data_stats document_translation evaluation_extras export "
            "interactive scoring_options shard_translation synthetic_options",
            "comparison_output evaluation_output",
            "average backtranslate bench clean compare config data distill doctor evaluate explain "
            "import_ init inspect main plot rescore runs score serve shortlist tokenizer train "
            "translate verify",
        ],
    }.items()
}
FLOOR = {
    f"{package}.{module}": number
    for package, floors in FLOORS.items()
    for number, floor in enumerate(floors)
    for module in floor
}
WITHOUT_TORCH = {unit for units in LAYERS[:5] for unit in units}
PICKLERS = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
VAGUE_NAMES = {"utils", "util", "helpers", "common", "constants", "misc"}


def modules() -> list[Path]:
    found = [path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "__init__.py"]
    assert len(found) >= 25
    return found


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


def imports(tree: ast.AST) -> Iterator[str]:
    """Yield the full name of everything imported, in functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def private_names_of_torch(tree: ast.AST) -> Iterator[str]:
    """Yield uses of what any version of torch may change: names that begin with an underscore."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            if re.fullmatch(r"torch(\.\w+)*\._[a-z]\w*", name):
                yield name
    for name in imports(tree):
        if re.match(r"torch\b.*\._[a-zA-Z]", name):
            yield name


def complaints(name: str, source: str) -> list[str]:
    """List what a module of the package does against the rules."""
    unit = name.split(".")[1]
    tree = ast.parse(source)
    found = []
    for imported in imports(tree):
        first, _, rest = imported.partition(".")
        other = rest.split(".")[0]
        if first == "torch" and unit in WITHOUT_TORCH:
            found.append(f"{name} imports torch")
        if first in PICKLERS:
            found.append(f"{name} imports {first}")
        if first == PACKAGE.name and other in RANK and other != unit and RANK[other] >= RANK[unit]:
            found.append(f"{name} imports {imported}")
        own = name.partition(".")[2]
        floors = [FLOOR[m] for m in (rest, rest.rpartition(".")[0]) if m in FLOOR and m != own]
        if other == unit and own in FLOOR and any(floor >= FLOOR[own] for floor in floors):
            found.append(f"{name} imports {imported}, which is on no floor below")
    if not name.startswith(f"{PACKAGE.name}.nn.kernels."):
        found += [f"{name} uses {private}" for private in private_names_of_torch(tree)]
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        loads = ast.unparse(call.func) == "torch.load"
        if loads and keywords.get("weights_only") != "True":
            found.append(f"{name}:{call.lineno} loads a pickle")
        if keywords.get("allow_pickle", "False") != "False":
            found.append(f"{name}:{call.lineno} allows pickles")
    return found


@pytest.mark.parametrize(
    ("name", "source", "complaint"),
    [
        ("nn.loss", "from transformer_mt.data.batches import Batch", "imports transformer_mt.data"),
        ("data.batches", "from transformer_mt.nn import packing", "imports transformer_mt.nn"),
        ("config.base", "import transformer_mt.log", "imports transformer_mt.log"),
        ("models.build", "from transformer_mt import bundle", "imports transformer_mt.bundle"),
        (
            "models.build",
            "def f():\n    import transformer_mt.cli.main",
            "imports transformer_mt.c",
        ),
        (
            "search.beams",
            "from transformer_mt.search import beam_search",
            "beam_search, which is on no floor below",
        ),
        (
            "translation.scoring",
            "from transformer_mt.translation.mbr import by_expected_utility",
            "which is on no floor below",
        ),
        ("text.lines", "def f():\n    from torch import nn", "imports torch"),
        ("training.state", "import pickle", "imports pickle"),
        ("training.state", "torch.load(path)", "loads a pickle"),
        ("data.corpus", "np.load(path, allow_pickle=True)", "allows pickles"),
        ("training.muon", "torch._foreach_add_(a, b)", "uses torch._foreach_add_"),
        ("models.costs", "torch.ops.aten._softmax(x)", "uses torch.ops.aten._softmax"),
        ("nn.layers", "from torch._C import Store", "uses torch._C.Store"),
    ],
)
def test_rules_catch_what_they_forbid(name: str, source: str, complaint: str) -> None:
    found = complaints(f"transformer_mt.{name}", source)
    assert len(found) == 1
    assert complaint in found[0]


def test_imports_point_downwards_and_nothing_pickles() -> None:
    found = [
        complaint
        for path in modules()
        for complaint in complaints(name_of(path), path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_every_module_has_a_layer() -> None:
    units = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in modules()}
    assert units - set(RANK) == set()


@pytest.mark.parametrize("package", FLOORS)
def test_every_module_of_a_big_package_has_a_floor(package: str) -> None:
    paths = [path.relative_to(PACKAGE).with_suffix("") for path in modules()]
    names = {".".join(path.parts[1:]) for path in paths if path.parts[0] == package}
    assert names == {module for floor in FLOORS[package] for module in floor}


def test_modules_do_not_import_each_other_in_circles() -> None:
    names = {name_of(path) for path in modules()}
    graph: dict[str, set[str]] = {}
    for path in modules():
        imported = set(imports(ast.parse(path.read_text(encoding="utf-8"))))
        imported |= {name.rpartition(".")[0] for name in imported}
        graph[name_of(path)] = imported & names
    order = list(graphlib.TopologicalSorter(graph).static_order())  # CycleError has the circle
    assert set(order) == names


def test_init_files_are_empty() -> None:
    found = [path for path in PACKAGE.glob("*/**/__init__.py") if path.read_text().strip()]
    assert found == []


def test_every_folder_is_a_package() -> None:
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_names_say_what_is_inside() -> None:
    names = {part for path in modules() for part in path.relative_to(PACKAGE).with_suffix("").parts}
    assert names & VAGUE_NAMES == set()


def test_modules_of_tests_have_names_of_their_own() -> None:
    names = Counter(path.name for path in PACKAGE.parent.glob("tests/**/test_*.py"))
    assert [name for name, number in names.items() if number > 1] == []  # pytest needs it
