"""CLaRa's losses against hand-computed cases and plain formulas, and which parts get gradients."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import pytest

from tests.support.errors import raises

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from methods.clara.config import InstructionStage, JointStage, ScpStage  # noqa: E402
from methods.clara.data import TrainingExample, instruction_example, scp_example  # noqa: E402
from methods.clara.generator import select  # noqa: E402
from methods.clara.model import Clara, Encoded, alignment  # noqa: E402
from methods.clara.objective import Compression, Joint, Supervised, candidates_of, recalls, supervised_terms  # noqa: E402
from methods.clara.prompts import PARAPHRASES, answer  # noqa: E402
from methods.training.pieces import naming_terms  # noqa: E402


@pytest.fixture
def clara(toy: ModuleType, base: str) -> Clara:
    """Make a model with randomized adapters, as after some training."""
    made = Clara.open(toy.model_config(base), device="cpu", seed=1)
    torch.manual_seed(5)
    with torch.no_grad():
        for name in made.adapters.names:
            for item in made.adapters.of(name).values():
                item.normal_(std=0.1)
    return made


def reached(clara: Clara) -> set[str]:
    """Return the parts that have a gradient."""
    results = set()
    for name, item in clara.module.named_parameters():
        if item.grad is not None and bool(item.grad.any()):
            part = next((part for part in clara.adapters.names if f".{part}." in name), None)
            results.add("memory" if name == "rows.memory" else part or name)
    return results


def gradients(clara: Clara) -> dict[str, Any]:
    return {name: item.grad.clone() for name, item in clara.module.named_parameters() if item.grad is not None}


@given(st.data())
def test_supervised_loss_is_the_negative_log_of_the_probability_of_positives(data: Any) -> None:
    size = data.draw(st.integers(1, 6))
    scores = data.draw(st.lists(st.floats(-1, 1), min_size=size, max_size=size))
    positive = data.draw(st.lists(st.booleans(), min_size=size, max_size=size).filter(any))
    tau = data.draw(st.sampled_from([0.02, 0.1, 1.0]))
    result = supervised_terms(torch.tensor([scores], dtype=torch.float64), torch.tensor([positive]), tau)
    weights = [math.exp((score - max(scores)) / tau) for score in scores]
    share = sum(weight for weight, is_positive in zip(weights, positive, strict=True) if is_positive) / sum(weights)
    if share > 1e-30:
        assert float(result) == pytest.approx(-math.log(share), rel=1e-4, abs=1e-5)


def test_question_without_positive_adds_no_supervised_loss_or_gradient() -> None:
    scores = torch.tensor([[0.3, 0.1], [0.2, 0.5]], requires_grad=True)
    positive = torch.tensor([[True, False], [False, False]])
    terms = supervised_terms(scores, positive, 0.1)
    assert terms.isnan().tolist() == [False, True]
    terms.nansum().backward()
    assert scores.grad is not None
    assert bool(scores.grad.isfinite().all())
    assert bool(scores.grad[0].any())
    assert not bool(scores.grad[1].any())


def test_each_memory_token_predicts_its_part_of_the_document() -> None:
    # Five tokens over two memory tokens: places 0, 1, 2 are the first one's, 3 and 4 the second one's.
    logits = torch.randn(1, 2, 7, generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([[4, 1, 6, 2, 5]])
    every = torch.ones(1, 5, dtype=torch.bool)
    logs = logits.log_softmax(-1)[0]
    wanted = -(logs[0, 4] + logs[0, 1] + logs[0, 6] + logs[1, 2] + logs[1, 5]) / 5
    assert float(naming_terms(logits, ids, every, every)) == pytest.approx(float(wanted), rel=1e-6)
    padded, known = torch.tensor([[4, 1, 6, 2, 5, 0, 0]]), torch.tensor([[True] * 5 + [False] * 2])
    assert float(naming_terms(logits, padded, known, known)) == pytest.approx(float(wanted), rel=1e-6)
    without_first = known.clone()
    without_first[0, 0] = False
    wanted = -(logs[0, 1] + logs[0, 6] + logs[1, 2] + logs[1, 5]) / 4
    assert float(naming_terms(logits, padded, known, without_first)) == pytest.approx(float(wanted), rel=1e-6)


def test_alignment_loss_equals_a_hand_computation() -> None:
    # Means (1, 2) and (2, 4): squared distance 1 + 4, over a width of 2.
    encoded = Encoded(torch.tensor([[[1.0, 3.0], [3.0, 5.0]]]), torch.tensor([[1.0, 2.0]]), torch.tensor([[2.0, 4.0]]))
    assert float(alignment(encoded)) == pytest.approx(2.5)
    assert float(alignment(encoded, "sum")) == pytest.approx(5.0)


def test_recall_is_the_share_of_selected_positives() -> None:
    positive = torch.tensor([[True, False, True, False], [False] * 4])
    result = recalls(torch.tensor([[2, 1], [0, 1]]), positive)
    assert float(result[0]) == 0.5
    assert bool(result[1].isnan())


def test_compression_loss_adds_lambda_times_the_alignment_to_the_cross_entropy(toy: ModuleType, clara: Clara) -> None:
    rows = [scp_example(row, number) for number, row in enumerate(toy.scp_rows(6))]
    clara.set_trainable({"compressor", "generator", "memory"})
    encoded = clara.encode([row.documents[0] for row in rows])
    exchanges = [row.exchanges[0] for row in rows]
    query, targets = [exchange.prompt for exchange in exchanges], [exchange.target for exchange in exchanges]
    entropy = float(clara.cross_entropy(query, list(encoded.memory), targets).detach())
    mse = float(alignment(encoded).detach())
    losses = {}
    for weight in (0.0, 0.1):
        objective = Compression(clara, ScpStage(mse=weight))
        loss, sums = objective.part(rows, objective.whole(rows), 0.0, 0)
        losses[weight] = float(loss.detach())
        assert sums["loss"] == losses[weight]
        assert sums["mse"] == pytest.approx(mse, rel=1e-5)
    assert losses[0.0] == pytest.approx(entropy, rel=1e-5)
    assert losses[0.1] == pytest.approx(entropy + 0.1 * mse, rel=1e-5)


@pytest.mark.parametrize("naming", [0.0, 0.5])
def test_gradient_of_a_split_batch_equals_that_of_the_whole(toy: ModuleType, clara: Clara, naming: float) -> None:
    rows = [scp_example(row, number) for number, row in enumerate(toy.scp_rows(6))]
    clara.set_trainable({"compressor", "generator", "memory"})
    objective = Compression(clara, ScpStage(naming=naming))
    results = []
    for parts in ([rows], [rows[:1], rows[1:4], rows[4:]]):
        clara.module.zero_grad(set_to_none=True)
        total = 0.0
        for part in parts:
            loss, _ = objective.part(part, objective.whole(rows), 0.0, 0)
            loss.backward()
            total += float(loss.detach())
        results.append((total, gradients(clara)))
    (whole, item), (summed, other) = results
    assert summed == pytest.approx(whole, rel=1e-5)
    for name, grad in item.items():
        torch.testing.assert_close(other[name], grad, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        ({"compressor", "generator", "memory"}, {"compressor", "generator", "memory"}),
        ({"compressor", "generator"}, {"compressor", "generator"}),
        ({"generator"}, {"generator"}),
    ],
)
def test_compression_loss_has_gradients_for_exactly_the_trained_parts(
    toy: ModuleType, clara: Clara, parts: set[Any], wanted: set[str]
) -> None:
    rows = [instruction_example(row, 2) for row in toy.instruction_rows(4)]
    clara.set_trainable(parts)
    objective = Compression(clara, InstructionStage())
    loss, _ = objective.part(rows, objective.whole(rows), 0.0, 0)
    loss.backward()
    assert reached(clara) == wanted


def test_naming_loss_has_no_gradient_for_the_generator(toy: ModuleType, clara: Clara) -> None:
    rows = [scp_example(row, 0) for row in toy.scp_rows(2)]
    clara.set_trainable({"compressor", "generator", "memory"})
    objective = Compression(clara, ScpStage(mse=0.0, naming=1.0, naming_only=5))
    loss, sums = objective.part(rows, objective.whole(rows), 0.0, 4)
    loss.backward()
    assert reached(clara) == {"compressor", "memory"}
    assert "cross_entropy" not in sums
    _, sums = objective.part(rows, objective.whole(rows), 0.0, 5)
    assert sums["loss"] == pytest.approx(sums["cross_entropy"] + sums["naming"], rel=1e-5)


def test_weight_of_the_naming_loss_decreases_to_zero(toy: ModuleType, clara: Clara) -> None:
    rows = [scp_example(row, 0) for row in toy.scp_rows(2)]
    clara.set_trainable({"compressor", "generator", "memory"})
    objective = Compression(clara, ScpStage(mse=0.0, naming=0.8))
    with torch.no_grad():
        results = [objective.part(rows, objective.whole(rows), done, 0)[1] for done in (0.0, 0.175, 0.35, 1.0)]
    weights = [(item["loss"] - item["cross_entropy"]) / results[0]["naming"] for item in results]
    assert weights == pytest.approx([0.8, 0.4, 0.0, 0.0], abs=1e-5)
    assert ["naming" in item for item in results] == [True, True, False, False]


def test_several_exchanges_over_one_encoding_equal_separate_encodings(toy: ModuleType, clara: Clara) -> None:
    item, other = (scp_example(row, 0) for row in toy.scp_rows(3)[::2])
    both = [TrainingExample(item.documents, (*item.exchanges, *other.exchanges)), TrainingExample(other.documents, item.exchanges)]
    each = [TrainingExample(example.documents, (exchange,)) for example in both for exchange in example.exchanges]
    objective = Compression(clara, ScpStage(mse=0.0))
    with torch.no_grad():
        together, _ = objective.part(both, objective.whole(both), 0.0, 0)
        apart, _ = objective.part(each, objective.whole(each), 0.0, 0)
    assert objective.whole(both).tokens == objective.whole(each).tokens
    assert (objective.whole(both).documents, objective.whole(each).documents) == (2, 3)
    assert float(together) == pytest.approx(float(apart), rel=1e-5)


def test_paraphrase_prompts_use_all_wordings(toy: ModuleType) -> None:
    row = next(row for row in toy.scp_rows(2) if row.kind == "paraphrase")
    results = {scp_example(row, number).exchanges[0].prompt.wording for number in range(3 * PARAPHRASES)}
    assert results == set(range(PARAPHRASES))


def documents_of(clara: Clara) -> Any:
    def of(texts: Any) -> Any:
        with torch.no_grad():
            return clara.encode(list(texts)).memory

    return of


def test_joint_training_updates_reasoner_and_generator_but_not_the_compressor(toy: ModuleType, clara: Clara) -> None:
    rows = toy.joint_rows(4)
    clara.set_trainable({"reasoner", "generator"})
    objective = Joint(clara, JointStage(), documents_of(clara))
    loss, _ = objective.part(rows, objective.whole(rows), 0.1, 0)
    loss.backward()
    assert reached(clara) == {"reasoner", "generator"}


def test_frozen_selection_trains_only_the_generator(toy: ModuleType, clara: Clara) -> None:
    clara.set_trainable({"generator"})
    objective = Joint(clara, JointStage(selection="frozen"), documents_of(clara))
    loss, _ = objective.part(toy.joint_rows(4), objective.whole(toy.joint_rows(4)), 0.0, 0)
    loss.backward()
    assert reached(clara) == {"generator"}


def test_joint_loss_is_that_of_the_top_documents_in_rank_order(toy: ModuleType, clara: Clara) -> None:
    rows, of = toy.joint_rows(4), documents_of(clara)
    objective = Joint(clara, JointStage(), of)
    loss, sums = objective.part(rows, objective.whole(rows), 0.0, 0)
    kept, hits = [], 0.0
    for row in rows:
        query, memory = clara.encode([row.question], "reasoner").memory, of(row.documents)
        cosines = torch.nn.functional.cosine_similarity(query.flatten(1), memory.flatten(1))
        best = cosines.argsort(descending=True)[:2].tolist()
        kept.append(memory[best])
        hits += row.positives[0] in best
    prompts = [answer(row.question, 2) for row in rows]
    wanted = clara.cross_entropy(prompts, kept, [row.answer for row in rows])
    assert float(loss.detach()) == pytest.approx(float(wanted.detach()), rel=1e-4)
    assert sums["recall"] == pytest.approx(hits / 4)


def test_padding_candidates_are_never_selected(toy: ModuleType, clara: Clara) -> None:
    long, short = toy.joint_rows(1, 4)[0], toy.joint_rows(1, 2)[0]
    result = candidates_of(clara, [long, short], documents_of(clara))
    assert result.mask.tolist() == [[True] * 4, [True, True, False, False]]
    with raises("too-few-candidates"):
        select(result.scores, 3, 0.02, result.mask)
    assert set(select(result.scores, 2, 0.02, result.mask).ids[1].tolist()) == {0, 1}


@pytest.mark.slow
def test_question_with_few_candidates_does_not_limit_others_in_any_split(toy: ModuleType, clara: Clara) -> None:
    clara.config = clara.config.model_copy(update={"k": 3})
    clara.set_trainable({"reasoner", "generator"})
    many, few = toy.joint_rows(4, 5), toy.joint_rows(4, 2)
    rows = [many[0], few[1], many[2], few[3]]
    objective = Joint(clara, JointStage(), documents_of(clara))
    whole = objective.whole(rows)

    def gradient(parts: list[list[Any]]) -> tuple[float, dict[str, float], dict[str, Any]]:
        clara.module.zero_grad()
        total, figures = 0.0, dict[str, float]()
        for part in parts:
            loss, sums = objective.part(part, whole, 0.0, 0)
            loss.backward()
            total += float(loss.detach())
            figures = {name: figures.get(name, 0.0) + value for name, value in sums.items()}
        return total, figures, {n: p.grad.clone() for n, p in clara.module.named_parameters() if p.grad is not None}

    at_once, alone = gradient([rows]), gradient([[row] for row in rows])
    assert at_once[0] == pytest.approx(alone[0], rel=1e-5)
    assert at_once[1] == pytest.approx(alone[1], rel=1e-5)
    assert at_once[2].keys() == alone[2].keys()
    for name, item in at_once[2].items():
        torch.testing.assert_close(item, alone[2][name], rtol=1e-3, atol=1e-6)
    queries = [answer(row.question, min(3, len(row.documents))) for row in rows]
    best = []
    for row in rows:
        cosines = clara.similarity(clara.encode([row.question], "reasoner").memory, documents_of(clara)(row.documents)[None])[0]
        best.append(documents_of(clara)(row.documents)[cosines.argsort(descending=True)[:3]])
    reported = clara.cross_entropy(queries, best, [row.answer for row in rows])
    assert at_once[1]["cross_entropy"] == pytest.approx(float(reported.detach()), rel=1e-4)


def test_supervised_loss_updates_only_the_reasoner(toy: ModuleType, clara: Clara) -> None:
    clara.set_trainable({"reasoner"})
    objective = Supervised(clara, documents_of(clara))
    rows = toy.joint_rows(4)
    loss, sums = objective.part(rows, objective.whole(rows), 0.0, 0)
    loss.backward()
    assert reached(clara) == {"reasoner"}
    assert 0 <= sums["recall"] <= 1


@pytest.mark.slow
def test_selector_learns_to_select_the_document_of_a_linear_generator() -> None:
    """With a quadratic loss the straight-through gradient finds the document that minimizes it."""
    torch.manual_seed(0)
    questions, documents, width = 32, 8, 16
    memory = torch.nn.functional.normalize(torch.randn(questions, documents, width), dim=-1)
    right = torch.randint(documents, (questions,))
    query = torch.randn(questions, width, requires_grad=True)
    optimizer = torch.optim.Adam([query], lr=0.05)
    wanted = memory[torch.arange(questions), right]

    def chosen() -> Any:
        scores = torch.einsum("bn,bdn->bd", torch.nn.functional.normalize(query, dim=-1), memory)
        return select(scores, 1, 0.1)

    before = float((chosen().ids[:, 0] == right).float().mean())
    for _ in range(400):
        result = chosen()
        loss = (result.apply(memory.unsqueeze(2))[:, 0, 0] - wanted).pow(2).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    after = float((chosen().ids[:, 0] == right).float().mean())
    assert before < 0.35
    assert after > 0.95
