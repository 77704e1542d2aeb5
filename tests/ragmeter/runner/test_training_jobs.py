"""Experiments that train what their methods need before the methods run."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from filelock import FileLock
from pydantic import Field
from typer.testing import CliRunner

from benchmarks.core.errors import Broke, MissingPackage, UserError
from benchmarks.core.fingerprint import folder_sha256
from benchmarks.corpus import Corpus
from methods.api import Index, Services
from methods.baselines.bm25 import BM25, BM25Config
from methods.registry import METHODS, MethodConfig, register
from methods.training import Silent, TrainedStage, TrainingConfig, TrainingContext, register_training
from methods.work import Checkpoint, Needs
from ragmeter import experiment
from ragmeter.cli import app
from ragmeter.runner import side_by_side, training_jobs
from ragmeter.runner.loop import Interrupted
from ragmeter.runner.progress import TrainingProgress
from ragmeter.runner.training_jobs import TrainingJob
from ragmeter.trainings import TrainingPlan, references
from results.store import checkpoints
from results.store.store import Store
from tests.support.errors import raises

STEPS: list[tuple[str, int]] = []
"""Stages that were trained, with their seeds."""


class K1TrainingConfig(TrainingConfig):
    k1: float = 1.2
    short: bool = False
    started_from: str | None = None
    stops: bool = False

    def stages_of(self, stages: tuple[str, ...]) -> tuple[str, ...]:
        return stages[:1] if self.short else stages


@register_training("k1_test", summary="learns k1", stages=("first", "second"), config=K1TrainingConfig, extra=None)
class K1Training:
    def __init__(self, config: K1TrainingConfig) -> None:
        self.config = config

    def run(self, context: TrainingContext) -> Iterator[TrainedStage]:
        for stage in self.config.stages_of(("first", "second")):
            folder = context.checkpoints / stage
            fresh = not folder.exists()
            if fresh:
                if self.config.stops and stage == "second":
                    raise KeyboardInterrupt
                STEPS.append((stage, self.config.seed))
                folder.mkdir(parents=True)
                learned = {"k1": self.config.k1 + self.config.seed, "from": self.config.started_from}
                (folder / "k1.json").write_text(json.dumps(learned), "utf-8")
            yield TrainedStage(stage, folder, fresh=fresh)


class K1Config(MethodConfig):
    model: str = Field(description="folder")

    def preflight(self) -> None:
        if not (Path(self.model) / "k1.json").is_file():
            raise UserError("this is no checkpoint of k1_test", where=self.model)


class K1Retriever:
    def __init__(self, config: K1Config, services: Services) -> None:
        learned = json.loads((Path(config.model) / "k1.json").read_text("utf-8"))
        self.inner = BM25(BM25Config(k1=learned["k1"]), services)

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        return self.inner.index(corpus, folder)


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    """Register the retriever only for these tests, because others build every registered one."""
    list(METHODS)
    before = dict(METHODS._entries)
    register(
        "k1_retriever_test",
        kind="retriever",
        summary="BM25 of a learned k1",
        config=K1Config,
        checkpoint_hash=lambda config: folder_sha256(Path(config.model)),
    )(K1Retriever)
    yield
    METHODS._entries.clear()
    METHODS._entries.update(before)


FILE = """\
name: trained
benchmarks:
  - {id: worlds/multihop, split: test, limit: 4}
trainings:
  - {id: k1_test, name: tuned, seeds: [3, 5], config: {k1: 0.5}}
  - {id: k1_test, name: short, config: {short: true}}
  - {id: k1_test, name: later, seeds: [3, 5], config: {started_from: {checkpoint: tuned/first}}}
methods:
  - {id: bm25, reader: retrieval_only, name: base}
  - {id: k1_retriever_test, name: Tuned, reader: retrieval_only, config: {model: {checkpoint: tuned}}}
  - {id: k1_retriever_test, name: Short, reader: retrieval_only, config: {model: {checkpoint: short}}}
  - {id: k1_retriever_test, name: Later, reader: retrieval_only, config: {model: {checkpoint: later/first}}}
metrics: [recall@5]
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write an experiment that trains in this process."""
    STEPS.clear()
    monkeypatch.setattr(side_by_side, "memory", lambda device: 0.0)
    path = tmp_path / "trained.yaml"
    path.write_text(FILE, "utf-8")
    return path


def ragmeter(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*map(str, arguments)])
    return result.exit_code, result.output


def test_method_is_created_for_every_seed_of_its_training(tmp_path: Path) -> None:
    result = experiment.parse(FILE, "x.yaml", store=tmp_path)
    names = [method.name for method in result.methods]
    assert names == ["base", "Tuned #3", "Tuned #5", "Short", "Later #3", "Later #5"]
    folders = [method.composition.method.config.model for method in result.methods[1:]]  # type: ignore[attr-defined]
    assert len(set(folders)) == 5
    assert folders[0].endswith("second")
    assert folders[2].endswith("first")
    assert folders[3].endswith("first")
    # A training based on another training starts from the checkpoint of the same seed.
    later = [plan for plan in result.trainings if plan.name == "later"]
    prepared = [Path(plan.config.started_from).parent for plan in later]  # type: ignore[attr-defined]
    assert prepared == [Path(folder).parent for folder in folders[:2]]


@pytest.mark.slow
def test_run_starts_missing_trainings_and_a_dry_run_lists_them(file: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    code, response = ragmeter("run", file, "--dry-run", "--store", store, "--json")
    before = json.loads(response)
    assert code == 0
    assert len(before["tasks"]) == 1
    assert len(before["after_training"]) == 5
    assert not any(row["trained"] for row in before["stages"])
    assert len({(row["training"], row["seed"]) for row in before["stages"]}) == 5
    assert "after training" in ragmeter("run", file, "--dry-run", "--store", store)[1]

    code, response = ragmeter("run", file, "--store", store, "--json")
    assert code == 0, response
    rows = json.loads(response)["boards"][0]["rows"]
    assert {row["method"] for row in rows} == {"base", "Tuned #3", "Tuned #5", "Short", "Later #3", "Later #5"}
    assert STEPS == [
        ("first", 3),
        ("second", 3),
        ("first", 5),
        ("second", 5),
        ("first", 0),
        ("first", 3),
        ("second", 3),
        ("first", 5),
        ("second", 5),
    ]

    after = json.loads(ragmeter("run", file, "--dry-run", "--store", store, "--json")[1])
    assert len(after["tasks"]) == 6
    assert after["after_training"] == []
    assert {task["status"] for task in after["tasks"]} == {"finished"}
    STEPS.clear()
    assert ragmeter("run", file, "--store", store, "--json")[0] == 0
    assert STEPS == []

    # A store that was moved or copied to another machine holds the same trainings and answers.
    moved = store.rename(tmp_path / "elsewhere")
    there = json.loads(ragmeter("run", file, "--dry-run", "--store", moved, "--json")[1])
    assert {task["status"] for task in there["tasks"]} == {"finished"}
    assert there["after_training"] == []
    assert all(row["trained"] for row in there["stages"])


def test_training_in_progress_in_another_process_is_not_started(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = experiment.load(str(file), store=tmp_path / "store").trainings[0]
    job = TrainingJob(plan.entry, plan.config, Store(tmp_path / "store"))
    job.work.parent.mkdir(parents=True)
    with FileLock(f"{job.work}.lock"):
        with raises("training-in-progress"):
            job.run(Silent())
        assert not job.home.exists()
        # Processes of one training share it.
        monkeypatch.setenv("RANK", "1")
        assert len(job.run(Silent())) == len(plan.stages)
    monkeypatch.delenv("RANK")
    assert len(job.run(Silent())) == len(plan.stages)


@pytest.mark.slow
def test_interrupted_training_is_resumed_by_the_same_command(file: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    file.write_text(FILE.replace("config: {k1: 0.5}", "config: {k1: 0.5, stops: true}"), "utf-8")
    result = CliRunner().invoke(app, ["run", str(file), "--store", str(store)])
    assert isinstance(result.exception, Interrupted)
    assert "the same command" in str(result.exception)
    assert STEPS == [("first", 3)]
    planned = json.loads(ragmeter("run", file, "--dry-run", "--store", store, "--json")[1])
    assert [row["stage"] for row in planned["stages"] if row["trained"]] == ["first"]


class WaitingConfig(TrainingConfig):
    folder: str
    me: str
    beside: tuple[str, ...] = ()
    ends: Literal["well", "lacking", "killed"] = "well"
    behind: tuple[str, ...] = ()
    limit: float | None = Field(None, exclude=True)


@register_training("waiting_test", summary="", stages=("only",), config=WaitingConfig, extra=None, needs=lambda config: Needs())
class Waiting:
    """Training that ends when all parallel trainings have started."""

    def __init__(self, config: WaitingConfig) -> None:
        self.config = config

    def run(self, context: TrainingContext) -> Iterator[TrainedStage]:
        here = Path(self.config.folder)
        assert all(Path(checkpoint, "learned").is_file() for checkpoint in self.config.behind)
        (here / self.config.me).write_text(str(os.getpid()), "utf-8")
        context.progress.begin("waiting", 1)
        end = time.monotonic() + 240
        while not all((here / other).exists() for other in self.config.beside):
            assert time.monotonic() < end
            time.sleep(0.01)
        if self.config.ends == "lacking":
            raise MissingPackage("nothing", "models", "this training")
        if self.config.ends == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        folder = context.checkpoints / "only"
        folder.mkdir(parents=True)
        (folder / "learned").write_text(f"{self.config.me} {self.config.limit} {sorted(self.config.model_fields_set)}", "utf-8")
        yield TrainedStage("only", folder)


def waiting(tmp_path: Path, *specs: str) -> tuple[list[TrainingPlan], Store]:
    """Return trainings from names and options in YAML, with their store."""
    rows = "".join(f"  - {{id: waiting_test, {spec.replace('HERE', str(tmp_path))}}}\n" for spec in specs)
    text = (
        f"name: x\nbenchmarks: [{{id: worlds/multihop, split: test}}]\nmethods: [{{id: bm25, reader: retrieval_only}}]\ntrainings:\n{rows}"
    )
    store = Store(tmp_path / "store")
    return list(experiment.parse(text, "x.yaml", store=store.folder).trainings), store


@pytest.mark.slow
def test_independent_trainings_run_in_parallel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side, "memory", lambda device: 16e9)
    monkeypatch.setattr(side_by_side, "cores", lambda: 3)
    plans, store = waiting(
        tmp_path,
        "name: one, config: {folder: HERE, me: one, beside: [two]}",
        "name: two, config: {folder: HERE, me: two, beside: [one]}",
        "name: as one, config: {folder: HERE, me: one, beside: [two]}",
        "name: last, config: {folder: HERE, me: last, behind: [{checkpoint: one}, {checkpoint: two}], limit: 2.5}",
    )
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with TrainingProgress(quiet=True) as progress:
        training_jobs.run_trainings(plans, store, "cpu", progress, processes=True)
        (bar,) = progress._live.tasks
    assert bar.completed == 3
    learned = [(plan.folder(store.folder) / "only" / "learned").read_text("utf-8") for plan in plans]
    # As in the file, including options outside the identity.
    assert learned[0] == learned[2] == "one None ['beside', 'folder', 'me', 'seed']"
    assert learned[3] == "last 2.5 ['behind', 'folder', 'limit', 'me', 'seed']"
    assert len(checkpoints.checkpoints(store)) == 3
    assert len({str(os.getpid()), *((tmp_path / name).read_text("utf-8") for name in ("one", "two", "last"))}) == 4


def test_number_of_parallel_trainings_is_limited_by_dependencies_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    plans, store = waiting(
        tmp_path,
        "name: one, config: {folder: HERE, me: one}",
        "name: two, config: {folder: HERE, me: two}",
        "name: unknown, config: {folder: HERE, me: unknown}",
        "name: last, config: {folder: HERE, me: last, behind: [{checkpoint: one}]}",
    )
    billion = Checkpoint("someone/model-1B")
    of = {
        "one": (billion,),
        "two": (),
        "unknown": (Checkpoint("nobody/knows"),),
        "last": (billion, Checkpoint(str(plans[0].folder(store.folder)))),
    }
    entry = replace(plans[0].entry, needs=lambda config: Needs(of[config.me]))
    one = replace(plans[0], entry=entry)
    plans = [one, *(replace(plan, entry=entry, needs=(one,) * len(plan.needs)) for plan in plans[1:])]

    def number(cores: int, memory: float, *names: str) -> int:
        return side_by_side.at_once([plan for plan in plans if plan.name in names], cores, memory, store.folder)

    # Two start together; 10⁹ parameters take 16 GB, and a training based on them has as many.
    assert number(12, 200e9, "one", "two", "last") == 2
    assert number(12, 39e9, "one", "two", "last") == 1
    assert number(12, 200e9, "one", "two", "unknown") == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert number(12, 200e9, "one", "two", "last") == 1
    assert number(16, 200e9, "one", "two", "last") == 2


@pytest.mark.slow
@pytest.mark.parametrize(("ends", "error"), [("lacking", MissingPackage), ("killed", Broke)])
def test_failing_training_is_reported_and_stops_parallel_ones(
    ends: str, error: type[UserError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_by_side, "memory", lambda device: 16e9)
    monkeypatch.setattr(side_by_side, "cores", lambda: 3)
    plans, store = waiting(
        tmp_path,
        "name: other, config: {folder: HERE, me: other, beside: [never]}",
        f"name: it, config: {{folder: HERE, me: it, beside: [other], ends: {ends}}}",
    )
    with TrainingProgress(quiet=True) as progress, pytest.raises(error) as caught:
        training_jobs.run_trainings(plans, store, "cpu", progress, processes=True)
    assert type(caught.value) is error
    assert "it, seed 0" in str(caught.value)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "other").read_text("utf-8")), 0)


@pytest.mark.parametrize(
    ("old", "new", "what", "line"),
    [
        ("{checkpoint: short}", "{checkpoint: shrot}", "shrot", 11),
        ("{checkpoint: later/first}", "{checkpoint: later/third}", "third", 12),
        ("{checkpoint: tuned/first}", "{checkpoint: nobody}", "nobody", 7),
        ("seeds: [3, 5], config: {started", "seeds: [3, 6], config: {started", "no seed 6", 7),
        ("name: short", "name: tuned", "twice", 6),
        ("config: {short: true}", "config: {shrot: true}", "shrot", 6),
        ("config: {short: true}", "config: {seed: 1}", "seed", 6),
        ("- {id: k1_test, name: short", "- {id: k2_test, name: short", "k2_test", 6),
    ],
)
def test_invalid_training_entry_is_refused_with_its_line(old: str, new: str, what: str, line: int, tmp_path: Path) -> None:
    text = FILE.replace(old, new)
    assert text != FILE
    with pytest.raises(UserError) as caught:
        experiment.parse(text, "x.yaml", store=tmp_path)
    assert what in " ".join(caught.value.lines())
    assert caught.value.where is not None
    assert caught.value.where.startswith(f"x.yaml:{line}")


def test_references_to_trainings_are_found_at_any_depth() -> None:
    assert references({"a": [{"b": {"checkpoint": "x/y"}}], "c": {"checkpoint": "z"}, "d": {"checkpoint": 3}}) == [("x", "y"), ("z", None)]


@pytest.mark.parametrize(("processes", "rank", "spoken"), [("1", None, True), ("2", "0", True), ("2", "1", False), ("1", "1", True)])
def test_only_the_first_process_of_a_group_prints(
    processes: str, rank: str | None, spoken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []

    def run(job: TrainingJob, progress: Any, *, until: str | None) -> list[Any]:
        ran.append(job.entry.id)
        return []

    monkeypatch.setattr(TrainingJob, "run", run)
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("WORLD_SIZE", processes)
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    done = CliRunner().invoke(app, ["train", "gpr", "--preset", "demo", "--store", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert ran == ["gpr"]
    assert ("nothing was trained" in done.output) == spoken
