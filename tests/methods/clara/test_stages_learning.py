"""CLaRa learns toy data in seconds: to paraphrase a document, to answer its pairs, to select evidence and to answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from methods.clara.model import Clara  # noqa: E402
from methods.clara.prompts import PARAPHRASES, paraphrase, qa_pairs  # noqa: E402
from methods.clara.rows import InstructionRow, JointRow, ScpRow  # noqa: E402
from methods.clara.stages import answered, begin, trained  # noqa: E402

SMALL = {"lora": {"r": 16, "alpha": 32}, "max_length": 4, "rate": 2}


def steps(count: int, batch: int, rate: float = 5e-3) -> dict[str, Any]:
    """Return options of a training in one part."""
    return {"steps": count, "batch_size": batch, "micro_batch": batch, "learning_rate": rate, "epochs": count}


def curve(run: Any) -> list[dict[str, float]]:
    return [json.loads(line) for line in run.loop.curve.read_text().splitlines()]


def replies(clara: Clara, rows: Sequence[ScpRow], prompts: Sequence[Any]) -> list[str]:
    clara.module.eval()
    with torch.no_grad():
        memory = clara.encode([row.document for row in rows]).memory
    return [reply.text for reply in clara.generate(list(prompts), list(memory), 8, len(rows))]


@pytest.mark.slow
def test_one_paraphrase_is_memorized_for_every_prompt_wording(toy: ModuleType, config: Any, tmp_path: Path) -> None:
    row = ScpRow("paraphrase", toy.document(0), (), ("the value0 of key0 is value3",), "p")
    chosen = config(scp={"train": steps(40, PARAPHRASES)})
    clara = begin(chosen, "scp", None, "cpu")
    wordings = [paraphrase(wording) for wording in range(PARAPHRASES)]
    assert row.paraphrase not in replies(clara, [row] * PARAPHRASES, wordings)
    run = toy.trainer(chosen, "scp", clara, [row] * PARAPHRASES, tmp_path)
    run.loop.run()
    assert curve(run)[-1]["cross_entropy"] < 0.1 * curve(run)[0]["cross_entropy"]
    assert replies(clara, [row] * PARAPHRASES, wordings) == [row.paraphrase] * PARAPHRASES


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_pretraining_learns_to_answer_from_memory(toy: ModuleType, config: Any, tmp_path: Path) -> None:
    """Any key may have any value, so only the memory contains the answer."""
    pairs = [(key, value) for key in toy.KEYS[:6] for value in toy.VALUES[:6]]
    rows = [ScpRow("qa", f"{key} {value}", (key,), (value,), f"{key}{value}") for key, value in pairs]
    chosen = config(scp={"train": steps(100, 36)}, model=SMALL)
    clara = begin(chosen, "scp", None, "cpu")
    run = toy.trainer(chosen, "scp", clara, rows, tmp_path)
    run.loop.run()
    first, *_, last = curve(run)
    assert last["cross_entropy"] < 0.3 * first["cross_entropy"]
    assert last["mse"] < first["mse"]
    reported = [
        row.questions[0] in reply and row.answers[0] in reply
        for row, reply in zip(rows, replies(clara, rows, [qa_pairs()] * len(rows)), strict=True)
    ]
    assert sum(reported) / len(reported) >= 0.95


@pytest.mark.slow
def test_supervised_training_selects_the_positive_of_nearly_every_question(toy: ModuleType, config: Any, tmp_path: Path) -> None:
    chosen = config(supervised={"train": steps(80, 12)}, model={"tau": 0.1})
    clara = begin(chosen, "supervised", None, "cpu")
    rows = toy.joint_rows(12)
    before = answered(clara, rows, chosen.validate_on, selects=True)["recall@1"]
    toy.trainer(chosen, "supervised", clara, rows, tmp_path).loop.run()
    clara.module.eval()
    after = answered(clara, rows, chosen.validate_on, selects=True)["recall@1"]
    assert after >= 0.95 > before


def questions_of_two(rows: Sequence[JointRow]) -> list[InstructionRow]:
    """Pair each question with its evidence and one other document, in both orders."""
    made = []
    for row in rows:
        position = row.positives[0]
        texts = (row.documents[position], row.documents[(position + 1) % len(row.documents)])
        made += [InstructionRow(row.question, item, row.answer, row.answer, row.id) for item in (texts, texts[::-1])]
    return made


def without_evidence(row: JointRow) -> JointRow:
    """Return the question as if the retriever had missed its evidence."""
    kept = tuple(text for position, text in enumerate(row.documents) if position not in row.positives)
    return replace(row, documents=kept, positives=())


@pytest.mark.soak
def test_joint_training_improves_recall_and_answers(toy: ModuleType, config: Any, tmp_path: Path) -> None:
    rows = toy.joint_rows(12, documents=10)
    instruction, supervised = {"train": steps(60, 24)}, {"train": steps(8, 12)}
    joint = {"train": steps(40, 12, 2e-3), "reasoner": "kept"}
    chosen = config(instruction=instruction, supervised=supervised, joint=joint, model={"tau": 0.1, "lora": {"r": 16, "alpha": 32}})
    clara = begin(chosen, "instruction", None, "cpu")
    toy.trainer(chosen, "instruction", clara, questions_of_two(rows), tmp_path / "instruction").loop.run()
    clara.adapters.copy("compressor", "reasoner")
    clara.module.eval()
    by_compressor = answered(clara, rows, chosen.validate_on, selects=True)
    clara.set_trainable(trained(chosen, "supervised"))
    toy.trainer(chosen, "supervised", clara, rows, tmp_path / "supervised").loop.run()
    clara.module.eval()
    oracle = answered(clara, rows, chosen.validate_on, selects=True)
    missed = [without_evidence(row) if number % 2 else row for number, row in enumerate(rows)]
    normal = answered(clara, missed, chosen.validate_on, selects=True)
    assert oracle["cover_em"] > normal["cover_em"] > 0
    # Of ten candidates five do not find everything yet; what was trained finds more at every k.
    assert by_compressor["recall@1"] < by_compressor["recall@5"] < 1
    for k in (1, 3, 5):
        assert oracle[f"recall@{k}"] > by_compressor[f"recall@{k}"]
    # Joint training, from answers alone, goes on from there and is less surprised by them; recall may well fall by it.
    clara.set_trainable(trained(chosen, "joint"))
    run = toy.trainer(chosen, "joint", clara, rows, tmp_path / "joint")
    run.loop.run()
    clara.module.eval()
    after = answered(clara, rows, chosen.validate_on, selects=True)
    assert after["answer_loss"] < 0.7 * oracle["answer_loss"]
    assert curve(run)[-1]["cross_entropy"] < curve(run)[0]["cross_entropy"]
