"""Memory models: figures of the authors' training code, incremental reading, refused layouts, and MemoRAG."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from methods.api import Services
from methods.baselines.graph_rag import memorag
from methods.baselines.graph_rag.beacons import BeaconConfig, BeaconModel, open_beacons
from methods.flow import run
from methods.registry import Component
from methods.work import Lengths, Sample, filler
from tests.support.errors import raises
from tools.tiny_checkpoints import make

torch = pytest.importorskip("torch")

TEXT = [(n * n * 7 + 11) % 600 + 3 for n in range(150)]
QUESTION = [n * 31 % 600 + 3 for n in range(9)]
AUTHORS: dict[tuple[str, int], tuple[int, list[float], list[int]]] = {
    ("qwen2", 4): (59, [0.3824, 0.0138, -1.3081, 1.3195], [52, 526, 425, 303, 52, 52, 52, 52, 52, 52, 52, 534, 516, 205, 516, 205]),
    ("qwen2", 3): (72, [-0.1579, -1.9122, -0.9977, 0.8365], [52, 141, 425, 75, 534, 516, 75, 425, 303, 52, 52, 52, 52, 52, 52, 52]),
    ("mistral", 4): (59, [2.2295, -0.2283, 1.0824, 0.9804], [371, 96, 53, 96, 53, 96, 53, 96, 85, 96, 85, 96, 85, 96, 85, 96]),
    ("mistral", 3): (72, [2.6406, -0.0457, 1.6456, 0.4062], [601, 96, 53, 96, 53, 96, 53, 96, 53, 96, 53, 96, 53, 96, 53, 96]),
}
"""Map class and ratio to the positions of a text's memory, logits after the question, and the next tokens. From
train/src of qhjqhj00/MemoRAG at 67a88db0, run on these tiny checkpoints (torch 2.13, transformers 4.44.2).
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a random memory model of each class."""
    folder = tmp_path_factory.mktemp("tiny")
    make(folder, ["memorag-qwen2", "memorag-mistral"])
    return folder


@pytest.fixture
def model(tiny: Path) -> BeaconModel:
    return open_beacons(BeaconConfig.model_validate({"model": str(tiny / "memorag-qwen2"), "max_new_tokens": 6}), "cpu")


@pytest.mark.parametrize(("kind", "ratio"), AUTHORS)
def test_memory_logits_and_tokens_equal_those_of_the_authors_training_code(kind: str, ratio: int, tiny: Path) -> None:
    model = BeaconModel(BeaconConfig.model_validate({"model": str(tiny / f"memorag-{kind}"), "ratio": ratio}), "cpu")
    size, logits, written = AUTHORS[kind, ratio]
    memory = model.read(TEXT)
    assert memory.size == size
    memory, states = model.states(QUESTION, memory)
    head = model.model.get_output_embeddings()
    assert head(states[-1])[:4].tolist() == pytest.approx(logits, abs=2e-4)
    ours: list[int] = []
    for _ in written:
        ours.append(int(head(states[-1]).argmax()))
        memory, states = model.states(ours[-1:], memory)
    assert ours == written


def test_incremental_reading_equals_reading_at_once_and_keeps_at_most_one_window(model: BeaconModel) -> None:
    whole, states = model.states(TEXT)
    memory, parts = None, []
    for start in range(0, len(TEXT), 13):
        memory, some = model.states(TEXT[start : start + 13], memory)
        parts.append(some)
        assert memory.keys[0].shape[1] == memory.tokens // model.window * model.window // 4
        assert len(memory.beacons) < model.window * 5 // 4
    assert memory is not None
    assert memory.tokens == whole.tokens == len(TEXT)
    torch.testing.assert_close(torch.cat(parts), states, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(memory.keys[1], whole.keys[1], atol=1e-4, rtol=1e-4)


def test_generation_depends_on_the_memory_and_does_not_change_it(model: BeaconModel) -> None:
    conversation = [{"role": "user", "content": "Who kept the tower?"}]
    memory = model.read(TEXT)
    first, second = model.write(memory, [conversation, conversation])
    assert first.tokens == second.tokens
    assert first.prompt_tokens == len(model.encode(conversation))
    assert 0 < first.completion_tokens <= 6
    assert memory.tokens == len(TEXT)
    other = model.states(QUESTION, model.read(TEXT[::-1]))[1]
    assert not torch.allclose(model.states(QUESTION, memory)[1], other, atol=0.01)


def test_text_longer_than_the_context_window_loses_its_middle(model: BeaconModel) -> None:
    text = " ".join(f"word{number}" for number in range(3000))
    short, lost = model.shortened(text, 100)
    assert lost > 0
    assert (short[:5], short[-4:]) == ("word0", "2999")
    assert len(model.tokenizer(short, add_special_tokens=False)["input_ids"]) < 110
    assert model.shortened("a tower", 100) == ("a tower", 0)
    assert model.room == (2048 - 40) * 4 - 1024
    assert model.shortened(text * 9, 10**9)[1] > 0


@pytest.mark.parametrize(
    "change",
    [
        {"beacon_pos": "append"},
        {"beacon_sink_size": 1},
        {"beacon_stride": 16},
        {"model_type": "qwen3"},
        {"beacon_window": None},
        {"beacon_param": ["o"]},
    ],
)
def test_other_layouts_are_refused(change: dict[str, Any], tiny: Path, tmp_path: Path) -> None:
    source = tiny / "memorag-qwen2"
    for path in source.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    settings = {**json.loads((source / "config.json").read_text()), **change}
    (tmp_path / "config.json").write_text(json.dumps({name: value for name, value in settings.items() if value is not None}))
    with raises("bad-beacon-layout", where=str(tmp_path)):
        BeaconModel(BeaconConfig.model_validate({"model": str(tmp_path)}), "cpu")


CORPUS = Corpus.of(
    [
        Passage(f"{doc}{n}", "", f"{doc} keeper {n} kept the tower of bay {n} for long years.", document_id=doc)
        for doc in "ab"
        for n in range(9)
    ]
)


def built(tiny: Path, encoder: str, **options: Any) -> Any:
    memory = {"memory": "beacons", "memory_model": {"model": str(tiny / "memorag-mistral"), "max_new_tokens": 12}}
    system = Component.of("memorag", {"encoder": {"model": encoder}, "prompt": "ours", **memory, **options})
    made = system.build(Services(device="cpu")).index(CORPUS)
    queries = [Query(f"q{doc}", "Who kept the tower?", document_id=doc) for doc in "ab"]
    made.build_for(queries)
    return made, queries


def test_memorag_searches_with_the_clues_of_its_memory_and_counts_reading_once_per_document(
    tiny: Path, tiny_encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, queries = built(tiny, tiny_encoder, draft=True, context="native")
    assert (made.usage.model_calls, made.usage.completion_tokens) == (2, 0)
    before = made.usage
    monkeypatch.setattr(memorag, "SHARE", 0.0)
    for query in [*queries, *queries]:
        ranking = run(made.retrieve_one(query, 5))
        assert {name[0] for name in ranking.ids} == {query.document_id}
        assert ranking.usage.model_calls == 3
        assert ranking.usage.memory_tokens > 0
        assert set(ranking.notes["memorag"]) >= {"clues", "draft"}
        *_, draft = run(made.contexts_one(query, ranking)).passages
        assert draft.text.startswith("The answer might be ")
        assert len(made._memories) == 1
    assert made.usage == before


def test_memorag_notes_how_much_of_a_long_text_was_cut_from_its_memory(tiny: Path, tiny_encoder: str) -> None:
    made, queries = built(tiny, tiny_encoder, memory_tokens=100)
    assert run(made.retrieve_one(queries[0], 3)).notes["memorag"]["left_out"] > 0


def test_published_prompts_are_the_default(tiny: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (data_folder / "prompts").is_dir():
        pytest.skip(f"published prompts not found at {data_folder}/prompts")
    monkeypatch.setenv("RAGMETER_DATA", str(data_folder))
    options = {"memory": "beacons", "memory_model": {"model": str(tiny / "memorag-qwen2")}}
    config, ours = (memorag.MemoConfig.model_validate(each) for each in (options, {**options, "prompt": "ours"}))
    theirs = config.template("memorag_memorize").messages(text="A $5 {tower}.")
    assert theirs[0]["content"].count("A $5 {tower}.") == 1
    assert theirs[1]["role"] == "assistant"
    assert theirs != ours.template("memorag_memorize").messages(text="A $5 {tower}.")
    assert config.made_of() != ours.made_of()


@pytest.mark.parametrize(
    "options",
    [
        {"memory": "beacons"},
        {"memory": "long_llm", "llm": {"model": "m"}, "memory_model": {}},
        {"memory": "beacons", "memory_model": {}, "llm": {"model": "m"}},
        {"memory": "long_llm", "llm": {"model": "m"}, "prompt": "ours"},
    ],
)
def test_options_of_another_memory_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        memorag.MemoConfig.model_validate(options)


def test_plan_counts_each_document_once_and_prompts_without_the_memorized_text() -> None:
    config = memorag.MemoConfig.model_validate({"memory": "beacons", "memory_model": {"ratio": 4}, "draft": True})
    work = memorag._work(config, Lengths("d", 10, (Sample("x" * 40, (filler(100),), "", 20),), 80, 100, own=80))
    (once,) = (item for item in work.once if any(use.model == config.own_models[0].model for use in item.work.uses))
    assert once.work.count("encoded") == pytest.approx(80 * 100 * 1.25)
    clues = next(use for use in work.uses if use.model == config.own_models[0].model)
    assert (clues.calls, clues.memory, clues.completion) == (30, 30 * 500, 30 * 128)
