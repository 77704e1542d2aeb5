"""Late interaction with a checkpoint in ColBERTv2's layout, against a loop over tokens."""

from __future__ import annotations

import json
import string
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from methods.models.late_interaction import LateInteraction, LateInteractionConfig, max_sim
from tests.support.errors import raises


@pytest.fixture
def folder(tiny_models: ModuleType, tmp_path: Path) -> Path:
    made: Path = tiny_models.colbert(tmp_path)
    return made


def by_hand(folder: Path, text: str, query: bool, tiny: ModuleType) -> np.ndarray:
    """Encode with a marker after the first token, queries padded with [MASK] that is scored but not attended to,
    passages without punctuation, normalized rows.
    """
    import torch
    from safetensors.torch import load_file
    from transformers import BertConfig, BertModel

    tokenizer, state = tiny.tokenizer("bert"), load_file(folder / "model.safetensors")
    model = BertModel(BertConfig(**json.loads((folder / "config.json").read_text()))).eval()
    model.load_state_dict({k.removeprefix("bert."): v for k, v in state.items() if k.startswith("bert.")})
    pieces = tokenizer.tokenize(text)[: (32 if query else 60) - 3]
    tokens = ["[CLS]", "[unused0]" if query else "[unused1]", *pieces, "[SEP]"]
    seen = [1] * len(tokens)
    if query:
        seen += [0] * (32 - len(tokens))
        tokens += ["[MASK]"] * (32 - len(tokens))
    ids = torch.tensor([tokenizer.convert_tokens_to_ids(tokens)])
    with torch.no_grad():
        hidden = model(input_ids=ids, attention_mask=torch.tensor([seen])).last_hidden_state[0]
    rows = (hidden @ state["linear.weight"].T).numpy()
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows if query else rows[[token not in string.punctuation for token in tokens]]


@pytest.mark.slow
def test_vectors_and_scores_equal_a_naive_loop(folder: Path, tiny_models: ModuleType) -> None:
    model = LateInteraction(LateInteractionConfig(model=str(folder), batch_size=3), "cpu")
    texts = [*tiny_models.TEXTS, "moss , " * 40]
    passages, queries = model.passages(texts), model.queries(texts[:3])
    expected_passages = [by_hand(folder, text, False, tiny_models) for text in texts]
    expected_queries = [by_hand(folder, text, True, tiny_models) for text in texts[:3]]
    for result, expected in zip([*passages, *queries], [*expected_passages, *expected_queries], strict=True):
        assert result == pytest.approx(expected, abs=2e-5)
    for query, by_loop in zip(queries, expected_queries, strict=True):
        loop = [sum(max(float(q @ p) for p in passage) for q in by_loop) for passage in expected_passages]
        assert max_sim(query, passages) == pytest.approx(loop, abs=1e-3)


def test_pylate_layout_of_the_same_weights_gives_the_same_vectors(folder: Path, tiny_models: ModuleType) -> None:
    from safetensors.torch import load_file, save_file

    pylate = folder / "pylate"
    state = load_file(folder / "model.safetensors")
    tiny_models.tokenizer("bert").save_pretrained(pylate)
    save_file(
        {k.removeprefix("bert."): v for k, v in state.items() if k != "linear.weight"}, pylate / "model.safetensors", {"format": "pt"}
    )
    settings = json.loads((folder / "config.json").read_text())
    (pylate / "config.json").write_text(json.dumps({**settings, "architectures": ["BertModel"]}))
    dense = {"in_features": 32, "out_features": 16, "bias": False, "activation_function": "torch.nn.modules.linear.Identity"}
    tiny_models.layout(pylate, 60, [("1_Dense", "Dense", dense)], {})
    save_file({"linear.weight": state["linear.weight"]}, pylate / "1_Dense" / "model.safetensors")
    modules = (pylate / "modules.json").read_text().replace("sentence_transformers.models.Dense", "pylate.models.Dense.Dense")
    (pylate / "modules.json").write_text(modules)
    markers = {"query_prefix": "[unused0]", "document_prefix": "[unused1]", "query_length": 32, "document_length": 60}
    own = {"model_type": "ColBERT", **markers, "attend_to_expansion_tokens": False, "skiplist_words": list(string.punctuation)}
    (pylate / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {}, "similarity_fn_name": "MaxSim", **own}))
    for texts, side in ((tiny_models.TEXTS, "passages"), (tiny_models.TEXTS[:2], "queries")):
        ours, theirs = (getattr(LateInteraction(LateInteractionConfig(model=str(f)), "cpu"), side)(texts) for f in (pylate, folder))
        for matrix, other in zip(ours, theirs, strict=True):
            assert matrix == pytest.approx(other, abs=1e-5)


def test_passage_without_tokens_ranks_last() -> None:
    query = np.eye(2, dtype=np.float32)
    assert max_sim(query, [np.empty((0, 2), np.float32), query[:1]]).tolist() == [-np.inf, 1.0]
    assert max_sim(query, []).shape == (0,)


def test_encoding_no_texts_gives_no_vectors(folder: Path) -> None:
    model = LateInteraction(LateInteractionConfig(model=str(folder)), "cpu")
    assert model.passages([]) == []
    assert model.queries([]) == []


def test_model_without_a_projection_is_refused(tiny_models: ModuleType, tmp_path: Path) -> None:
    from transformers import BertModel

    tiny_models.save(tmp_path, "bert", BertModel(tiny_models.config("Bert", 200)))
    with raises("not-late-interaction"):
        LateInteraction(LateInteractionConfig(model=str(tmp_path)), "cpu")
