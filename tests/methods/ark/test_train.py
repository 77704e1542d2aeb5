"""ARK end to end: from toy documents to a checkpoint that plain sentence-transformers loads, and refused inputs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from benchmarks import registry
from benchmarks.core.fingerprint import CHECKPOINT_CARD, folder_sha256
from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference
from benchmarks.schema import Passage, Query, Question, passage_id
from benchmarks.worlds.dataset import CARD
from methods.api import Services
from methods.ark.config import ArkTrainingConfig
from methods.ark.data import Document, TrainRow, load_material, require_disjoint
from methods.ark.negatives import Augmented
from methods.ark.train import ArkTraining, Preparation, held_out
from methods.registry import Component
from methods.training import TRAININGS, Prepared, Silent, TrainedStage, TrainingContext
from tests.support.errors import raises

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")
FACTS = [
    "the old bridge was built by a painter",
    "moss grows on the stone",
    "the river is long",
    "the cabin is cold",
    "a town lived by the bridge",
    "the painter was born in the year of the moss",
]


def read_rows(path: Path) -> list[TrainRow]:
    return [TrainRow(**json.loads(line)) for line in path.read_text().splitlines()]


class Scripted:
    """Queries without a graph; counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    async def queries(self, document: Document, questions: Sequence[Question]) -> dict[str, Augmented]:
        self.calls += 1
        return {question.id: Augmented(question.id, ("the cold cabin", "the long river"), ("moss",)) for question in questions}


def benchmark(split: str = "train", first: int = 0, seed: int = 1) -> Benchmark:
    """Return three toy documents with two questions each."""
    passages, questions = [], []
    for number in range(first, first + 3):
        chunks = [f"{fact} {number} ." for fact in FACTS]
        ids = [passage_id("", chunk, f"d{number}") for chunk in chunks]
        passages += [Passage(item, "", chunk, (), f"d{number}") for item, chunk in zip(ids, chunks, strict=True)]
        for position, (text, answer) in enumerate((("who built the bridge ?", "a painter"), ("where is moss ?", "stone"))):
            questions.append(
                Question(
                    f"q/{number}/{position}",
                    f"{number} {text}",
                    (answer,),
                    evidence=(ids[position],),
                    document_id=f"d{number}",
                    metadata={"seed": seed},
                )
            )
    return Benchmark(DataReference("worlds", "long", split), 1, CARD, questions, Corpus.of(passages))


def known(patch: pytest.MonkeyPatch) -> dict[str, Benchmark]:
    """Map references to the data of these tests."""
    results = {"worlds/long:train": benchmark(), "worlds/long:validation": benchmark("validation", 10, 10_000)}
    patch.setattr("methods.training.material.load", lambda reference, options: results[reference])
    return results


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> dict[str, Benchmark]:
    return known(monkeypatch)


@pytest.fixture(scope="module")
def base(tiny_models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> str:
    import transformers

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("base")
    model = transformers.BertModel(tiny_models.config("Bert", len(tiny_models.tokenizer("bert"))))
    tiny_models.save(folder, "bert", model)
    tiny_models.layout(folder, 64, [tiny_models.pooling("mean")], {"query": "query : ", "document": ""})
    return str(folder)


def config(base: str, tiny_llama: str, **changes: Any) -> ArkTrainingConfig:
    options: dict[str, Any] = {
        "data": ["worlds/long:train"],
        "base": base,
        "chunks": "passages",
        "seed": 5,
        "score": {"scorer": tiny_llama, "positives": 2, **changes.pop("score", {})},
        "mine": {"top_k": 3, "sample": 2, "keep_out": 3, **changes.pop("mine", {})},
        "loss": {"temperature": 0.1},
        "train": {"epochs": [1, 2, 1], "learning_rate": [1e-3] * 3, "batch_size": 4, "save_every": 2, **changes.pop("train", {})},
        **changes,
    }
    return ArkTrainingConfig.model_validate(options)


def train(options: ArkTrainingConfig, folder: Path, source: Any = None, progress: Any = None) -> list[TrainedStage]:
    services = Services(artifacts=folder / "artifacts", device="cpu")
    context = TrainingContext(folder / "work", folder / "checkpoints", services, progress or Silent())
    stages = []
    for stage in ArkTraining(options, source or Scripted()).run(context):
        (stage.folder / CHECKPOINT_CARD).write_text("{}")  # as the command does: it makes the hash that of the folder
        stages.append(stage)
    return stages


@pytest.fixture(scope="module")
def _trained(base: str, tiny_llama: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        known(patch)
        train(config(base, tiny_llama), folder)
    return folder


@pytest.fixture
def finished(data: dict[str, Benchmark], _trained: Path, tmp_path: Path) -> Path:
    """Train `config(base, tiny_llama)` in a folder that tests may write to."""
    return Path(shutil.copytree(_trained, tmp_path / "finished"))


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_from_documents_to_a_checkpoint_that_sentence_transformers_loads(
    data: dict[str, Benchmark], base: str, tiny_llama: str, tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    options = config(base, tiny_llama, validation=["worlds/long:validation"])
    stages = train(options, tmp_path)
    assert [stage.stage for stage in stages] == ["stage1", "stage2", "stage3"]
    assert [stage.parents for stage in stages] == [(), *((folder_sha256(stage.folder),) for stage in stages[:2])]
    assert all(stage.fresh and stage.data == (data["worlds/long:train"].fingerprint,) for stage in stages)
    assert 0 <= stages[-1].figures["validation_recall@5"] <= 1
    model = SentenceTransformer(str(stages[-1].folder), device="cpu")
    assert model.prompts == {"query": "query : ", "document": ""}
    vectors = model.encode_query(["who built the bridge ?"])
    assert vectors.shape == (1, 32)
    assert "sentence-transformers" in (stages[-1].folder / "README.md").read_text()
    assert list(stages[-1].folder.glob("*.safetensors"))
    weights = [SentenceTransformer(str(stage.folder), device="cpu").encode(["moss"])[0] for stage in stages]
    assert not np.allclose(weights[0], weights[1])


@pytest.mark.slow
def test_artifacts_record_chunks_scores_and_parents_of_each_stage(finished: Path) -> None:
    work = finished / "work"
    chunks = {row["id"]: row for row in map(json.loads, (work / "chunks.jsonl").read_text().splitlines())}
    assert len(chunks) == 18
    assert len(list((work / "scores").glob("*.jsonl"))) == 6
    manifest = json.loads((work / "manifest.json").read_text())
    hashes = {name: folder_sha256(finished / "checkpoints" / name) for name in ("stage1", "stage2", "stage3")}
    assert {name: record["sha256"] for name, record in manifest["stages"].items()} == hashes
    assert manifest["stages"]["stage3"]["parent"] == manifest["stages"]["stage3"]["mined_with"] == hashes["stage2"]
    assert manifest["stages"]["stage1"]["mined_with"] is None
    scores = [json.loads(line) for path in (work / "scores").glob("*.jsonl") for line in path.read_text().splitlines()]
    kept_out = {(score["question_id"], score["chunk_id"]) for score in scores if score["rank"] < 3}
    kept_out |= {(question.id, item) for question in benchmark().questions for item in question.evidence}
    for stage, negatives in (("stage1", 0), ("stage2", 2), ("stage3", 2)):
        rows = read_rows(work / "train" / f"{stage}.jsonl")
        assert {row.stage for row in rows} == {stage}
        for row in rows:
            assert len(row.positive_ids) == 2
            assert row.positive_id in row.positive_ids
            assert len(row.negative_ids) == len(set(row.negative_ids)) <= negatives
            assert not {(row.question_id, item) for item in row.negative_ids} & kept_out
            documents = {chunks[item]["document_id"] for item in (row.positive_id, *row.negative_ids)}
            assert documents == {row.document_id}
    for stage in ("stage2", "stage3"):
        mined = [json.loads(path.read_text()) for path in (work / "mined" / stage).glob("*.json")]
        assert len(mined) == 6
        parent = hashes["stage1" if stage == "stage2" else "stage2"]
        assert {item["model"] for item in mined} == {parent}
        assert {tuple(item["queries"]) for item in mined} == {("the cold cabin", "the long river") if stage == "stage2" else ("moss",)}


@pytest.mark.slow
def test_second_run_reuses_every_stage_without_scoring(finished: Path, base: str, tiny_llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from methods.ark import alignment

    before = files(finished)

    def refuse(*_: Any) -> Any:
        raise AssertionError("a second run must not score")

    monkeypatch.setattr(alignment.LikelihoodTerm, "scores", refuse)
    monkeypatch.setattr(alignment.VectorTerm, "scores", refuse)
    again = train(config(base, tiny_llama), finished)
    assert [item.fresh for item in again] == [False] * 3
    assert files(finished) == before


@pytest.mark.slow
def test_training_with_other_options_reuses_raw_scores(
    finished: Path, base: str, tiny_llama: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from methods.ark import alignment

    monkeypatch.setattr(alignment.LikelihoodTerm, "scores", None)
    context = TrainingContext(tmp_path / "two", tmp_path / "other", Services(artifacts=finished / "artifacts", device="cpu"))
    without = config(base, tiny_llama, score={"b": {"weight": 0}})
    assert len(list(ArkTraining(without, Scripted()).run(context))) == 3


@pytest.mark.slow
def test_equal_seeds_give_equal_files(finished: Path, base: str, tiny_llama: str, tmp_path: Path) -> None:
    options = config(base, tiny_llama)
    first, second = finished / "checkpoints" / "stage3", train(options, tmp_path / "two")[-1].folder
    assert folder_sha256(first) == folder_sha256(second)
    other = train(options.model_copy(update={"seed": 6}), tmp_path / "three")[-1].folder
    assert folder_sha256(other) != folder_sha256(first)


@pytest.mark.slow
def test_training_interrupted_after_a_stage_resumes_with_the_next(finished: Path, base: str, tiny_llama: str, tmp_path: Path) -> None:
    options = config(base, tiny_llama)
    context = TrainingContext(tmp_path / "work", tmp_path / "to", Services(device="cpu"))
    left = ArkTraining(options, Scripted()).run(context)
    next(left)
    left.close()
    resumed = list(ArkTraining(options, Scripted()).run(context))
    assert [item.fresh for item in resumed] == [False, True, True]
    assert folder_sha256(resumed[-1].folder) == folder_sha256(finished / "checkpoints" / "stage3")


@pytest.mark.slow
def test_stage_with_a_modified_parent_is_refused(finished: Path, base: str, tiny_llama: str) -> None:
    (finished / "checkpoints" / "stage1" / "README.md").write_text("another")
    with raises("checkpoint-replaced"):
        train(config(base, tiny_llama), finished)


@pytest.mark.slow
def test_folder_with_other_files_or_a_foreign_checkpoint_is_refused(finished: Path, base: str, tiny_llama: str, tmp_path: Path) -> None:
    with raises("folder-of-other-training"):
        train(config(base, tiny_llama, seed=9), finished)
    (tmp_path / "new" / "checkpoints" / "stage1").mkdir(parents=True)
    with raises("training-folder-unfinished"):
        train(config(base, tiny_llama), tmp_path / "new")


def test_trained_and_evaluated_data_are_disjoint(data: dict[str, Benchmark], base: str, tiny_llama: str, tmp_path: Path) -> None:
    data["worlds/long:test"] = data["worlds/long:train"]
    with raises("trained-on-evaluated"):
        train(config(base, tiny_llama, evaluation=["worlds/long:test"]), tmp_path)
    other = benchmark(first=20)
    same = replace(other, questions=data["worlds/long:train"].questions[:1])
    with raises("trained-on-evaluated"):
        require_disjoint(data["worlds/long:train"], same)
    require_disjoint(data["worlds/long:train"], data["worlds/long:validation"])


def test_unsupported_precision_is_refused_before_anything_is_written(base: str, tiny_llama: str, tmp_path: Path) -> None:
    with raises("precision-not-supported"):
        train(config(base, tiny_llama, train={"precision": "fp16"}), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_test_split_is_refused(base: str, tiny_llama: str, tmp_path: Path) -> None:
    with raises("test-split"):
        train(config(base, tiny_llama, data=["nq:test"]), tmp_path)


@pytest.mark.parametrize("seed", [10_000, 100_000])
def test_worlds_of_other_splits_than_train_are_refused(
    data: dict[str, Benchmark], base: str, tiny_llama: str, tmp_path: Path, seed: int
) -> None:
    data["worlds/long:train"] = benchmark(seed=seed)
    with raises("seed-of-other-split"):
        train(config(base, tiny_llama), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"mine": {"source": "random"}},
        {"mine": {"source": "question", "top_k": 6}},
        {"mine": {"model": "base"}},
        {"train": {"stages": ["stage3"]}},
        {"train": {"curriculum": "mixed"}},
        {"mine": {"stage1_random": 2}},
        {"score": {"choose": "evidence"}},
        {"train": {"query_instruction": False}},
    ],
)
def test_every_ablation_control_can_be_trained(
    data: dict[str, Benchmark], base: str, tiny_llama: str, tmp_path: Path, changes: dict[str, Any]
) -> None:
    source = Scripted()
    options = config(base, tiny_llama, **changes)
    stages = train(options, tmp_path, source)
    assert stages[-1].stage == "stage3"
    assert len(stages) == (1 if "curriculum" in changes.get("train", {}) or "stages" in changes.get("train", {}) else 3)
    assert (source.calls == 0) == (options.mine.source != "graph")
    rows = read_rows(tmp_path / "work" / "train" / "stage1.jsonl") if len(stages) > 1 else []
    assert all(len(row.negative_ids) == options.mine.stage1_random for row in rows)
    assert options.scores == (tmp_path / "work" / "scores").exists()
    if rows and not options.scores:
        evidence = {question.id: list(question.evidence) for question in data["worlds/long:train"].questions}
        assert {row.question_id: row.positive_ids for row in rows} == evidence


def prepared(options: ArkTrainingConfig, folder: Path) -> Prepared:
    """Prepare the first stage in a folder."""
    context = TrainingContext(folder / "work", folder / "checkpoints", Services(device="cpu"), prepares=True)
    with pytest.raises(Prepared) as caught:
        list(ArkTraining(options, Scripted()).run(context))
    return caught.value


def scores(folder: Path) -> set[tuple[str, str, float]]:
    """Return question, chunk and S_f of all scores in a folder."""
    rows = [json.loads(line) for path in (folder / "work" / "scores").glob("*.jsonl") for line in path.read_text().splitlines()]
    return {(row["question_id"], row["chunk_id"], row["s_f"]) for row in rows}


def stopped(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("changed", ["answers", "weights"])
def test_scores_from_before_a_stop_are_not_used_for_edited_data_or_other_weights(
    changed: str, data: dict[str, Benchmark], base: str, tiny_llama: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Path(shutil.copytree(tiny_llama, tmp_path / "model"))
    options = config(base, str(model))
    with monkeypatch.context() as patch:
        patch.setattr(Preparation, "run", stopped)
        with pytest.raises(KeyboardInterrupt):
            prepared(options, tmp_path / "stopped")
    before = data["worlds/long:train"]
    if changed == "answers":
        questions = [replace(question, answers=("moss",)) for question in before.questions]
        data["worlds/long:train"] = replace(before, questions=questions)
    else:
        (file,) = model.glob("*.safetensors")
        weights = safetensors.load_file(file)
        safetensors.save_file({name: item * 2 for name, item in weights.items()}, file, metadata={"format": "pt"})
    prepared(options, tmp_path / "stopped")
    prepared(options, tmp_path / "fresh")
    assert scores(tmp_path / "stopped") >= scores(tmp_path / "fresh")
    rows = [read_rows(tmp_path / name / "work" / "train" / "stage1.jsonl") for name in ("stopped", "fresh")]
    assert rows[0] == rows[1]


def test_left_out_questions_are_counted(data: dict[str, Benchmark], base: str, tiny_llama: str, tmp_path: Path) -> None:
    before = data["worlds/long:train"]
    first, second, *others = before.questions
    questions = [replace(first, answers=()), replace(second, evidence=()), *others]
    data["worlds/long:train"] = replace(before, questions=questions)
    result = prepared(config(base, tiny_llama, score={"choose": "evidence"}), tmp_path)
    assert result.figures == {"rows": 4, "rows_left_out": 0, "questions_without_answer": 1, "questions_without_positive": 1}


def test_question_without_a_negative_is_refused(data: dict[str, Benchmark], base: str, tiny_llama: str, tmp_path: Path) -> None:
    before = data["worlds/long:train"]
    data["worlds/long:train"] = replace(before, questions=before.questions[:1])
    with raises("no-training-pair"):
        prepared(config(base, tiny_llama), tmp_path / "one")
    data["worlds/long:train"] = replace(before, questions=before.questions[:2])
    with raises("no-training-pair"):
        prepared(config(base, tiny_llama, train={"batch_size": 1}), tmp_path / "alone")
    assert prepared(config(base, tiny_llama), tmp_path / "two").figures["rows"] == 4


def test_validation_needs_evidence_and_no_answers(data: dict[str, Benchmark], base: str, tiny_llama: str) -> None:
    before = data["worlds/long:validation"]
    first, second, *others = before.questions
    questions = [replace(first, answers=()), replace(second, evidence=()), *(replace(item, answers=()) for item in others)]
    data["worlds/long:validation"] = replace(before, questions=questions)
    documents, without = held_out(config(base, tiny_llama, validation=["worlds/long:validation"]))
    assert [question.id for document in documents for question in document.questions] == [item.id for item in (first, *others)]
    assert without == 1


def test_texts_longer_than_the_base_reads_are_counted(data: dict[str, Benchmark], base: str, tiny_llama: str, tmp_path: Path) -> None:
    before = data["worlds/long:train"]
    long = " ".join(["moss"] * 70)
    (first, *passages), (question, *questions) = before.corpus, before.questions
    longer = replace(first, text=f"{first.text} {long}")
    data["worlds/long:train"] = replace(
        before, questions=[replace(question, text=f"{question.text} {long}"), *questions], corpus=Corpus.of([longer, *passages])
    )
    figures = prepared(config(base, tiny_llama, score={"choose": "evidence"}), tmp_path).figures
    assert (figures["queries_cut"], figures["passages_cut"]) == (1, 1)


def test_documents_and_questions_of_two_datasets_with_equal_ids_stay_apart(
    data: dict[str, Benchmark], base: str, tiny_llama: str, tmp_path: Path
) -> None:
    one, other = benchmark(), benchmark(first=20)
    ids = {item.document_id: there.document_id for item, there in zip(other.questions, one.questions, strict=True)}
    questions = [
        replace(question, id=there.id, document_id=there.document_id)
        for question, there in zip(other.questions, one.questions, strict=True)
    ]
    corpus = Corpus.of([replace(passage, document_id=ids[passage.document_id]) for passage in other.corpus])
    data["worlds/long:train"], data["ultradomain/fin:train"] = one, replace(other, questions=questions, corpus=corpus)
    options = config(base, tiny_llama, data=list(data)[::2], score={"choose": "evidence"})
    material = load_material(options)
    assert len(material.documents) == 6
    assert len({question.id for question in material.questions}) == 12
    prepared(options, tmp_path)
    rows = read_rows(tmp_path / "work" / "train" / "stage1.jsonl")
    pairs = {(row.query, material.texts[row.positive_id]) for row in rows}
    expected = [(question, item.corpus) for item in (one, other) for question in item.questions]
    assert pairs == {(question.text, corpus.get(question.evidence)[0].full_text) for question, corpus in expected}


def test_presets_are_valid_options_that_differ_from_the_defaults() -> None:
    entry = TRAININGS.get("ark")
    paper, released = (entry.validate({"preset": name}) for name in ("paper", "released"))
    assert isinstance(paper, ArkTrainingConfig)
    assert isinstance(released, ArkTrainingConfig)
    assert (paper.score.normalize, released.score.normalize) == ("none", "minmax")
    assert (paper.loss.in_batch, released.loss.in_batch) == (("positives", "none", "none"), ("all", "all", "all"))
    assert (paper.mine.top_k, released.mine.top_k) == (20, 10)
    assert (paper.mine.model, released.mine.model) == ("previous", "base")
    assert [(item.batch_size, item.accumulation) for item in (paper.train, released.train)] == [(16, 8), (128, 1)]
    assert paper.train.precision == released.train.precision == "bf16"
    assert released.penalizes_short
    assert not paper.penalizes_short


@pytest.mark.slow
def test_trained_retriever_ranks_in_a_pipeline_and_a_foreign_model_is_refused(
    data: dict[str, Benchmark], finished: Path, base: str
) -> None:
    folder = finished / "checkpoints" / "stage3"
    (folder / "ragmeter.json").write_text(json.dumps({"method": "ark"}))
    component = Component.of("ark", {"model": str(folder)})
    component.preflight()
    assert component.describe()["weights"] == folder_sha256(folder)
    corpus = data["worlds/long:train"].corpus
    index = component.build(Services(device="cpu")).index(corpus)
    (ranking,) = index.retrieve([Query("q", "who built the bridge ?")], 4)
    assert len(set(ranking.ids)) == 4
    with raises("not-checkpoint-ark"):
        Component.of("ark", {"model": base}).preflight()


def small_world() -> Benchmark:
    """Return three documents of a train world, cut to the passages that answer their questions and eight others."""
    world = registry.load("worlds/long:train", {"worlds": 1, "questions": 16})
    documents = list(dict.fromkeys(question.document_id for question in world.questions))[:3]
    questions = [question for question in world.questions if question.document_id in documents and question.type == "single"]
    kept = [passage for document in documents for passage in world.corpus.by_document[document or ""][:8]]
    kept += [passage for question in questions for passage in question.evidence]
    return replace(world, questions=questions, corpus=Corpus.of(world.corpus.get(dict.fromkeys(kept))))


@pytest.mark.slow
def test_world_graphs_give_negatives_and_a_second_run_makes_no_call(
    data: dict[str, Benchmark], base: str, tiny_llama: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from methods.graphs.augmented_queries import TemplateQueries
    from methods.graphs.synthetic import WorldsExtractor

    data["worlds/long:train"] = small_world()
    options = config(base, tiny_llama, kg={"similarity": {"enabled": False}})
    context = TrainingContext(tmp_path / "work", tmp_path / "to", Services(artifacts=tmp_path / "artifacts", device="cpu"))
    stages = list(ArkTraining(options).run(context))
    assert [stage.fresh for stage in stages] == [True] * 3
    for folder in ("kg", "subgraphs", "queries"):
        assert list((tmp_path / "work" / folder).glob("*.json"))
    rows = read_rows(tmp_path / "work" / "train" / "stage3.jsonl")
    assert rows
    assert all(row.negative_ids for row in rows)

    def refuse(*_: Any) -> Any:
        raise AssertionError("a second run must not ask")

    for part, name in ((WorldsExtractor, "extract"), (TemplateQueries, "generate")):
        monkeypatch.setattr(part, name, refuse)
    assert [item.fresh for item in ArkTraining(options).run(context)] == [False] * 3
