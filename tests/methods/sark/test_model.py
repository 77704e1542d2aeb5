"""SARK's model: an encoder of its own class, the head of equation 4, a folder that plain CrossEncoder loads."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from safetensors.torch import load_file

from methods.models.cross_encoder import CrossEncoderConfig, CrossEncoderModel
from methods.models.delta import shrink
from methods.sark.config import SarkTrainingConfig
from methods.sark.model import encoder_of, last_layer, new_reranker, one_score, save
from tests.support.errors import raises

torch = pytest.importorskip("torch")

PAIRS = [("where was the painter born ?", "the old stone bridge"), ("old", "moss grows on the north side " * 4)]


def make(folder: Path, tiny: ModuleType, kind: str, style: str, **more: Any) -> str:
    """Save a classifier with random weights in the layout of published rerankers."""
    import transformers

    torch.manual_seed(4)
    size = len(tiny.tokenizer(style))
    model = getattr(transformers, f"{kind}ForSequenceClassification")(tiny.config(kind, size, num_labels=1, **more))
    return str(tiny.save(folder, style, tiny.scaled(model)))


@pytest.fixture(params=[("Bert", "bert"), pytest.param(("XLMRoberta", "xlmr"), marks=pytest.mark.slow)], ids=["bert", "xlmr"])
def base(request: pytest.FixtureRequest, tiny_models: ModuleType, tmp_path: Path) -> str:
    return make(tmp_path / "base", tiny_models, *request.param)


@pytest.fixture
def xlmr(tiny_models: ModuleType, tmp_path: Path) -> str:
    return make(tmp_path / "base", tiny_models, "XLMRoberta", "xlmr")


def config(base: str, **more: Any) -> SarkTrainingConfig:
    model = {"max_length": 64, **more.pop("model", {})}
    return SarkTrainingConfig.model_validate({"data": ["worlds/style:train"], "base": base, "model": model, **more})


def features(model: Any) -> dict[str, Any]:
    queries, passages = map(list, zip(*PAIRS, strict=True))
    return dict(model.tokenizer(queries, passages, padding=True, return_tensors="pt"))


def states(encoder: Any, model: Any, **more: Any) -> Any:
    with torch.no_grad():
        return encoder(**{**features(model), **more}).last_hidden_state


def test_score_equals_equation_4(base: str) -> None:
    model = new_reranker(config(base), "cpu").eval()
    weights = {name: value.double() for name, value in model.state_dict().items()}
    first = states(encoder_of(model), model)[:, 0].double()
    hidden = torch.relu(first @ weights["2.linear.weight"].T + weights["2.linear.bias"])
    assert hidden.shape == (2, 256)
    expected = hidden @ weights["4.linear.weight"].T + weights["4.linear.bias"]
    with torch.no_grad():
        result = model(features(model))["scores"]
    assert result.shape == (2, 1)
    assert torch.allclose(result.double(), expected, atol=1e-5)


def test_encoder_keeps_the_weights_of_its_base_without_the_head(xlmr: str) -> None:
    import transformers

    published = transformers.AutoModelForSequenceClassification.from_pretrained(xlmr)
    model = new_reranker(config(xlmr), "cpu")
    own = encoder_of(model).state_dict()
    for name, value in published.roberta.state_dict().items():
        assert torch.equal(own[name], value), name
    assert not any("classifier" in name for name in model.state_dict())


@pytest.mark.slow
@pytest.mark.parametrize("head", ["paper", "official"])
def test_keeping_the_base_head_starts_with_the_scores_of_the_base(base: str, tmp_path: Path, head: str) -> None:
    run_command = new_reranker(config(base, seed=1), "cpu").eval()
    save(run_command, tmp_path / "checkpoint")
    more = {"model": {"head": head, "head_of_base": True}, "seed": 2}
    prepared = one_score(new_reranker(config(str(tmp_path / "checkpoint"), **more), "cpu").eval())
    anew = new_reranker(config(str(tmp_path / "checkpoint"), seed=2), "cpu").eval()
    with torch.no_grad():
        scores, others, drawn = (model(features(run_command))["scores"] for model in (run_command, prepared, anew))
    assert torch.equal(scores, others)
    assert not torch.allclose(scores, drawn)


def test_base_without_a_classification_head_is_named(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"model": {"head_of_base": True}}
    with raises("head-size-mismatch"):
        new_reranker(config(base, **wanted), "cpu")
    monkeypatch.setattr("methods.sark.model.HIDDEN", 32)
    save(new_reranker(config(base), "cpu"), tmp_path / "narrow")
    monkeypatch.undo()
    with raises("head-size-mismatch"):
        new_reranker(config(str(tmp_path / "narrow"), **wanted), "cpu")


def test_xlmr_weights_load_with_their_position_offset(xlmr: str, tiny_models: ModuleType) -> None:
    import transformers

    model = new_reranker(config(xlmr), "cpu").eval()
    encoder = encoder_of(model)
    assert isinstance(encoder, transformers.XLMRobertaModel)
    seen: list[Any] = []
    handle = encoder.embeddings.position_embeddings.register_forward_hook(lambda _, value, __: seen.append(value[0]))
    right = states(encoder, model)
    handle.remove()
    padding = model.tokenizer.pad_token_id
    assert seen[0][0, 0] == padding + 1 == 2
    # The released files: the same weights in the class of BERT, whose positions begin at 0.
    size = len(model.tokenizer)
    foreign = transformers.BertModel(tiny_models.config("Bert", size, type_vocab_size=2)).eval()
    assert foreign.load_state_dict(encoder.state_dict(), strict=False).missing_keys == []
    mask = features(model)["attention_mask"].bool()
    wrong = states(foreign, model, token_type_ids=torch.zeros_like(mask, dtype=torch.long))
    assert (wrong - right)[mask].abs().max() > 0.1
    positions = torch.arange(mask.shape[1]).expand(mask.shape) + 2
    mended = states(foreign, model, position_ids=positions, token_type_ids=torch.zeros_like(mask, dtype=torch.long))
    assert torch.allclose(mended[mask], right[mask], atol=1e-4)


@pytest.mark.parametrize("head", ["paper", "official"])
def test_saved_model_loads_in_plain_cross_encoder_with_one_score(base: str, head: str, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    model = new_reranker(config(base, model={"head": head}), "cpu").eval()
    assert model.num_labels == {"paper": 1, "official": 2}[head]
    save(model, tmp_path / "saved")
    loaded = CrossEncoder(str(tmp_path / "saved"), device="cpu")
    assert loaded.num_labels == 1
    assert loaded.max_seq_length == 64
    with torch.no_grad():
        # Of two logits the released code ranks by the second.
        expected = model(features(model))["scores"][:, -1].numpy()
    result = loaded.predict(PAIRS, activation_fn=torch.nn.Identity())
    assert result == pytest.approx(expected, abs=1e-5)
    assert loaded.predict(PAIRS) == pytest.approx(1 / (1 + torch.exp(-torch.tensor(expected)).numpy()), abs=1e-5)


def test_saved_folder_has_the_documented_modules(base: str, tmp_path: Path) -> None:
    save(new_reranker(config(base), "cpu"), tmp_path)
    listed = json.loads((tmp_path / "modules.json").read_text())
    kinds = [item["type"].rpartition(".")[2] for item in listed]
    assert kinds == ["Transformer", "Pooling", "Dense", "Dropout", "Dense"]
    settings = [json.loads((tmp_path / item["path"] / "config.json").read_text()) for item in listed[1:]]
    assert settings[0]["pooling_mode"] == "cls"
    assert (settings[1]["in_features"], settings[1]["out_features"]) == (32, 256)
    assert settings[1]["activation_function"].endswith("ReLU")
    assert settings[2]["dropout"] == 0.3
    assert (settings[3]["in_features"], settings[3]["out_features"]) == (256, 1)
    assert settings[3]["module_output_name"] == "scores"


@pytest.mark.parametrize("base", [("Bert", "bert")], indirect=True, ids=["bert"])
def test_token_match_is_added_to_the_score_and_survives_saving(base: str, tmp_path: Path) -> None:
    lora = {"r": 2, "dropout": 0.0}
    model = new_reranker(config(base, model={"match": True, "lora": lora}), "cpu").eval()
    trained = {name for name, item in model.named_parameters() if item.requires_grad}
    assert all("lora_" in name for name in trained if name.startswith("0."))
    assert {"5.weight", "2.linear.weight"} <= trained
    with torch.no_grad():
        # A head that begins at 0 leaves the match alone, until the updates are more than 0.
        assert not model[4].linear.weight.any()
        for name, item in model.named_parameters():
            if name in trained:
                item.add_(0.1)
        expected = []
        for query, passage in PAIRS:
            read = dict(model.tokenizer([query], [passage], return_tensors="pt"))
            states = encoder_of(model)(**read).last_hidden_state[0]
            kinds = read["token_type_ids"][0]
            nearest = [max(float(torch.cosine_similarity(own, other, 0)) for other in states[kinds == 1]) for own in states[kinds == 0]]
            head = model[4].linear(torch.relu(model[2].linear(states[0])))
            expected.append(float(head) + float(model[5].weight) * sum(nearest) / len(nearest))
    save(model, tmp_path / "saved")
    assert not any("lora" in name for name in load_file(tmp_path / "saved" / "model.safetensors"))
    loaded = CrossEncoderModel(CrossEncoderConfig(model=str(tmp_path / "saved"), max_length=64), "cpu")
    result = [float(loaded.scores(query, [passage])[0]) for query, passage in PAIRS]
    assert result == pytest.approx(expected, abs=1e-4)
    shrink(tmp_path / "saved", tmp_path / "delta", base, rank=2)
    for begun in ("saved", "delta"):
        again = new_reranker(config(str(tmp_path / begun), model={"match": True, "head_of_base": True}), "cpu").eval()
        assert again.predict(PAIRS, activation_fn=torch.nn.Identity()) == pytest.approx(expected, abs=1e-4 if begun == "saved" else 0.02)


@pytest.mark.parametrize("base", [("Bert", "bert")], indirect=True, ids=["bert"])
def test_match_of_an_embedder_starts_at_its_ranking_stays_frozen_and_survives_saving(base: str, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    plain = SentenceTransformer(base, device="cpu")
    cosines = [float(plain.similarity(*(plain.encode([text]) for text in pair))) for pair in PAIRS]
    model = new_reranker(config(base, model={"match": "embedder", "lora": {"r": 2, "dropout": 0.0}}), "cpu").train()
    assert not any(item.requires_grad for name, item in model.named_parameters() if name.startswith("5.encoder"))
    assert not any(part.training for part in model[5].encoder.modules())
    start = [20 * cosine + float(model[4].linear.bias) for cosine in cosines]
    assert model.eval().predict(PAIRS, activation_fn=torch.nn.Identity()) == pytest.approx(start, abs=1e-4)
    with torch.no_grad():
        for item in model.parameters():
            if item.requires_grad:
                item.add_(0.1)
        read = features(model)
        head = model[4].linear(torch.relu(model[2].linear(encoder_of(model)(**read).last_hidden_state[:, 0])))[:, 0].tolist()
    expected = [z + 20.1 * cosine for z, cosine in zip(head, cosines, strict=True)]
    save(model, tmp_path / "saved")
    loaded = CrossEncoderModel(CrossEncoderConfig(model=str(tmp_path / "saved"), max_length=64), "cpu")
    assert [float(loaded.scores(query, [passage])[0]) for query, passage in PAIRS] == pytest.approx(expected, abs=1e-4)
    again = new_reranker(config(str(tmp_path / "saved"), model={"match": "embedder", "head_of_base": True}), "cpu").eval()
    assert again.predict(PAIRS, activation_fn=torch.nn.Identity()) == pytest.approx(expected, abs=1e-4)
    with raises("head-size-mismatch"):
        new_reranker(config(str(tmp_path / "saved"), model={"match": True, "head_of_base": True}), "cpu")


def test_saving_does_not_change_the_model_in_training(base: str) -> None:
    model = new_reranker(config(base, model={"head": "official"}), "cpu")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    single = one_score(model)
    assert single.num_labels == 1
    assert model.num_labels == 2
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_dropout_comes_from_the_options_or_the_base(base: str) -> None:
    def rates(model: Any) -> set[float]:
        return {item.p for item in encoder_of(model).modules() if isinstance(item, torch.nn.Dropout)}

    assert rates(new_reranker(config(base), "cpu")) == {0.3}
    assert rates(new_reranker(config(base, model={"backbone_dropout": None}), "cpu")) == {0.1}
    assert encoder_of(new_reranker(config(base), "cpu")).config.attention_probs_dropout_prob == 0.3


def test_dropout_is_active_only_in_training(base: str) -> None:
    model = new_reranker(config(base), "cpu")
    with torch.no_grad():
        scores = [model.train()(features(model))["scores"] for _ in range(2)]
        calm = [model.eval()(features(model))["scores"] for _ in range(2)]
    assert not torch.equal(*scores)
    assert torch.equal(*calm)


def test_encoder_without_a_known_dropout_setting_is_refused(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from methods.sark import model as module

    monkeypatch.setattr(module, "DROPOUTS", ("none_such",))
    with raises("dropout-unknown") as caught:
        new_reranker(config(base), "cpu")
    assert "backbone_dropout=null" in str(caught.value)
    new_reranker(config(base, model={"backbone_dropout": None}), "cpu")


def test_pairs_longer_than_the_encoders_positions_are_refused(base: str) -> None:
    most = 80 if "Bert" in type(encoder_of(new_reranker(config(base), "cpu"))).__name__[:4] else 78
    new_reranker(config(base, model={"max_length": most}), "cpu")
    with raises("pair-length-mismatch"):
        new_reranker(config(base, model={"max_length": most + 1}), "cpu")


def test_heads_are_initialized_from_the_seed(base: str) -> None:
    first, same, other = (new_reranker(config(base, seed=seed), "cpu").state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(value, same[name]) for name, value in first.items())
    assert not torch.equal(first["2.linear.weight"], other["2.linear.weight"])


def test_last_layer_parameters_are_those_of_the_encoders_last_layer(base: str) -> None:
    model = new_reranker(config(base), "cpu")
    assert last_layer(model) is encoder_of(model).encoder.layer[1]


def test_missing_base_is_refused(tmp_path: Path) -> None:
    with raises("no-model-folder"):
        new_reranker(config(str(tmp_path / "none")), "cpu")
