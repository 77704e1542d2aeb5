"""ARK's loss, batches and gradients against written-out formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from methods.ark.config import LossConfig, TrainConfig
from methods.ark.data import TrainRow, plan
from methods.ark.loss import Batch, batch_of, info_nce

torch = pytest.importorskip("torch")

TEXTS = {f"c{n}": f"text of chunk {n}" for n in range(12)}
ALL = LossConfig(in_batch=("all", "all", "all"))
OWN = LossConfig(in_batch=("none", "none", "none"))


def row(question: str, positive: str, *negatives: str, positives: tuple[str, ...] = (), stage: str = "stage1") -> TrainRow:
    return TrainRow(question, "d", stage, f"text of {question}", positive, negatives, positives or (positive,))


def unit(rng: np.random.Generator, count: int) -> Any:
    return torch.nn.functional.normalize(torch.tensor(rng.normal(size=(count, 6)), dtype=torch.float32), dim=1)


def vectors(batch: Batch, seed: int = 0) -> tuple[Any, Any]:
    """Return vectors that depend only on the text."""
    made = [unit(np.random.default_rng([seed, *text.encode()]), 1) for text in (*batch.queries, *batch.documents)]
    return torch.cat(made[: len(batch.queries)]), torch.cat(made[len(batch.queries) :])


def loss(rows: list[TrainRow], config: LossConfig, temperature: float = 0.1) -> float:
    batch = batch_of(rows, TEXTS, config)
    return float(info_nce(*vectors(batch), batch, temperature))


def by_hand(rows: list[TrainRow], candidates: list[list[str]], temperature: float = 0.1) -> float:
    """Compute the formula row by row over named candidates (the positive first)."""
    losses = []
    for item, names in zip(rows, candidates, strict=True):
        query = unit(np.random.default_rng([0, *item.query.encode()]), 1)[0].double()
        scores = [float(unit(np.random.default_rng([0, *TEXTS[name].encode()]), 1)[0].double() @ query) / temperature for name in names]
        losses.append(math.log(math.fsum(math.exp(score) for score in scores)) - scores[0])
    return sum(losses) / len(losses)


def test_loss_equals_the_formula_with_own_and_in_batch_negatives() -> None:
    rows = [row("a", "c0", "c1", "c2"), row("b", "c3", "c4")]
    assert loss(rows, OWN) == pytest.approx(by_hand(rows, [["c0", "c1", "c2"], ["c3", "c4"]]), abs=1e-5)
    every = [["c0", "c1", "c2", "c3", "c4"], ["c3", "c0", "c1", "c2", "c4"]]
    assert loss(rows, ALL) == pytest.approx(by_hand(rows, every), abs=1e-5)
    gold = [["c0", "c1", "c2", "c3"], ["c3", "c4", "c0"]]
    assert loss(rows, LossConfig()) == pytest.approx(by_hand(rows, gold), abs=1e-5)


def test_loss_is_zero_without_negatives() -> None:
    assert loss([row("a", "c0")], OWN) == pytest.approx(0, abs=1e-6)


def test_in_batch_negatives_follow_the_stage_of_each_row() -> None:
    config = LossConfig(in_batch=("all", "none", "none"))
    rows = [row("a", "c0"), row("b", "c3", "c4", stage="stage2")]
    assert loss(rows, config) == pytest.approx(by_hand(rows, [["c0", "c3", "c4"], ["c3", "c4"]]), abs=1e-5)


def test_other_positives_of_the_question_are_masked() -> None:
    both = ("c0", "c1")
    rows = [row("a", "c0", "c5", positives=both), row("a", "c1", "c6", positives=both), row("b", "c2")]
    config = ALL.model_copy(update={"mask_same_question": True})
    removed = [["c0", "c5", "c6", "c2"], ["c1", "c5", "c6", "c2"], ["c2", "c0", "c1", "c5", "c6"]]
    assert loss(rows, config) == pytest.approx(by_hand(rows, removed), abs=1e-5)
    assert loss(rows, config.model_copy(update={"mask_same_question": False})) > loss(rows, config)


def test_count_duplicates_counts_a_candidate_once_per_occurrence() -> None:
    rows = [row("a", "c0", "c9"), row("b", "c3", "c9"), row("e", "c0")]
    config = LossConfig(in_batch=("all",) * 3, count_duplicates=True, mask_same_question=False)
    brought = ["c0", "c9", "c3", "c9", "c0"]
    candidates = [sorted(brought, key=lambda name, item=item: name != item.positive_id) for item in rows]
    assert loss(rows, config) == pytest.approx(by_hand(rows, candidates), abs=1e-5)


def test_masking_removes_all_copies_of_a_positive_except_the_rows_own() -> None:
    both = ("c0", "c1")
    rows = [row("a", "c0", "c5", positives=both), row("a", "c1", "c5", positives=both), row("b", "c0")]
    config = LossConfig(in_batch=("all",) * 3, count_duplicates=True, mask_same_question=True)
    candidates = [["c0", "c5", "c5"], ["c1", "c5", "c5"], ["c0", "c5", "c1", "c5"]]
    assert loss(rows, config) == pytest.approx(by_hand(rows, candidates), abs=1e-5)


@pytest.mark.slow
@given(st.lists(st.sampled_from([f"c{n}" for n in range(1, 12)]), min_size=1, max_size=6, unique=True), st.randoms())
def test_negatives_never_lower_the_loss_and_their_order_does_not_matter(negatives: list[str], random: Any) -> None:
    fewer, all_ = loss([row("a", "c0", *negatives[1:])], OWN), loss([row("a", "c0", *negatives)], OWN)
    assert all_ >= fewer - 1e-6
    random.shuffle(negatives)
    assert loss([row("a", "c0", *negatives)], OWN) == pytest.approx(all_, abs=1e-5)
    rows = [row("a", "c0", *negatives), row("b", "c0")]
    assert loss(rows, ALL) >= loss(rows, OWN) - 1e-6


def test_the_gradient_moves_the_question_towards_its_positive() -> None:
    batch = batch_of([row("a", "c0", "c1", "c2")], TEXTS, OWN)
    queries, documents = vectors(batch)
    queries.requires_grad_()
    info_nce(queries, documents, batch, 0.1).backward()
    assert float(-queries.grad[0] @ (documents[0] - documents[1:].mean(dim=0))) > 0


def test_each_epoch_has_every_row_once_in_an_order_set_only_by_the_seed() -> None:
    rows = [row(f"q{n}", f"c{n}") for n in range(11)]
    config = TrainConfig(batch_size=3, accumulation=2)
    made = plan(rows, config, 2, 7, "stage1")
    assert made == plan(rows, config, 2, 7, "stage1")
    assert made != plan(rows, config, 2, 8, "stage1")
    used = [position for step in made.steps for batch in step for position in batch]
    assert sorted(used[:11]) == sorted(used[11:]) == list(range(11))
    assert all(len(step) <= 2 and all(len(batch) <= 3 for batch in step) for step in made.steps)
