from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from methods.models import static
from methods.models.encoder import Encoder
from methods.models.encoder_config import OPTIMUM, EncoderConfig
from methods.models.loaded import KEPT
from methods.models.towers import sentence_transformer
from methods.registry import Component
from tests.support.errors import raises

TEXTS = ["moss stone", "the old river", "stone moss", ""]


def test_static_encoder_is_distilled_once_and_ignores_the_order_of_words(
    tiny_encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGMETER_CACHE", str(tmp_path))
    monkeypatch.setattr(static, "DIMENSION", 8)
    config = EncoderConfig(model=tiny_encoder, backend="static")
    vectors = Encoder(config, "cpu").passages(TEXTS)
    assert np.linalg.norm(vectors[:3], axis=1) == pytest.approx(1, abs=1e-6)
    assert vectors[0] == pytest.approx(vectors[2], abs=1e-6)
    assert np.abs(vectors[0] - vectors[1]).max() > 0.01
    KEPT.clear()
    monkeypatch.setattr(static, "distill", lambda *_: pytest.fail("distilled again"))
    assert np.array_equal(Encoder(config, "cpu").passages(TEXTS), vectors)


def test_static_vectors_are_rank_weighted_principal_components_of_tokens(tiny_encoder: str) -> None:
    encoder = sentence_transformer(EncoderConfig(model=tiny_encoder), tiny_encoder, None, "cpu")
    size = encoder.get_embedding_dimension()
    embedding = static.distill(encoder, size)[0].embedding.weight.detach().numpy()
    tokenizer = encoder.tokenizer
    tokens = [number for number in range(len(embedding)) if number not in tokenizer.all_special_ids]
    word = tokenizer.convert_tokens_to_ids("moss")
    alone = static._token_vectors(encoder, tokens)
    assert alone[tokens.index(word)] == pytest.approx(encoder.encode("moss"), abs=1e-5)
    chance = 1 / np.arange(1, len(tokens) + 1)
    weights = static.SIF / (static.SIF + chance / chance.sum())
    # Rotating all components keeps distances.
    ours = embedding[tokens] / weights[:, None]
    for one, other in ((0, 5), (3, 11)):
        assert np.linalg.norm(ours[one] - ours[other]) == pytest.approx(np.linalg.norm(alone[one] - alone[other]), abs=1e-4)
    assert not embedding[tokenizer.all_special_ids].any()


@pytest.mark.parametrize("backend", OPTIMUM)
def test_backend_without_its_package_is_refused_before_anything_is_loaded(
    backend: str, tiny_encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OPTIMUM, backend, "package_that_is_not_there.module")
    part = Component.of("dense", {"model": tiny_encoder, "backend": backend})
    with raises("backend-not-installed"):
        part.preflight()


def test_openvino_gives_the_vectors_of_torch(tiny_encoder: str) -> None:
    pytest.importorskip("optimum.intel", reason="OpenVINO needs transformers before 5.6; this environment has a later version")
    texts = ["moss", "the old river", "a stone"]
    torch, openvino = (Encoder(EncoderConfig(model=tiny_encoder, backend=backend), "cpu") for backend in ("torch", "openvino"))
    assert openvino.passages(texts) == pytest.approx(torch.passages(texts), abs=1e-5)
