"""The base of `clara/real`: a real vocabulary, trained on the rows that the experiment trains on."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.registry import load
from methods.clara.rows import ScpRow
from ragmeter import experiment
from tools.real_base import ROWS, tokenizer, train

pytest.importorskip("torch")
ROW = ScpRow("qa", "The old bridge of Mostar was rebuilt in 2004.", ("When was it rebuilt?",), ("2004",))


@pytest.mark.slow
def test_trained_base_opens_as_a_causal_model_with_word_pieces(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    loss = train(tmp_path, [ROW], steps=2, seed=0)
    tokens = AutoTokenizer.from_pretrained(tmp_path)
    assert tokens("Mostar was rebuilt")["input_ids"] == tokenizer()("Mostar was rebuilt")["input_ids"]
    assert tokens.convert_ids_to_tokens(tokens("rebuilding")["input_ids"]) == ["rebuilding"]
    assert AutoModelForCausalLM.from_pretrained(tmp_path).config.vocab_size == len(tokens) == 30522
    assert 0 < loss < 12


def test_experiment_trains_on_base_rows_and_validates_on_later_rows() -> None:
    loaded = experiment.load("clara/real")
    for plan in loaded.trainings:
        config = plan.config.model_dump()
        rows = {"after": ROWS} if plan.name == "control" else {"first": ROWS}
        assert config["data"]["options"] == {"clara_stages": rows}
        assert config["validation"]["options"] == {"clara_stages": {"after": ROWS}}
    assert loaded.benchmarks[0].config.model_dump()["after"] == ROWS


def test_option_first_counts_rows_from_option_after(tmp_path: Path) -> None:
    row = '{"data_type": "qa", "question": ["q"], "answers": ["%d"], "docs": ["d %d"]}\n'
    (tmp_path / "rows.jsonl").write_text("".join(row % (number, number) for number in range(5)), "utf-8")
    part = load("clara_stages/pretraining:train", {"path": str(tmp_path / "rows.jsonl"), "after": 2, "first": 2})
    assert [question.answers for question in part.questions] == [("2",), ("3",)]
