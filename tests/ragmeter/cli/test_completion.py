"""Tab completion: which names it offers for which word, how fast, and that it never fails visibly."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
import typer.main

from benchmarks.core import plugins
from benchmarks.registry import DATASETS
from judges.judge import JUDGES
from judges.metric import METRICS
from methods.registry import EXPLAINERS, METHODS
from methods.training import TRAININGS
from ragmeter import cli
from ragmeter.cli import completion
from results.store.queries import runs
from results.store.store import Store
from results.store.tags import tag_run

Tab = Callable[..., list[str]]
START = "import sys; sys.argv = ['ragmeter']; from ragmeter.cli import main\ntry: main()\nfinally: "


def typed(line: str, last: str = "pass", **environment: str) -> subprocess.CompletedProcess[str]:
    """Return bash's request for Tab after a line; `last` is executed before the process ends."""
    words = line.split(" ")
    env = {
        **os.environ,
        "_RAGMETER_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
        **environment,
    }
    return subprocess.run([sys.executable, "-c", START + last], capture_output=True, text=True, env=env)


@pytest.fixture
def answered_here(monkeypatch: pytest.MonkeyPatch, call: Callable[..., Any]) -> Callable[..., str]:
    """Return a shell's completions in this process, with variables in addition to those of bash."""

    def answered(**environment: str) -> str:
        with monkeypatch.context() as patch:
            for name, value in {"_RAGMETER_COMPLETE": "complete_bash", **environment}.items():
                patch.setenv(name, value)
            done = call()
        assert done.err == ""
        return done.out

    return answered


@pytest.fixture
def tab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answered_here: Callable[..., str]) -> Tab:
    """Return the offered words; there is no store unless the test names one."""
    monkeypatch.setenv("RAGMETER_STORE", str(tmp_path / "none"))

    def offered(line: str, **environment: str) -> list[str]:
        words = f"ragmeter {line}"
        settings = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), **environment}
        return list(filter(None, answered_here(**settings).splitlines()))

    return offered


@pytest.mark.parametrize(
    ("noun", "registry"),
    [
        ("method", METHODS),
        ("metric", METRICS),
        ("dataset", DATASETS),
        ("judge", JUDGES),
        ("training", TRAININGS),
        ("explainer", EXPLAINERS),
    ],
)
def test_ids_parsed_from_the_source_equal_the_registered_ids(noun: str, registry: Any) -> None:
    ours = {entry.id for entry in registry if registry.source(entry.id).partition(".")[0] in completion._REGISTRIES[noun]}
    assert set(completion._read_ids(noun)) == ours


def test_completion_offers_names_registered_by_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    assert completion.ids("method") == sorted(completion._read_ids("method"))
    monkeypatch.setattr(completion, "_registry", lambda noun: [SimpleNamespace(id=f"their_{noun}")])
    monkeypatch.setattr(plugins, "has_plugins", lambda group: group == "ragmeter.methods")
    nobody: Any = None
    assert completion.methods(nobody, "the") == ["their_method"]
    assert completion.metrics(nobody, "the") == []


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ru", {"run"}),
        ("", set(cli.NAMES)),
        ("--ver", {"--version"}),
        ("judge re", {"replay"}),
        ("run --li", {"--limit"}),
        ("list meth", {"methods"}),
        ("list methods gra", {"grag", "graph_hybrid", "graphrag", "graphrag_drift", "graphrag_global"}),
        ("method check bm", {"bm25", "bm25_reranker", "bm25_triples"}),
        ("list methods --kind re", {"retriever", "reranker", "reader"}),
        ("list metrics rou", {"rouge"}),
        ("judge score --metric rou", {"rouge"}),
        ("judge run pair", {"pairwise"}),
        ("results --form", {"--format"}),
        ("data ch", {"check"}),
        ("data w", {"webqsp", "worlds"}),
        ("data stats w", {"webqsp", "worlds"}),
        ("data stats webq", {"webqsp", "webqsp:train", "webqsp:validation", "webqsp:test"}),
        ("data stats worlds/l", {"worlds/long", "worlds/long:train", "worlds/long:validation", "worlds/long:test"}),
        ("data stats worlds/long:te", {"worlds/long:test"}),
        ("data stats webqsp:train+te", {"webqsp:train+test"}),
        ("data check musique:dev longbench/qasper_", {"longbench/qasper_e", "longbench/qasper_e:test"}),
        ("train ark --data musique:d", {"musique:dev"}),
        ("method explain ", {"ark", "clara", "gpr"}),
        ("train cl", {"clara", "clara_released"}),
        ("train clara --preset wo", {"worlds", "worlds-long", "worlds-passages"}),
        ("train clara --stage ins", {"instruction"}),
        ("run ark/w", {"ark/worlds"}),
        ("run demo-g", {"demo-graph"}),
        ("run sark/figure6 --profile wo", {"worlds"}),
        ("results --format=la", {"latex", "latex-wide"}),
        ("data stats nothing/x", set()),
        ("run demo --profile ", {"tiny", "train"}),
        ("train --preset ", set()),
    ],
)
def test_completion_offers_expected_names(line: str, offered: set[str], tab: Tab, tmp_path: Path) -> None:
    assert set(tab(line)) == offered
    assert not (tmp_path / "none").exists(), "a store was made"


def test_completion_offers_own_and_shipped_experiments(tab: Tab, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").touch()
    (tmp_path / "mine.txt").touch()
    assert tab(f"run {tmp_path}/mi") == [f"{tmp_path}/mine.yaml"]


@pytest.mark.slow
def test_completion_offers_names_from_the_store(tab: Tab, store: Store) -> None:
    rows = runs(store)
    row = next(row for row in rows if row.method == "bm25")
    tag_run(store, "main", row)
    store.database.close()
    here = {"RAGMETER_STORE": str(store.folder)}
    alone = ("run --resume ", "results sm", "list runs ", "results report ", "judge win-rates ", "store prune --experiment ")
    for line in (*alone, "results style gap "):
        assert tab(line, **here) == ["small"], line
    paths = [row.path for row in rows]
    assert set(tab("results show ", **here)) == {"main", *paths}
    assert tab("results compare main small/bm", **here) == [row.path]
    assert tab("gate --baseline ma", **here) == ["main"]
    assert tab(f"results show {row.run[:6]}", **here) == [row.run]
    assert tab("results show bm", **here) == [row.path.partition("/")[2]]
    assert tab("results tag ", **here) == ["main"]
    assert tab("results --reference b", **here) == ["bm25"]
    assert tab("results --metric e", **here) == ["em"]
    assert tab(f"run --resume --store {store.folder} ", RAGMETER_STORE="nowhere") == ["small"]


@pytest.mark.slow
def test_locked_or_damaged_store_completes_nothing_without_waiting(store: Store, tmp_path: Path) -> None:
    def tab(line: str, **environment: str) -> list[str]:
        """Return the completions of another process."""
        return list(filter(None, typed(f"ragmeter {line}", **environment).stdout.splitlines()))

    here = {"RAGMETER_STORE": str(store.folder)}
    with duckdb.connect(str(store.folder / "store.duckdb")):
        assert tab("run --resume ", **here) == []
        assert tab("judge score --metric rou", **here) == ["rouge"]
    assert tab("run --resume ", **here) == ["small"]
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "store.duckdb").write_text("no database")
    assert tab("run --resume ", RAGMETER_STORE=str(tmp_path / "damaged")) == []
    assert sorted(path.name for path in (tmp_path / "damaged").iterdir()) == ["store.duckdb"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "heavy"),
    [
        (("", "list methods a", "list metrics a", "list datasets w", "run a"), "torch transformers duckdb pyarrow numpy"),
        (("list datasets worlds/l",), "torch transformers duckdb scipy"),
        (("run --resume ",), "torch transformers pyarrow numpy"),
    ],
)
def test_completion_imports_no_heavy_package(lines: tuple[str, ...], heavy: str, store: Store) -> None:
    """Lines are completed one after another in one process, because imports persist."""
    *before, line = lines
    reported = f"print([name for name in {heavy.split()!r} if name in sys.modules], file=sys.stderr)"
    again = "".join(
        f"\n  os.environ.update(COMP_WORDS={('ragmeter ' + item)!r}, COMP_CWORD='{1 + item.count(' ')}')\n  print('---')"
        "\n  try: main()\n  except SystemExit: pass"
        for item in before
    )
    done = typed(f"ragmeter {line}", f"\n  import os{again}\n  {reported}", RAGMETER_STORE=str(store.folder))
    assert all(part.strip() for part in done.stdout.split("---"))
    assert done.stderr.strip() == "[]"


def test_failing_completion_offers_nothing(monkeypatch: pytest.MonkeyPatch, answered_here: Callable[..., str]) -> None:
    settings = {"COMP_WORDS": "ragmeter list methods a", "COMP_CWORD": "3"}
    assert answered_here(**settings) != ""
    monkeypatch.setattr(completion, "_read_ids", None)
    assert answered_here(**settings).strip() == ""


def test_completion_works_in_other_shells(answered_here: Callable[..., str]) -> None:
    queries = {"_TYPER_COMPLETE_ARGS": "ragmeter list datasets worlds/long:te"}
    zsh = answered_here(_RAGMETER_COMPLETE="complete_zsh", **queries)
    assert zsh.startswith("_arguments")
    assert "worlds/long" in zsh
    fish = answered_here(_RAGMETER_COMPLETE="complete_fish", _TYPER_COMPLETE_FISH_ACTION="get-args", **queries)
    assert fish.split() == ["worlds/long:test"]
    powershell = {"_RAGMETER_COMPLETE": "complete_powershell", "_TYPER_COMPLETE_WORD_TO_COMPLETE": "worlds/long:te"}
    assert answered_here(**powershell, **queries).startswith("worlds/long:test:::")


NAMES = {"experiment", "run", "runs", "reference", "references", "benchmark", "metrics", "metric", "preset", "profile",
         "baseline", "candidate", "against", "method", "dataset", "judge", "data", "graph"}  # fmt: skip


def test_every_name_parameter_completes() -> None:
    silent = []

    def walk(command: Any, path: str) -> None:
        for name in command.list_commands(None) if hasattr(command, "commands") else ():
            walk(command.get_command(None, name), f"{path} {name}")
        silent.extend(f"{path} {param.name}" for param in command.params if param.name in NAMES and not param._custom_shell_complete)

    walk(typer.main.get_command(cli.app), "ragmeter")
    assert set(silent) <= {"ragmeter data check against"}, "that one is a file"
