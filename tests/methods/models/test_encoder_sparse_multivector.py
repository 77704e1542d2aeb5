"""BGE-M3's three scores against loops over tokens."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from methods.models.late_interaction import M3Config, M3Encoder, M3Vectors, multi_scores, sparse_scores
from tests.support.errors import raises


@pytest.fixture(params=["pt", pytest.param("safetensors", marks=pytest.mark.slow)])
def folder(request: pytest.FixtureRequest, tiny_models: ModuleType, tmp_path: Path) -> str:
    import torch
    from safetensors.torch import save_file
    from transformers import XLMRobertaModel

    torch.manual_seed(0)
    model = tiny_models.scaled(XLMRobertaModel(tiny_models.config("XLMRoberta", 200)))
    tiny_models.save(tmp_path, "xlmr", model)
    for name, width in (("sparse_linear", 1), ("colbert_linear", 32)):
        state = torch.nn.Linear(32, width).state_dict()
        if request.param == "pt":
            torch.save(state, tmp_path / f"{name}.pt")
        else:
            save_file(state, tmp_path / f"{name}.safetensors")
    return str(tmp_path)


def by_hand(encoder: M3Encoder, folder: str, text: str) -> tuple[np.ndarray, dict[int, float], np.ndarray]:
    """Encode one text token by token."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    encoded = tokenizer(text, truncation=True, max_length=64, return_tensors="pt")
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(folder).eval()(**encoded).last_hidden_state[0]
        gates, rows = encoder._sparse(hidden)[:, 0].tolist(), encoder._multi(hidden).numpy()
    lexical: dict[int, float] = {}
    for token, gate in zip(encoded["input_ids"][0].tolist(), gates, strict=True):
        if token not in tokenizer.all_special_ids and gate > 0:
            lexical[token] = max(lexical.get(token, 0.0), gate)
    dense = hidden[0].numpy()
    return dense / np.linalg.norm(dense), lexical, np.stack([row / np.linalg.norm(row) for row in rows[1:]])


@pytest.mark.slow
def test_all_three_outputs_and_scores_equal_a_naive_loop(folder: str, tiny_models: ModuleType) -> None:
    texts = [*tiny_models.TEXTS, "river moss " * 60, "", "zzz ☃"]
    encoder = M3Encoder(M3Config(model=folder, max_length=64, batch_size=4), "cpu")
    results, expected = encoder.encode(texts), [by_hand(encoder, folder, text) for text in texts]
    for item, (dense, lexical, multi) in zip(results, expected, strict=True):
        assert item.dense == pytest.approx(dense, abs=2e-5)
        assert item.multi == pytest.approx(multi, abs=2e-5)
        assert dict(zip(item.tokens.tolist(), item.weights.tolist(), strict=True)) == pytest.approx(lexical, abs=2e-5)
    assert sum(len(lexical) for _, lexical, _ in expected) > 10
    scores = encoder.scores(results[:3], results)
    for row in range(3):
        for column in range(len(texts)):
            (q_dense, q_lexical, q_multi), (p_dense, p_lexical, p_multi) = expected[row], expected[column]
            sparse = sum(weight * p_lexical.get(token, 0.0) for token, weight in q_lexical.items())
            multi = float(np.mean([max(float(a @ b) for b in p_multi) for a in q_multi]))
            total = 1.0 * float(q_dense @ p_dense) + 0.3 * sparse + 1.0 * multi
            assert scores[row, column] == pytest.approx(total, abs=1e-4)


def test_scores_are_weighted_sums_of_modes_independent_of_passage_order(folder: str, tiny_models: ModuleType) -> None:
    weights: dict[Any, float] = {"dense": 0.4, "sparse": 0.2, "multi": 0.4}
    encoder = M3Encoder(M3Config(model=folder, weights=weights), "cpu")
    items = encoder.encode(tiny_models.TEXTS)
    parts = [encoder.scores(items, items, [mode]) for mode in ("dense", "sparse", "multi")]  # type: ignore[list-item]
    assert encoder.scores(items, items) == pytest.approx(sum(parts))
    order = [3, 1, 5, 0, 2, 4]
    moved = encoder.scores(items, [items[position] for position in order])
    assert moved == pytest.approx(encoder.scores(items, items)[:, order], abs=1e-6)
    assert encoder.scores([], items).shape == (0, 6)
    assert encoder.scores(items, []).shape == (6, 0)


def test_sparse_score_without_common_tokens_is_zero_and_padding_is_ignored() -> None:
    def item(tokens: list[int], rows: int) -> M3Vectors:
        multi = np.eye(4, dtype=np.float32)[:rows]
        return M3Vectors(multi[0], np.array(tokens), np.ones(len(tokens), np.float32), multi)

    left, right = item([1, 5], 2), item([2, 9], 3)
    assert sparse_scores([left], [right, left])[0].tolist() == [0.0, 2.0]
    # Row 2 of the query finds nothing in a passage of two rows: 2/3, whatever longer passages stand beside it.
    assert multi_scores([right], [left])[0].tolist() == pytest.approx([2 / 3])
    assert multi_scores([right], [left, item([1], 4)])[0].tolist() == pytest.approx([2 / 3, 1])


def test_missing_head_is_named(folder: str) -> None:
    for path in Path(folder).glob("colbert_linear.*"):
        path.unlink()
    with raises("encoder-file-missing"):
        M3Encoder(M3Config(model=folder), "cpu")


def test_head_file_with_other_objects_than_tensors_is_not_unpickled(folder: str, tmp_path: Path) -> None:
    import torch

    class Harm:
        def __reduce__(self) -> Any:
            return (Path.write_text, (tmp_path / "harmed", "x"))

    for path in Path(folder).glob("sparse_linear.*"):
        path.unlink()
    torch.save({"weight": Harm()}, Path(folder) / "sparse_linear.pt")
    with raises("unsafe-weights"):
        M3Encoder(M3Config(model=folder), "cpu")
    assert not (tmp_path / "harmed").exists()
