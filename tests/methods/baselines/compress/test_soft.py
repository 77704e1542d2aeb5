"""Compressors into vectors: dependence of memory, its position in prompts, losses, and what training changes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query, passage_id
from methods.api import TRUNCATED, Ranking, Services
from methods.baselines.compress.autocompressor import language_loss
from methods.baselines.compress.model import PLACE, SoftModel
from methods.baselines.compress.rows import CompressionRow, joined
from methods.baselines.compress.soft import SYSTEMS, system_of
from methods.baselines.compress.training import Objective
from methods.pipeline import Composition
from methods.registry import Component
from methods.training import TRAININGS, TrainingContext
from methods.training.pieces import divergence, size, taught
from tests.support.errors import raises

TEXTS = ["The old bridge\nA painter built the old bridge by the river in 1921.", "Moss.", "", "It is cold in the cabin of the north. " * 4]
NAMES = [*SYSTEMS, "cocom light"]


def corpus() -> Corpus:
    return Corpus.of([Passage(passage_id("", text), "", text) for text in TEXTS])


@pytest.mark.parametrize("name", NAMES)
def test_memory_depends_only_on_its_own_text_and_covers_all_of_it(models: dict[str, SoftModel], name: str) -> None:
    model = models[name]
    with torch.inference_mode():
        together, backwards = model.encode(TEXTS), model.encode(TEXTS[::-1])[::-1]
        alone = [model.encode([text])[0] for text in TEXTS]
        other = model.encode(["Moss!"])[0]
    assert [len(item) for item in together] == [model.system.count(model, text) for text in TEXTS]
    assert together[2].shape == (0, model.width)
    for one, two, three in zip(together, backwards, alone, strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(one, three, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(other, together[1], atol=1e-3)
    # A long passage is several segments; of xRAG it is one vector, whatever its length.
    per_segment = {"pisco": 4, "cocom": 3, "pcc": 4, "autocompressor": 3, "xrag": 1}
    if name in per_segment:
        segments = 1 if name == "xrag" else math.ceil(len(TEXTS[3].strip()) / 48)
        assert len(together[3]) == segments * per_segment[name]


@pytest.mark.parametrize("name", ["pisco", "oscar", "autocompressor", "cocom light"])
def test_saved_checkpoint_loads_bit_identical(models: dict[str, SoftModel], folders: dict[str, str], name: str) -> None:
    again = SoftModel.load(Path(folders[name]), "cpu")
    with torch.inference_mode():
        assert all(torch.equal(one, two) for one, two in zip(models[name].encode(TEXTS), again.encode(TEXTS), strict=True))


def test_memory_block_takes_the_position_of_its_passage_in_the_prompt(models: dict[str, SoftModel]) -> None:
    """With the embeddings of a passage's own tokens as memory, the prompt equals that of the text."""
    model = models["pisco"]
    text = "moss grows on stone"
    own = model.base.get_input_embeddings()(torch.tensor(model.ids(text)))
    pieces, whole = model.prompt("who?", [[own], [own]]), model.prompt_of_text("who?", [text, text])
    assert size(pieces) == size(whole)
    for side in ([1, 2], [2, 9, 7]):
        with torch.inference_mode():
            one, two = taught(model.base, [pieces, [[1, 5]]], [side, [3]]), taught(model.base, [[[1, 5]], whole], [[3], side])
        torch.testing.assert_close(one.logits[:-1], two.logits[1:], atol=1e-4, rtol=1e-4)
    hostile = model.prompt(f"who {PLACE} is?", [[own]])
    assert sum(isinstance(piece, Tensor) for piece in hostile) == 1


def test_xrag_replaces_exactly_one_token_per_passage(models: dict[str, SoftModel]) -> None:
    model = models["xrag"]
    with torch.inference_mode():
        memory = [item for item in model.encode(TEXTS) if len(item)]
    whole = size(model.system.prompt(model, "who?", memory))
    bare = [model.base.get_input_embeddings().weight[:1]]
    assert whole == size(model.prompt("who?", [bare] * len(memory)))
    assert whole == size(model.prompt_of_text("who?", ["m"] * len(memory)))  # a byte is a token


def test_losses_equal_naive_loops(models: dict[str, SoftModel]) -> None:
    model = models["xrag"]
    rows = [
        CompressionRow("answer", (TEXTS[0], TEXTS[1]), "who built it?", "a painter"),
        CompressionRow("answer", (TEXTS[3],), "where?", "north"),
    ]
    expected, count = 0.0, 0
    with torch.inference_mode():
        for row in rows:
            student = model.system.prompt(model, row.question, model.encode(row.documents))
            teacher, reply = model.prompt_of_text(row.question, row.documents), model.reply(row.target)
            for at, token in enumerate(reply):
                logits = [
                    taught(model.base, [[*prompt, reply[:at]] if at else prompt], [[token]]).logits[0] for prompt in (student, teacher)
                ]
                p, q = logits[1].softmax(-1), logits[0].softmax(-1)
                expected += float(-q[token].log() + 2 * sum(a * (a / b).log() for a, b in zip(p, q, strict=True)))
                count += 1
        loss, number = Objective(model, 2.0).summed(rows)
    assert number == count
    assert float(loss) == pytest.approx(expected, rel=1e-4)
    a, b = torch.randn(3, 7), torch.randn(3, 7)
    assert torch.allclose(divergence(b, a, 2.0), 4 * ((a / 2).softmax(-1) * ((a / 2).log_softmax(-1) - (b / 2).log_softmax(-1))).sum(-1))


def test_language_loss_equals_token_by_token_loss_with_gradient_over_two_segments(models: dict[str, SoftModel]) -> None:
    model = models["autocompressor"]
    segments = [[1, 70, 80, 90], [1, 77], [5, 6, 7], [9, 8]]
    summary = model.part("summary").detach().clone().requires_grad_()
    loss, number = language_loss(model, segments, summary, 2)
    before, expected = [torch.zeros(0, model.width)], 0.0
    with torch.no_grad():
        embed, decoder, head = model.base.get_input_embeddings(), model.base.get_decoder(), model.base.get_output_embeddings()
        last = None
        for ids in segments:
            read = torch.cat([*before, embed(torch.tensor(ids)), summary])
            states = decoder(inputs_embeds=read[None]).last_hidden_state[0]
            start = sum(map(len, before))
            for at, token in enumerate(ids):
                if last is not None:
                    expected -= float(head(last).log_softmax(-1)[token])
                last = states[start + at]
            before.append(states[-3:])
    assert number == 10
    assert float(loss) == pytest.approx(expected, rel=1e-4)
    # Behind the second segment gradients stop: with a first pair alone, they are those of the first pair and the second apart.
    (whole,) = torch.autograd.grad(loss, summary)
    free, _ = language_loss(model, segments, summary, 99)
    (unstopped,) = torch.autograd.grad(free, summary)
    assert not torch.allclose(whole, unstopped, atol=1e-6)
    assert float(free.detach()) == pytest.approx(float(loss.detach()), rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_step_changes_only_the_trained_parameters(makes: Callable[..., SoftModel], name: str) -> None:
    model = makes(name)
    before = {key: item.detach().clone() for key, item in model.named_parameters()}
    rows = [CompressionRow("answer", tuple(TEXTS[:2]), "who?", "a painter"), CompressionRow("answer", (TEXTS[3],), "where?", "north")]
    stage = model.system.stages[0]
    if stage == "pretrained":
        rows = [CompressionRow("restore", (TEXTS[0],), "", TEXTS[0]), CompressionRow("continue", (TEXTS[3],), "", "and dark.")]
    model.set_trainable(model.system.trained(stage))
    opened = [item for item in model.parameters() if item.requires_grad]
    optimizer = torch.optim.AdamW(opened, lr=1e-2)
    Objective(model, 0.0).backward(rows, 1, ("test",))
    whole = [item.grad.clone() for item in opened if item.grad is not None]
    optimizer.step()
    changed = {key for key, item in model.named_parameters() if not torch.equal(item, before[key])}
    trained = model.system.trained(stage)
    for key in before:
        names = {"parts." + key.split(".")[1]} if key.startswith("parts.") else {key.split(".")[0], *key.rpartition("lora_")[2].split(".")}
        assert key not in changed or names & (trained | ({"parts." + key.split(".")[1]} if "parts" in trained else set())), key
    assert changed
    assert {key.partition(".")[0] for key in changed} == {
        key.partition(".")[0] for key, item in model.named_parameters() if item.requires_grad
    }
    # In parts or at once, the gradient is the same.
    for item in opened:
        item.grad = None
    with torch.no_grad():
        for key, item in model.named_parameters():
            item.copy_(before[key])
    Objective(model, 0.0).backward(rows, 2, ("test",)) if stage != "pretrained" else Objective(model, 0.0).backward(rows, 1, ("test",))
    for one, two in zip(whole, (item.grad for item in opened if item.grad is not None), strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-3)


def test_questions_that_share_one_encoding_have_the_same_losses_as_alone(makes: Callable[..., SoftModel]) -> None:
    """Uses all of ragmeter's variants: spread positions, vectors scaled to embeddings, and the naming loss."""
    ours = {"positions": "spread", "memory_length": "embedding"}
    model = makes("pisco", **ours)
    about, built = ("what?", "moss"), ("who built it?", "a painter")
    one, two = CompressionRow("answer", tuple(TEXTS[:2]), *built, more=(about,)), CompressionRow("answer", (TEXTS[3],), "where?", "north")
    objective = Objective(model, 2.0)
    with torch.inference_mode():
        together, number = objective.summed([one, two])
        apart = [
            objective.summed([row])
            for row in (CompressionRow("answer", one.documents, *built), CompressionRow("answer", one.documents, *about), two)
        ]
        assert number == sum(count for _, count in apart)
        assert float(together) == pytest.approx(sum(float(loss) for loss, _ in apart), rel=1e-4)
        norms = torch.cat(model.encode(TEXTS)).norm(dim=-1)
        embeddings = model.base.get_input_embeddings().weight
        assert norms.tolist() == pytest.approx([float(embeddings.norm(dim=-1).mean())] * len(norms), rel=1e-5)
        # A token of a passage belongs to a vector, by its place.
        (memory,), ids = model.raw([TEXTS[0]]), model.ids(TEXTS[0])
        likely = model.base.get_output_embeddings()(memory).log_softmax(-1)
        named = [float(likely[at * len(memory) // len(ids), token]) for at, token in enumerate(ids)]
        assert float(objective._naming_loss([CompressionRow("answer", (TEXTS[0],), "", "")], [memory])) == pytest.approx(
            -sum(named) / len(named), rel=1e-4
        )
    joining = joined(
        [replace(two, evidence=(TEXTS[3],)), CompressionRow("answer", (TEXTS[3], TEXTS[0]), *built, evidence=(TEXTS[0],))], 4, 0
    )
    assert [row.more for row in joining] == [(), (("where?", "north"),)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pisco", "xrag", "pcc", "autocompressor"])
def test_trained_parameters_lower_the_loss(makes: Callable[..., SoftModel], name: str) -> None:
    """The loss falls in every stage within a few steps on two rows."""
    model = makes(name)
    answers = [CompressionRow("answer", tuple(TEXTS[:2]), "who?", "a painter"), CompressionRow("answer", (TEXTS[3],), "where?", "north")]
    passages = [CompressionRow("restore", (TEXTS[1],), "", TEXTS[1]), CompressionRow("restore", (TEXTS[0][:20],), "", TEXTS[0][:20])]
    for stage in model.system.stages:
        rows = passages if stage == "pretrained" else answers
        model.set_trainable(model.system.trained(stage))
        opened = [item for item in model.parameters() if item.requires_grad]
        optimizer, objective = torch.optim.AdamW(opened, lr=1e-2), Objective(model, 0.0)
        losses = []
        for step in range(8):
            optimizer.zero_grad()
            losses.append(objective.backward(rows, 2, ("test", step)))
            optimizer.step()
        # Of a random model that stays frozen little can be reached through vectors.
        assert losses[-1] < losses[0] - (0.1 if name not in ("xrag", "pcc") else 1e-4), losses


@pytest.mark.slow
def test_answers_are_equal_with_an_index_and_within_the_budget(folders: dict[str, str], tmp_path: Path) -> None:
    documents, ids = corpus(), [passage_id("", text) for text in TEXTS]
    queries = [Query("a", "who built the bridge?"), Query("b", "where is it cold?")]
    rankings = [Ranking("a", tuple(ids), (4.0, 3.0, 2.0, 1.0)), Ranking("b", (ids[3], ids[2]), (2.0, 1.0))]
    services = Services(artifacts=tmp_path, device="cpu")
    for name in ("pisco", "autocompressor", "xrag"):
        reader = Component.of("memory_reader", {"model": folders[name], "max_new_tokens": 5}).build(services)
        direct, indexed = (Component.of(name, {"model": folders[name], "offline": offline}).build(services) for offline in (False, True))
        contexts = direct.compress(queries, rankings, documents, None)
        answers = reader.read(queries, contexts)
        assert [item.text for item in reader.read(queries, indexed.compress(queries, rankings, documents, None))] == [
            item.text for item in answers
        ]
        assert [item.usage.memory_tokens for item in answers] == [sum(map(len, context.memory.vectors)) for context in contexts]
        assert [reader.read([query], [context])[0].text for query, context in zip(queries, contexts, strict=True)] == [
            item.text for item in answers
        ]
        (short,) = direct.compress(queries[:1], rankings[:1], documents, 9)
        assert sum(map(len, short.memory.vectors)) <= 9
        (none,) = Component.of("pisco", {"model": folders["pisco"]}).build(services).compress(queries[:1], rankings[:1], documents, 3)
        assert none.memory is None
        assert none.notes[TRUNCATED] == {"unit": "tokens", "kept": 0, "of": 28}


def test_an_interrupted_index_resumes_and_encodes_no_shard_twice(
    folders: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("methods.baselines.compress.memory.CHUNK", 1)
    options = {"model": folders["pisco"], "offline": True}
    whole, starts = Component.of("pisco", options).build(Services(device="cpu")).index(corpus())
    encoded: list[int] = []

    def build(stop_after: int | None = None) -> Any:
        def count(passages: int) -> None:
            encoded.append(passages)
            if len(encoded) == stop_after:
                raise KeyboardInterrupt

        return Component.of("pisco", options).build(Services(artifacts=tmp_path, device="cpu")).index(corpus(), done=count)

    with pytest.raises(KeyboardInterrupt):
        build(stop_after=3)
    finished = list(tmp_path.rglob("*.chunk.npy"))
    assert len(finished) == 2
    resumed, again = build()
    assert len(encoded) == 3 + len(TEXTS) - len(finished)
    assert np.array_equal(resumed, whole)
    assert np.array_equal(again, starts)
    build()
    assert len(encoded) == 3 + len(TEXTS) - len(finished)


def test_memory_of_another_checkpoint_is_refused_before_anything_is_loaded(folders: dict[str, str], tmp_path: Path) -> None:
    def composed(compressor: str, reader: str, made: str) -> None:
        parts = Component.of("memory_reader", {"model": reader}), (), Component.of(made, {"model": compressor})
        Composition(Component.of("bm25"), *parts)

    composed(folders["pisco"], folders["pisco"], "pisco")
    with raises("reader-model-mismatch"):
        composed(folders["pisco"], folders["cocom"], "pisco")
    with raises("reader-without-memory"):
        Composition(Component.of("bm25"), None, (), Component.of("pisco", {"model": folders["pisco"]}))
    with raises("checkpoint-of-other-system"):
        Component.of("pisco", {"model": folders["cocom"]}).build(Services(device="cpu"))
    # Its base is no longer the one that it was trained on.
    card = Path(folders["pisco"]) / "memory.json"
    other = tmp_path / "other"
    other.mkdir()
    text = card.read_text()
    (other / "memory.json").write_text(text.replace('"language_model": "', '"language_model": "0'))
    with raises("part-base-mismatch"):
        Component.of("pisco", {"model": str(other)}).preflight()


def test_oscar_encodes_a_passage_with_its_question_ranks_and_writes_no_index(
    models: dict[str, SoftModel], folders: dict[str, str], makes: Callable[..., SoftModel], tmp_path: Path
) -> None:
    model = models["oscar"]
    assert len(model.encoder.model.layers) == 1
    with torch.inference_mode():
        one, two = (model.encode([TEXTS[0]], [question])[0] for question in ("who?", "where?"))
        long, whole = model.encode([TEXTS[3]], ["where? " * 40])[0], model.encode([TEXTS[3]], [""])[0]
    assert one.shape == two.shape
    assert not torch.allclose(one, two, atol=1e-3)
    assert len(long) == len(whole)  # a long question takes nothing of the passage
    with raises("nothing-to-keep"):
        Component.of("oscar", {"model": folders["oscar"], "offline": True}).build(Services(device="cpu"))
    with raises("not-passage-ranker"):
        Component.of("oscar", {"model": folders["oscar"], "keep": 1}).build(Services(device="cpu"))
    ranking = makes("oscar", ranks=True)
    rows = [CompressionRow("answer", (TEXTS[0], TEXTS[3]), "who?", "a painter", relevance=(2.0, -2.0))]
    with torch.inference_mode():
        memory, scores = ranking.system.scored(ranking, TEXTS, ["who?"] * 4)
        assert [len(item) for item in memory] == [ranking.system.count(ranking, text) for text in TEXTS]
        loss = float(Objective(ranking, 0.0).summed(rows)[0]) / len(ranking.reply("a painter"))
    wanted = loss + 0.05 * ((float(scores[0]) - 2) ** 2 + (float(scores[3]) + 2) ** 2)
    ranking.set_trainable(ranking.system.trained("tuned"))
    assert Objective(ranking, 0.0, ranking=0.05).backward(rows, 1, ("test",)) == pytest.approx(wanted, rel=1e-4)
    assert ranking.parts["relevance"].weight.grad is not None
    ranking.save(tmp_path)
    compressor = Component.of("oscar", {"model": str(tmp_path), "keep": 2}).build(Services(device="cpu"))
    ids = tuple(passage_id("", text) for text in TEXTS)
    (context,) = compressor.compress([Query("a", "who?")], [Ranking("a", ids, (4.0, 3.0, 2.0, 1.0))], corpus(), None)
    best = sorted(range(4), key=lambda at: -float(scores[at]))[:2]
    assert [len(item) for item in context.memory.vectors] == [len(memory[at]) for at in best]


def test_light_encoder_projects_groups_of_states_padded_with_zeros(models: dict[str, SoftModel], tiny_models: ModuleType) -> None:
    """Five consecutive states become one vector; zeros fill the last group."""
    model = models["cocom light"]
    ids = model.system.segments(model, TEXTS[1])[0]  # type: ignore[attr-defined]
    with torch.inference_mode():
        states = model.encoder(input_ids=torch.tensor([ids])).last_hidden_state[0]
        padded = torch.cat([states, torch.zeros(-len(states) % 5, 32)])
        expected = model.parts["linear"](padded.reshape(-1, 5 * 32))
        torch.testing.assert_close(model.encode([TEXTS[1]])[0], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "more"), [("pisco", {"together": 2}), ("xrag", {"divergence": 2.0}), ("oscar", {"teacher": "bm25_reranker"})]
)
def test_trained_checkpoint_answers_and_is_reused_by_a_second_run(
    name: str, more: dict[str, Any], tiny_llama: str, tiny_encoder: str, tmp_path: Path
) -> None:
    small = {"epochs": 2, "batch_size": 3, "micro_batch": 2, "learning_rate": 1e-3, "save_every": 1}
    world = {"worlds": {"worlds": 1, "questions": 6, "mix": {"single": 1.0}}}
    options = {"base": tiny_llama, "data": ["worlds/multihop:train"], "data_options": world, "passages": 5, "documents": 2, **more}
    options |= {"validation": ["worlds/multihop:validation"], "validation_options": world, "pretrained": small, "tuned": small}
    entry = TRAININGS.get(name)
    model: dict[str, dict[str, Any]] = {
        "xrag": {"retriever": tiny_encoder, "max_length": 48},
        "oscar": {"rate": 64, "layers": 1, "ranks": True},
    }
    options["model"] = {"max_prompt": 1000, **model.get(name, {"rate": 64})}
    training = entry.factory(entry.validate(options))
    context = TrainingContext(tmp_path / "work", tmp_path / "checkpoints", Services(device="cpu"))
    stages = list(training.run(context))
    assert [stage.stage for stage in stages] == list(system_of(name, {}).stages)
    assert all(stage.figures["rows"] >= 4 and math.isfinite(stage.figures["validation_loss"]) for stage in stages)
    assert [stage.fresh for stage in training.run(context)] == [False] * len(stages)
    trained = SoftModel.load(stages[-1].folder, "cpu")
    assert len(trained.encode(["A river."])[0]) == trained.system.count(trained, "A river.")
    with raises("test-split"):
        list(entry.factory(entry.validate({**options, "data": ["worlds/multihop:test"]})).run(context))
