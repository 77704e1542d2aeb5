"""BERTScore: values of the package, offline, with additional checks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from benchmarks.schema import Question
from judges.metric import Batch, parse
from judges.metrics import generation as module
from judges.metrics.generation import bertscore_of_pairs
from judges.score import score
from methods.api import Prediction
from tests.support.errors import raises

pytestmark = pytest.mark.slow
NAME = "bert-base-uncased"
"""Name of a model with a bert-score baseline, used for the tiny model."""
TEXTS = [
    "the old stone bridge",
    "moss grows on the north side of the stone",
    "a painter lived in a cold cabin",
    "old",
    "where was the painter born ?",
    "the painter was born by the river , in the year of the long bridge",
]


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    """Return a folder of models with one randomly initialized BERT and a tokenizer trained on the spot."""
    pytest.importorskip("bert_score")
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    raw = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    raw.normalizer, raw.pre_tokenizer = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    raw.train_from_iterator(TEXTS, trainers.WordPieceTrainer(vocab_size=200, special_tokens=specials))
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(token, raw.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]")
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=48,
        initializer_range=0.3,
    )
    # "t5" in a folder's name makes bert-score load a T5.
    root = tmp_path_factory.mktemp("about5_models")
    tokenizer.save_pretrained(root / "at5" / NAME)
    BertModel(config).eval().save_pretrained(root / "at5" / NAME)
    return root / "at5"


@pytest.fixture(autouse=True)
def model_folder(models, monkeypatch):
    monkeypatch.setenv("RAGMETER_MODELS", str(models))


def official(predictions, references, layer, models, **more):
    """Return the package's score, with a relative model path so that the path does not contain "t5"."""
    from bert_score import BERTScorer

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(models)
        scorer = BERTScorer(model_type=NAME, num_layers=layer, device="cpu", nthreads=0, **more)
    scorer._tokenizer.model_max_length = 48
    return [part.numpy() for part in scorer.score(predictions, references)]


PAIRS = [(text, other) for text in TEXTS for other in TEXTS]


@pytest.mark.parametrize("layer", [1, 3])
def test_values_equal_the_package(layer, models):
    predictions, references = map(list, zip(*PAIRS, strict=True))
    ours = bertscore_of_pairs(predictions, references, NAME, layer=layer, device="cpu")
    np.testing.assert_allclose(ours, official(predictions, references, layer, models)[2], atol=2e-6)
    assert ours[0] == pytest.approx(1, abs=1e-6)
    assert ours.max() <= 1


def test_rescaled_values_equal_the_package_and_have_a_separate_id(models):
    predictions, references = map(list, zip(*PAIRS[:12], strict=True))
    ours = bertscore_of_pairs(predictions, references, NAME, layer=2, rescale=True, device="cpu")
    expected = official(predictions, references, 2, models, rescale_with_baseline=True, lang="en")[2]
    np.testing.assert_allclose(ours, expected, atol=2e-5)
    ids = [str(parse(text)) for text in ("bertscore", "bertscore(rescale=true)", "bertscore(layer=9)")]
    assert ids[0] == "bertscore(model=bert-base-uncased,layer=12,rescale=false)#v1"
    assert len(set(ids)) == 3


def test_rescaling_without_a_baseline_is_refused(models):
    with raises("missing-bert-score-baseline"):
        bertscore_of_pairs([""], ["old"], NAME, layer=99, rescale=True)
    with raises("missing-bert-score-baseline"):
        bertscore_of_pairs([""], ["old"], "minilm", layer=1, rescale=True)


@pytest.mark.parametrize("empty", ["", "  \n"])
def test_empty_text_scores_zero(empty):
    result = bertscore_of_pairs([empty, "old", empty, "old"], ["old", empty, empty, "old"], NAME, layer=2)
    assert result.tolist() == pytest.approx([0, 0, 0, 1], abs=1e-6)
    assert bertscore_of_pairs([], [], NAME, layer=2).shape == (0,)


def test_texts_longer_than_the_context_are_truncated():
    long = "the old stone bridge " * 60
    assert bertscore_of_pairs([long], [long], NAME, layer=2) == pytest.approx(1, abs=1e-6)


def test_values_do_not_depend_on_the_batch():
    alone = [bertscore_of_pairs([item], [other], NAME, layer=2)[0] for item, other in PAIRS]
    together = bertscore_of_pairs(*map(list, zip(*PAIRS, strict=True)), NAME, layer=2, batch_size=5)
    np.testing.assert_allclose(together, alone, atol=5e-6)


def test_slice_size_does_not_change_values(monkeypatch):
    predictions, references = map(list, zip(*PAIRS, strict=True))
    whole = bertscore_of_pairs(predictions, references, NAME, layer=2)
    monkeypatch.setattr(module, "SLICE", 7)
    np.testing.assert_allclose(bertscore_of_pairs(predictions, references, NAME, layer=2), whole, atol=5e-6)


def test_opposite_signs_of_precision_and_recall_score_zero():
    result = module._f1(np.array([1.0, -0.5, 1.0000001, 0.0, -0.2]), np.array([-0.9, 0.5, 1.0000001, 0.0, -0.2]))
    assert result.tolist() == pytest.approx([0, 0, 1, 0, -0.2])


ID = f"bertscore(model={NAME},layer=2)"


def metric(questions, answers, name=ID):
    return score(questions, answers, [name])[str(parse(name))]


def test_best_gold_counts_and_a_missing_answer_is_empty():
    queries = [Question("q1", "?", (TEXTS[0], TEXTS[1])), Question("q2", "?", (TEXTS[2],)), Question("q3", "?", (" ",))]
    responses = [Prediction("q1", TEXTS[1]), None, Prediction("q3", "old")]
    raw = metric(queries, responses)
    assert raw[:2].tolist() == pytest.approx([1, 0], abs=1e-6)
    assert np.isnan(raw[2])
    rescaled = metric(queries, responses, f"bertscore(model={NAME},layer=2,rescale=true)")
    empty = metric(queries, [responses[0], Prediction("q2", ""), responses[2]], f"bertscore(model={NAME},layer=2,rescale=true)")
    assert rescaled[1] == empty[1] < 0  # leaving hard questions unanswered does not raise the score
    assert metric(queries, responses, f"bertscore(model={NAME},layer=2,golds=first)")[0] < 1


def test_rescaling_reads_each_text_once(monkeypatch):
    calls = Counter()
    real = module.bertscore_of_pairs
    monkeypatch.setattr(module, "bertscore_of_pairs", lambda *a, **k: (calls.update(["read"]), real(*a, **k))[1])
    batch = Batch([Question("q", "?", ("old",))], [Prediction("q", "old")])
    for rescale in ("true", "false"):
        parse(f"bertscore(model={NAME},layer=2,rescale={rescale})").compute(batch)
    assert calls["read"] == 1


def test_model_with_too_few_or_unknown_layers_is_refused():
    with raises("scorer-failed"):
        bertscore_of_pairs(["old"], ["old"], NAME, layer=4)
    with raises("load-failed"):
        bertscore_of_pairs(["old"], ["old"], "no-such-model-anywhere", layer=1)


def test_metric_id_refuses_a_model_path(models):
    for path in (str(models / NAME), "./model", "~/model"):
        with raises("bad-option"):
            parse(f"bertscore(model={path})")
    with raises("bad-option"):
        parse("bertscore(layer=0)")
    # A function over texts has no id, so a folder is accepted.
    assert bertscore_of_pairs(["old"], ["old"], str(models / NAME), layer=2) == pytest.approx(1, abs=1e-6)


def test_folder_without_tokenizer_or_with_missing_weights_is_refused(models: Path, tmp_path: Path) -> None:
    for name, kept in (("no-tokenizer", ("config.json", "model.safetensors")), ("no-layer", None)):
        (tmp_path / name).mkdir()
        for file in (models / NAME).iterdir():
            if kept is None or file.name in kept:
                (tmp_path / name / file.name).write_bytes(file.read_bytes())
    tensors = load_file(tmp_path / "no-layer" / "model.safetensors")
    rest = {name: tensor for name, tensor in tensors.items() if "layer.1." not in name}
    save_file(rest, tmp_path / "no-layer" / "model.safetensors", metadata={"format": "pt"})
    with raises("no-vocabulary"):
        bertscore_of_pairs(["old"], ["a painter"], str(tmp_path / "no-tokenizer"), layer=2)
    with raises("random-weights"):
        bertscore_of_pairs(["old"], ["a painter"], str(tmp_path / "no-layer"), layer=2)
