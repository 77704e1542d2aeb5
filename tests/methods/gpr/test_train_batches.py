"""GPR's rows and batches: the texts of a row, and gradients of split batches that equal those of the whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from methods.gpr.loss import row_losses
from methods.gpr.train import Towers, cosines_of

torch = pytest.importorskip("torch")


@pytest.fixture(scope="session")
def toy(module_at: Callable[[Path], ModuleType]) -> ModuleType:
    return module_at(Path(__file__).with_name("gpr_toy.py"))


@pytest.fixture(scope="module")
def base(toy: ModuleType, tiny_models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> str:
    return toy.save_base(tiny_models, tmp_path_factory.mktemp("base"))


def test_each_epoch_uses_every_question_once_with_a_neighbor_and_a_negative(toy: ModuleType, base: str) -> None:
    material = toy.material(toy.options(base, validate_on={"share": 0}))
    triples = toy.toy_graph().triples
    for epoch in range(3):
        rows = material.rows(epoch)
        assert sorted(rows.question.tolist()) == list(range(2 * len(toy.OWNERS) * 3))
        for question, *positions in zip(rows.question, rows.anchor, rows.neighbor, rows.negative, strict=True):
            assert positions[0] == material.questions.triples[question]
            anchor, neighbor, negative = ({triples[position][0], triples[position][2]} for position in positions)
            assert anchor & neighbor
            assert positions[0] != positions[1]
            assert not anchor & negative
    assert material.dropped == 2


def test_rows_and_their_order_depend_on_epoch_and_seed(toy: ModuleType, base: str) -> None:
    first, same, other = (toy.material(toy.options(base, seed=seed)) for seed in (3, 3, 4))

    def drawn(material: Any, epoch: int) -> list[list[int]]:
        """Return neighbors and negatives in the order of the questions, which does not depend on the order of the rows."""
        rows = material.rows(epoch)
        order = np.argsort(rows.question)
        return [rows.neighbor[order].tolist(), rows.negative[order].tolist()]

    assert drawn(first, 1) == drawn(same, 1)
    for before, after in ((drawn(first, 0), drawn(first, 1)), (drawn(first, 1), drawn(other, 1))):
        assert all(one != two for one, two in zip(before, after, strict=True))
    assert not np.array_equal(first.rows(0).question, first.rows(4).question)


def test_both_questions_of_a_held_out_triple_are_excluded_from_training(toy: ModuleType, base: str) -> None:
    material = toy.material(toy.options(base, validate_on={"share": 0.25}))
    watched = material.held_out()
    assert len(set(watched.anchor)) == 5
    assert len(watched) == 10
    for epoch in range(3):
        assert not set(material.rows(epoch).anchor) & set(watched.anchor)
    assert np.array_equal(watched.negative, material.held_out().negative)


def test_texts_of_rows_are_deduplicated(toy: ModuleType, base: str) -> None:
    material = toy.material(toy.options(base))
    rows = material.rows(0)
    texts = material.texts(rows)
    assert len(set(texts.questions)) == len(texts.questions) == len(set(rows.question))
    assert len(set(texts.triples)) == len(texts.triples) < 3 * len(rows)
    graph = toy.toy_graph()
    for position, row in enumerate(texts.negative.tolist()):
        head, relation, tail = graph.triples[int(rows.negative[position])]
        assert texts.triples[row] == f"{head} {relation.rpartition('.')[2]} {tail}"
    assert [texts.questions[n] for n in texts.question] == [material.questions.texts[n] for n in rows.question]


def test_towers_share_no_parameters(toy: ModuleType, base: str, tmp_path: Path) -> None:
    towers = Towers.load(toy.options(base), "cpu")
    texts = ["the old bridge", "moss"]
    before = towers.encoded("triple", texts)
    with torch.no_grad():
        for parameter in towers.modules["question"].parameters():
            parameter.add_(0.3)
    assert np.array_equal(towers.encoded("triple", texts), before)
    assert not np.allclose(towers.encoded("question", texts), before, atol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("micro", [1, 3, 100])
def test_split_batch_has_the_loss_and_gradient_of_the_whole(toy: ModuleType, base: str, tmp_path: Path, micro: int) -> None:
    item = toy.trainer(toy.options(base, train={"micro_batch": micro}), tmp_path)
    toy.without_dropout(item.towers)
    figures = item.loop.step(0)
    whole = toy.without_dropout(Towers.load(item.config, "cpu"))
    rows = item.material.rows(0).take(slice(0, 8))
    result = cosines_of(whole, item.material.texts(rows), (0,))
    loss = row_losses(result, item.config.loss).mean()
    loss.backward()
    assert figures["loss"] == pytest.approx(float(loss.detach()), abs=1e-6)
    assert figures["ordered"] == pytest.approx(float(result.ordered().float().mean()))
    for name, model in whole.modules.items():
        mine = dict(item.towers.modules[name].named_parameters())
        for key, parameter in model.named_parameters():
            if parameter.grad is not None:
                assert torch.allclose(mine[key].grad, parameter.grad, atol=1e-6), key


def test_each_part_encodes_a_distinct_text_once(toy: ModuleType, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    item = toy.trainer(toy.options(base, train={"batch_size": 40, "micro_batch": 40}), tmp_path)
    seen: list[tuple[str, str]] = []
    vectors = item.towers.vectors

    def counted(side: Any, texts: Sequence[str], seed: Any) -> Any:
        seen.extend((side, text) for text in texts)
        return vectors(side, texts, seed)

    monkeypatch.setattr(item.towers, "vectors", counted)
    item.loop.step(0)
    assert len(seen) == len(set(seen)) < 4 * 40


@pytest.mark.parametrize("left_out", ["neighbors", "negatives"])
def test_ablated_terms_have_no_gradient(toy: ModuleType, base: str, tmp_path: Path, left_out: str) -> None:
    config = toy.options(base, loss={left_out: False})
    towers = toy.without_dropout(Towers.load(config, "cpu"))
    material = toy.material(config)
    texts = material.texts(material.rows(0).take(slice(0, 1)))
    results = cosines_of(towers, texts, (0,))
    for item in results:
        item.retain_grad()
    row_losses(results, config.loss).mean().backward()
    part = results.neighbor if left_out == "neighbors" else results.negative
    assert part.grad is None
    assert float(results.anchor.grad) == -1
