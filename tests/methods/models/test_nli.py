"""NLI classifiers: labels by name, probabilities as transformers gives them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from methods.models.nli import LABELS, NliConfig, NliModel, label_columns
from tests.support.errors import raises

NAMES = {
    "bart": ["contradiction", "neutral", "entailment"],
    "deberta": ["entailment", "neutral", "contradiction"],
    "shouting": ["ENTAILMENT", "Contradiction", "neutral"],
}


def make(folder: Path, tiny: ModuleType, kind: str, names: list[str]) -> str:
    import torch
    import transformers

    torch.manual_seed(0)
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: n for n, name in enumerate(names)}}
    if kind == "Bart":
        settings = transformers.BartConfig(
            vocab_size=200,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=48,
            decoder_ffn_dim=48,
            max_position_embeddings=80,
            bos_token_id=0,
            pad_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=2,
            **labels,
        )
        style = "xlmr"
    else:
        settings, style = tiny.config(kind, 200, **labels), "bert"
    model = getattr(transformers, f"{kind}ForSequenceClassification")(settings)
    return str(tiny.save(folder, style, tiny.scaled(model, 4.0)))


@pytest.mark.parametrize("kind", ["Bart", pytest.param("DebertaV2", marks=pytest.mark.slow)])
@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_probabilities_are_assigned_by_label_name(kind: str, names: list[str], tiny_models: ModuleType, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = make(tmp_path / "model", tiny_models, kind, names)
    premises = [*tiny_models.TEXTS, "river " * 100]
    hypotheses = [*reversed(tiny_models.TEXTS), "the old bridge"]
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    expected = []
    for premise, hypothesis in zip(premises, hypotheses, strict=True):
        pair = tokenizer(premise, hypothesis, truncation="only_first", max_length=60, return_tensors="pt")
        with torch.no_grad():
            shares = model(**pair).logits[0].softmax(dim=0).tolist()
        expected.append({name.lower(): share for name, share in zip(names, shares, strict=True)})
    for budget in (64, 4096):
        result = NliModel(NliConfig(model=folder, max_length=60, token_budget=budget), "cpu").infer(premises, hypotheses)
        for label in LABELS:
            assert getattr(result, label) == pytest.approx([row[label] for row in expected], abs=1e-4)
    assert np.ptp(result.entailment) > 1e-3


def test_no_pairs_give_no_probabilities(tiny_models: ModuleType, tmp_path: Path) -> None:
    model = NliModel(NliConfig(model=make(tmp_path / "m", tiny_models, "Bert", NAMES["bart"])), "cpu")
    assert model.infer([], []).entailment.shape == (0,)
    with pytest.raises(ValueError, match="1 premises and 0 hypotheses"):
        model.infer(["a"], [])


def test_labels_other_than_nli_labels_are_refused(tiny_models: ModuleType, tmp_path: Path) -> None:
    folder = make(tmp_path / "m", tiny_models, "Bert", ["LABEL_0", "LABEL_1", "LABEL_2"])
    with raises("label-names-mismatch"):
        NliModel(NliConfig(model=folder), "cpu")
    with raises("label-names-mismatch"):
        label_columns({0: "entailment", 1: "not_entailment"}, "two-way")
    assert label_columns(dict(enumerate(NAMES["bart"])), "bart") == (2, 1, 0)


def test_hypothesis_too_long_for_its_premise_is_named(tiny_models: ModuleType, tmp_path: Path) -> None:
    folder = make(tmp_path / "m", tiny_models, "Bert", NAMES["bart"])
    with raises("hypothesis-too-long"):
        NliModel(NliConfig(model=folder, max_length=16), "cpu").infer(["moss"], ["river " * 40])
