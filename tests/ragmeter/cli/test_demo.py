"""`ragmeter demo`: its parts, and what it leaves out. The whole of it runs in tests/test_wheel.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from benchmarks.core.errors import UserError
from methods.registry import METHODS
from ragmeter import experiment as experiments
from ragmeter.board_text import in_words
from ragmeter.cli import demo
from ragmeter.cli.demo import PARTS
from ragmeter.console import Folding


def test_each_approach_is_trained_by_its_demo_preset_and_read_back(tmp_path: Path) -> None:
    trained = {}
    for name in PARTS:
        experiment = experiments.load(name, store=tmp_path)
        for training in experiment.trainings:
            assert training.config == type(training.config).model_validate(training.entry.validate({"preset": "demo"}))
            using = [method for method in experiment.methods if training in method.needs]
            trained[training.entry.id] = {component.id for method in using for component in method.components}
    assert set(trained) == {"ark", "gpr", "sark"}
    assert all(name in parts for name, parts in trained.items())


def test_the_approach_that_takes_longer_is_carried_by_the_package(tmp_path: Path) -> None:
    experiment = experiments.load("demo-compression", store=tmp_path)
    models = {
        method.name: method.composition.method.config.model for method in experiment.methods if method.composition.method.id == "clara"
    }
    assert models == {"CLaRa": "clara-pocket"}


def test_every_approach_is_a_row_of_the_last_table(tmp_path: Path) -> None:
    names = {method.name for part in PARTS for method in experiments.load(part, store=tmp_path).methods}
    assert set(demo.APPROACHES) <= names


def test_every_part_compares_with_a_method_that_is_not_trained(tmp_path: Path) -> None:
    for name in PARTS:
        experiment = experiments.load(name, store=tmp_path)
        (reference,) = [method for method in experiment.methods if method.name == experiment.reference]
        assert not reference.needs
        assert METHODS.get(reference.composition.method.id).kind != "control"


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: Callable[..., Any]) -> Callable[..., Any]:
    """The command with its parts left out."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(demo, "run_and_show", lambda *_: (0, {}))
    monkeypatch.setattr(demo, "BEHIND", {})
    monkeypatch.setattr(demo, "show_approaches", lambda parts, *_, **__: print("last table", len(parts)))
    return lambda *words: call("demo", "--store", str(tmp_path / "store"), *words)


def test_real_samples_that_are_not_here_are_left_out_and_a_fault_in_them_costs_the_rest_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: Callable[..., Any]
) -> None:
    (tmp_path / "data" / "musique").mkdir(parents=True)
    (tmp_path / "data" / "musique" / "musique_ans_v1.0_train.jsonl").write_text("{}\n")
    monkeypatch.setenv("RAGMETER_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(demo, "PARTS", {"demo": ("f1",)})
    references: dict[str, list[str]] = {}

    def run(experiment: experiments.Experiment, *_: Any) -> tuple[int, dict[str, Any]]:
        references[experiment.name] = [str(benchmark.reference) for benchmark in experiment.benchmarks]
        if experiment.name == "demo-real":
            raise UserError("this record cannot be read")
        return 1, {}

    monkeypatch.setattr(demo, "run_and_show", run)
    done = called()
    assert references["demo-real"] == ["musique/ans:train"]
    assert "hotpotqa/distractor:train, 2wikimultihopqa:dev" in done.err
    assert "this record cannot be read" in done.err
    assert done.out.startswith("last table 1\nstored in ")
    assert " leaderboard --open --store " in done.out
    assert done.code == 1  # of 1 and 2, as docs/cli.md has it


def test_without_any_real_sample_their_part_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: Callable[..., Any]) -> None:
    monkeypatch.setenv("RAGMETER_DATA", str(tmp_path))
    monkeypatch.setattr(demo, "PARTS", {})
    monkeypatch.setattr(demo, "run_and_show", lambda *_: pytest.fail("nothing is there to be run"))
    assert called().code == 0


@pytest.mark.slow
def test_it_says_what_comes_and_how_far_it_is(monkeypatch: pytest.MonkeyPatch, called: Callable[..., Any]) -> None:
    monkeypatch.delenv("RAGMETER_DATA", raising=False)
    response = " ".join(called().err.split())
    assert "4 parts: demo, demo-graph, demo-styles, demo-compression; seven to eight minutes on two cores" in response
    assert [f"{n} of 4: {name}" in response for n, name in enumerate(PARTS, start=1)] == [True] * 4
    # A smaller one promises no time, and a quiet one says nothing.
    assert "minutes" not in called("--limit", "2").err
    assert called("--quiet").err == ""


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        ("worlds/long:test", "worlds/long:test"),
        ("worlds/multihop:test(mix=single:1)", "worlds/multihop:test"),
        ("styled:test(worlds/multihop,formal=1,seed=0)", "worlds/multihop:test, formal"),
        ("styled:test(worlds/multihop,informal=0.5,by=rule,seed=0)", "worlds/multihop:test, 50 % informal"),
    ],
)
def test_the_last_table_names_datasets_briefly(dataset: str, expected: str) -> None:
    assert in_words(dataset) == expected


ROWS = [
    ("ARK", "worlds/long:test", "recall@5", "dense + pocket"),
    ("GPR", "worlds/graph:test", "answer_entity_recall@20", "Two tower (mean)"),
    ("SARK", "worlds/multihop:test, 50 % informal", "mrr@5", "cosine"),
]


def drawn(width: int) -> list[str]:
    value = Text("63.4 ± 4.2†\n+12.1 ± 13.0 **†")
    console = Console(width=width, color_system=None)
    with console.capture() as shown:
        console.print(demo.approaches_table((a, query, m, value, r) for a, query, m, r in ROWS))
    return shown.get().splitlines()


def test_the_last_table_breaks_no_word_in_a_terminal_of_80_columns() -> None:
    lines = drawn(80)
    assert all(len(line) <= 80 for line in lines)
    words = {word.strip("/:,") for line in lines for word in line.split()}
    for word in ("worlds/long", "multihop:test", "worlds/graph", "test", "informal", "answer_entity_", "recall@20"):
        assert word in words
    assert sum("63.4 ± 4.2†" in line for line in lines) == len(ROWS)
    assert "dense + pocket" in lines[1]


def test_the_last_table_breaks_nothing_where_there_is_room() -> None:
    lines = drawn(120)
    assert len(lines) == 1 + 2 * len(ROWS)
    for approach, query, metric, reference in ROWS:
        assert any(all(name in line for name in (approach, query, metric, reference)) for line in lines)


def test_an_untrusted_name_is_no_markup_and_one_without_separators_still_fits() -> None:
    console = Console(width=10, color_system=None)
    with console.capture() as shown:
        for name in ("[red]x[/red]", "a" * 25, "", "/::", "two words"):
            console.print(Folding(name))
    assert shown.get().splitlines() == ["[red]x[/", "red]", "a" * 10, "a" * 10, "a" * 5, "", "/::", "two words"]
