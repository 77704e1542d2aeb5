"""A plug-in's code changes between two runs of an experiment: what is run again, and what is reported."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from benchmarks.core.errors import UserError
from benchmarks.registry import load
from judges.judge import Judge
from judges.metric import parse as parse_metric
from methods.training import TRAININGS
from ragmeter import experiment, trainings
from ragmeter.runner.experiment import How, run_experiment
from ragmeter.runner.provenance import checkout, forget_checkouts
from results.boards import diff
from results.boards.changes import Change, changes, files_changed, previous, since_last
from results.boards.tables import labels
from results.store import queries
from results.store.doubts import doubts
from results.store.store import Store
from tests.support.plugin import METHOD, Plugin

FILE = """\
name: mine
benchmarks: [{id: worlds/multihop, split: validation, setting: distractor, limit: 3}]
methods: [{id: acme}]
metrics: [em]
"""
Run = Callable[[], int]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def run(plugin: Plugin, store: Store) -> Run:
    """Run the experiment like a new process; return how many questions were answered."""

    def answered() -> int:
        plugin.load()
        outcomes = run_experiment(experiment.parse(FILE, "mine.yaml"), store, How(), talk=False)
        return sum(outcome.answered for outcome in outcomes)

    return answered


@pytest.mark.slow
def test_changed_code_is_run_again_and_reported(plugin: Plugin, run: Run, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 3
    assert run() == 0
    plugin.edit("acme/app.py", "    def answer", "    # formatted\n    def answer")
    assert run() == 0
    first = queries.runs(store, "mine")[0]
    plugin.edit("acme/app.py", "self.words)", '"")')
    plugin.edit("acme/templates/ask.txt", "Lyon", "Rome")
    capsys.readouterr()
    assert run() == 3
    since = f"since the run of {first.started_at:%Y-%m-%d %H:%M}"
    assert f"`acme` changed {since} (2 files: app.py, templates/ask.txt)" in " ".join(capsys.readouterr().err.split())
    second = queries.runs(store, "mine")[0]
    assert first.run != second.run
    keys = [setting.key for setting in diff.settings_of(first, second)]
    assert keys[0] == "description.method.code"
    assert "provenance.code.method acme.files.acme/app.py" in keys
    assert run() == 0


@pytest.mark.slow
def test_manually_versioned_code_is_run_again_at_its_next_version(plugin: Plugin, run: Run) -> None:
    plugin.write({"acme/app.py": METHOD.format(more=', identity="version"')})
    assert run() == 3
    plugin.edit("acme/app.py", "self.words)", '"")')
    assert run() == 0
    plugin.edit("acme/app.py", 'identity="version"', 'identity="version", version=2')
    assert run() == 3


def test_provenance_of_a_plugin_names_commit_distribution_files_and_dependencies(
    plugin: Plugin, run: Run, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> str:
        author = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        done = subprocess.run(["git", *author, "-C", str(plugin.folder), *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init", "-q")
    git("add", "acme")
    git("commit", "-qm", "first")
    monkeypatch.chdir(plugin.folder)
    run()
    row = queries.runs(store, "mine")[0]
    code = row.provenance["code"]["method acme"]
    assert (code["distribution"], code["version"], list(code["dependencies"])) == ("acme-rag", "1.2", ["numpy"])
    assert code["git"] == {"repository": "site", "commit": git("rev-parse", "HEAD"), "dirty": False}
    assert row.provenance["started_in"] == code["git"]
    assert list(code["files"]) == ["acme/__init__.py", "acme/app.py", "acme/helper.py", "acme/templates/ask.txt"]
    plugin.edit("acme/app.py", "self.words)", '"")')
    forget_checkouts()
    state = checkout(plugin.folder / "acme", (".",))
    assert state is not None
    assert state["dirty"]
    plugin.write({"acme/new.py": "x = 1"})
    forget_checkouts()
    assert checkout(plugin.folder / "acme", (".",)) != state
    assert checkout(tmp_path) is None


METRIC = '''from judges.metric import register
import numpy as np


@register("acme_words", source="a test", group="answer", needs=("answer",))
def words(batch):
    """Share of answers with a word."""
    return np.array([float(bool(answer)) for answer in batch.answers])
'''


def test_metric_id_includes_code_and_conflicting_code_is_refused(plugin: Plugin) -> None:
    points = "acme_rag-1.2.dist-info/entry_points.txt"
    plugin.write({"acme/metric.py": METRIC, points: "[ragmeter.judges]\nacme = acme.metric\n"})
    plugin.load()
    metric = parse_metric("acme_words")
    name, _, edition = str(metric).partition("#v1-")
    assert (name, len(edition)) == ("acme_words", 8)
    assert str(parse_metric(str(metric))) == str(parse_metric("acme_words#v1")) == str(metric)
    plugin.edit("acme/metric.py", "float(bool(answer))", "1.0")
    plugin.load()
    now = str(parse_metric("acme_words"))
    assert now != str(metric)
    # Both have values in one store: column heads distinguish them, and are short otherwise.
    assert labels([now]) == {now: "acme_words"}
    assert labels([now, str(metric)]) == {now: now, str(metric): str(metric)}
    with pytest.raises(UserError) as caught:
        parse_metric(str(metric))
    assert edition in caught.value.what
    assert str(parse_metric("acme_words")) in (caught.value.try_this or "")
    with pytest.raises(UserError):
        parse_metric("em#v2-00000000")


JUDGE = '''from judges.judge import JudgeConfig, Measure, register_judge


MORE = dict(summary="s", source="s", needs=("answer",), measures=(Measure("ok", "d"),))


@register_judge("acme_judge", kind="point", config=JudgeConfig, **MORE{more})
class Judge:
    """Judges."""

    def ask(self, items):
        return []
'''


@pytest.mark.parametrize(("more", "same"), [("", False), (", identity='version'", True), (", also=lambda config: {'p': '1'}", False)])
def test_judge_id_includes_code_unless_manually_versioned(plugin: Plugin, more: str, same: bool) -> None:
    points = "acme_rag-1.2.dist-info/entry_points.txt"
    plugin.write({"acme/judge.py": JUDGE.format(more=more), points: "[ragmeter.judges]\nacme = acme.judge\n"})
    plugin.load()
    before = Judge.of("acme_judge")
    assert ("p" in before.identity["also"]) == ("lambda" in more)
    plugin.edit("acme/judge.py", "return []", "return [[]]")
    plugin.load()
    assert (str(before) == str(Judge.of("acme_judge"))) == same


DATASET = """from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DatasetConfig, register
from benchmarks.schema import Question
from tests.support.toy import CARD


@register("acme_data", card=CARD{more})
def load(reference, config):
    return Benchmark(reference, 1, CARD, [Question(id="1", text="Who?", answers=("Ann",))], Corpus.of(()))
"""


@pytest.mark.parametrize(("more", "same"), [("", False), (', identity="version"', True)])
def test_dataset_fingerprint_includes_code_unless_manually_versioned(plugin: Plugin, more: str, same: bool) -> None:
    points = "acme_rag-1.2.dist-info/entry_points.txt"
    plugin.write({"acme/data.py": DATASET.format(more=more), points: "[ragmeter.benchmarks]\nacme = acme.data\n"})
    plugin.load()
    before = load("acme_data")
    plugin.edit("acme/data.py", "reference, config", "reference, options")
    plugin.load()
    assert (before.fingerprint == load("acme_data").fingerprint) == same


TRAINING = """from methods.training import TrainingConfig, register_training


@register_training("acme_training", summary="s", stages=("only",), config=TrainingConfig)
class Training:
    def __init__(self, config):
        self.steps = 1
"""


def test_checkpoint_folder_of_a_training_depends_on_its_code(plugin: Plugin) -> None:
    def home() -> str:
        plugin.load()
        entry = TRAININGS.get("acme_training")
        return trainings.identity(entry, entry.config())

    plugin.write({"acme/training.py": TRAINING, "acme_rag-1.2.dist-info/entry_points.txt": "[ragmeter.methods]\nacme = acme.training\n"})
    before = home()
    plugin.edit("acme/training.py", "1", "2")
    assert home() != before


class Made:
    """Run from which changes are read."""

    def __init__(self, description: dict, provenance: dict | None = None, run: str = "b", **more: object) -> None:  # type: ignore[type-arg]
        self.run, self.method, self.dataset, self.setting, self.seed = run, "row", "toy:dev", "distractor", 0
        self.dataset_fingerprint, self.questions = "d", 3
        self.description, self.provenance = description, provenance or {}
        self.started_at = datetime(2026, 11, 27, 10, 12)
        self.not_rescored: tuple[str, ...] = ()
        self.__dict__.update(more)


def part(name: str = "acme", **more: object) -> dict[str, object]:
    return {"id": name, "version": 1, "config": {"k": 5}, "weights": None, **more}


def code(files: dict[str, str]) -> dict[str, object]:
    return {"code": {"method acme": {"identity": "code", "hash": json.dumps(files), "files": files}}}


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (Made({"method": part()}), Made({"method": part(version=2)}), ["the version of method `acme` of `row` changed|1 → 2"]),
        (Made({"method": part()}), Made({"method": part(config={"k": 6})}), ["options of method `acme` of `row` changed|k 5 → 6"]),
        (Made({"method": part()}), Made({"method": part(weights="w")}), ["weights or prompts of method `acme` of `row` changed|"]),
        (Made({"method": part()}), Made({"method": part("bm25")}), ["the method of `row` changed|acme → bm25"]),
        (Made({"reader": None}), Made({"reader": part()}), ["the reader of `row` changed|none → acme"]),
        (Made({"rerankers": [part()]}), Made({"rerankers": []}), ["the reranker of `row` changed|acme → none"]),
        (Made({"k": 5}), Made({"k": 6, "revision": "abc"}), ["k of `row` changed|5 → 6", "revision of `row` changed|none → abc"]),
        (Made({}, code({"a": "1"})), Made({}, code({"a": "2"})), ["`acme` changed|1 file: a"]),
        (Made({}), Made({}, dataset_fingerprint="e"), ["the data of toy:dev changed|"]),
        (Made({}), Made({}, dataset_fingerprint="e", questions=5), ["the data of toy:dev changed|3 → 5 questions"]),
        (Made({}), Made({}), ["`row` on toy:dev is another run|ragmeter results compare shows the differences"]),
        (Made({"k": 5}), Made({"k": 6}, run="a.0123abcd"), []),
    ],
)
def test_every_kind_of_change_is_reported(before: Made, now: Made, expected: list[str]) -> None:
    before.run = "a"
    results = changes(before, now, before.started_at)
    assert [f"{change.what}|{change.details}" for change in results] == expected


def test_reported_change_names_the_earlier_run() -> None:
    change = Change("`acme` changed", "2 files: app.py, templates/ask.txt", datetime(2026, 11, 27, 10, 12))
    assert str(change) == "`acme` changed since the run of 2026-11-27 10:12 (2 files: app.py, templates/ask.txt)"


def test_new_and_removed_files_are_marked_and_many_are_counted() -> None:
    assert files_changed({"p/a": "1", "p/b": "1"}, {"p/b": "2", "p/c": "1"}) == "3 files: a (removed), b, c (new)"
    assert files_changed({}, {f"p/{n}": "1" for n in range(7)}).endswith("3 (new), 4 (new) and 2 more")


def test_previous_run_is_the_newest_of_the_same_row() -> None:
    older, newer = Made({}, run="o"), Made({}, run="n", started_at=datetime(2026, 11, 28))
    other = Made({}, run="x", seed=1, started_at=datetime(2026, 11, 29))
    assert previous(Made({}), [older, newer, other]) is newer  # type: ignore[list-item]
    assert previous(Made({}), [older, Made({}, run="b.0123abcd")]) is None  # type: ignore[list-item]


def test_comparison_warns_about_uncommitted_and_unknown_code_of_either_run() -> None:
    clean = Made({}, environment={"git": {"commit": "c", "dirty": False}})
    dirty = Made(
        {},
        {"code": {"method acme": {"identity": "version", "unknown": "a notebook", "edited": True}}},
        environment={"git": {"commit": "0123456789abcdef", "dirty": True}},
    )
    assert doubts(clean, clean) == []  # type: ignore[arg-type]
    lines = doubts(clean, dirty)  # type: ignore[arg-type]
    assert [line.partition(": ")[0] for line in lines] == ["second", "second"]
    assert "0123456789ab" in lines[0]
    assert "`acme`" in lines[1]


def test_unknown_code_is_reported_before_the_run(store: Store) -> None:
    unknown = {"code": {"method acme": {"unknown": "a notebook", "files": {}, "hash": "u1", "identity": "code"}}}
    (line,) = since_last(store, "mine", [Made({}, unknown), Made({}, unknown)])
    assert "a notebook" in line
