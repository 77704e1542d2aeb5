"""Loaders of plug-ins that open their own file: where they read from, and their errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.availability import ABSENT, LOCAL, OWN, availability, fetch
from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.io.records import stream_json
from benchmarks.registry import DATASETS, Benchmark, DataReference, DatasetCard, DatasetConfig, load, register
from benchmarks.schema import Passage, Question, passage_id
from ragmeter.api import run
from ragmeter.cli import app
from tests.support.errors import raises

CARD = DatasetCard(
    title="Own",
    task="open-domain QA",
    description="Questions of one's own.",
    hub_id=None,
    revision=None,
    license="internal",
    citation="none",
    languages=("en",),
    splits={"test": None},
    metrics=("f1",),
    settings=("corpus",),
)
LINE = '{"id": "a", "question": "Who?", "answers": ["me"], "text": "It was me."}'


class RequiredConfig(DatasetConfig):
    """Options with one required field."""

    server: str


def by_hand(path: str) -> list[Any]:
    return [json.loads(line) for line in Path(path).read_text("utf-8").splitlines()]


def by_stream(path: str) -> list[Any]:
    return [item.value for item in stream_json(Path(path))]


@pytest.fixture(autouse=True)
def own(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the datasets `own`, whose loader opens `path`, and `asked`, which also requires an option."""
    assert "own" not in DATASETS
    monkeypatch.setattr(DATASETS, "_entries", dict(DATASETS._entries))
    monkeypatch.setattr(DATASETS, "_sources", dict(DATASETS._sources))

    @register("own", card=CARD, default_split="test")
    def own_(reference: DataReference, config: DatasetConfig) -> Benchmark:
        if config.path is None:
            raise UserError("the file is not named")
        rows = getattr(request, "param", by_hand)(config.path)
        passages = [Passage(passage_id("T", row["text"]), "T", row["text"]) for row in rows]
        questions = [
            Question(id=row["id"], text=row["question"], answers=tuple(row["answers"]), evidence=(passage.id,))
            for row, passage in zip(rows, passages, strict=True)
        ]
        return Benchmark(reference, 1, CARD, questions, Corpus.of(passages))

    register("asked", card=CARD, config=RequiredConfig, default_split="test")(lambda reference, config: own_(reference, config))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "own.jsonl"
    path.write_text(LINE + "\n", "utf-8")
    return path


def command(*words: str) -> Any:
    done = CliRunner().invoke(app, ["data", *words])
    assert not done.exception or isinstance(done.exception, SystemExit), repr(done.exception)
    return json.loads(done.stdout)


@pytest.mark.slow
def test_own_datasets_are_listed_with_a_separate_state() -> None:
    listed = {card["id"]: card["here"][0] for card in command("--json")}
    assert [listed[name]["state"] for name in ("own", "asked", "worlds")] == [OWN, OWN, "made here"]
    assert "file of your own" in command("list", "own", "--json")["here"][0]["problem"]
    for name in DATASETS._entries.keys() - {"own", "asked", "hotpotqa"}:
        del DATASETS._entries[name]
    assert any("own" in reason and "--set path" in reason for reason in command("check", "--all", "--json")["skipped"])
    with pytest.raises(UserError, match="nothing to fetch"):
        fetch(DataReference("own", None, "test"))


def test_own_dataset_is_local_if_its_path_exists_and_absent_otherwise(file: Path) -> None:
    result = availability(DataReference("own", None, "test"), {"path": str(file)})
    assert (result.state, result.paths) == (LOCAL, (file,))
    (split,) = command("check", "own", "--set", f"path={file}", "--json")["splits"]
    assert LOCAL in json.dumps(split)
    missing = availability(DataReference("own", None, "test"), {"path": f"{file}.gone"})
    assert missing.state == ABSENT
    assert missing.problem is not None
    assert missing.problem.where == f"{file}.gone"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"id": "a", "question": "Who?"', "JSONDecodeError|TypeError"),
        (LINE.replace("question", "asks"), "KeyError: 'question'"),
        ('"only text"', "TypeError"),
    ],
)
@pytest.mark.parametrize("own", [by_hand, by_stream], indirect=True)
def test_exception_of_a_loader_is_reported_as_a_data_error(file: Path, line: str, says: str) -> None:
    file.write_text(line + "\n", "utf-8")
    with raises("load-failed") as caught:
        load("own", {"path": str(file)})
    assert caught.value.exit_code == 2
    assert str(file) in str(caught.value.where)
    assert "test_registry_own_loaders.py:" in str(caught.value.where)
    assert "the loader, which is not ragmeter's" in str(caught.value.try_this)
    assert isinstance(caught.value.__cause__, Exception)


@pytest.mark.parametrize("own", [by_hand, by_stream], indirect=True)
def test_missing_file_is_reported_with_its_option(file: Path) -> None:
    with pytest.raises(UserError) as caught:
        load("own", {"path": f"{file}.gone"})
    assert f"{file}.gone" in str(caught.value.where)
    with raises("missing-file") as caught:
        load("hotpotqa", {"path": f"{file}.gone"})
    assert "`ragmeter list datasets hotpotqa`" in str(caught.value.try_this)


def test_memory_error_is_not_reported_as_bad_data(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    def out_of_memory(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Corpus, "of", out_of_memory)
    with pytest.raises(MemoryError):
        load("own", {"path": str(file)})


@pytest.mark.parametrize(
    ("config", "line"), [("path: gone.jsonl", "x.yaml:5 (benchmarks.0.config.path)"), ("skip_bad: true", "x.yaml:3 (benchmarks.0)")]
)
def test_run_error_names_the_line_of_the_benchmark(config: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = f"name: x\nbenchmarks:\n  - id: own\n    config:\n      {config}\nmethods: [{{id: bm25}}]\nmetrics: [em]\n"
    Path("x.yaml").write_text(text, "utf-8")
    with pytest.raises(UserError) as caught:
        run("x.yaml", store="store")
    assert str(caught.value.where).startswith(line)
    assert line in str(caught.value)
