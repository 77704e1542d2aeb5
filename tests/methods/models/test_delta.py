"""Checkpoints as differences from their base, against the whole checkpoint, plain PEFT, and norms computed by numpy."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.errors import raises

torch = pytest.importorskip("torch")

from safetensors.numpy import load_file  # noqa: E402

from benchmarks.core.errors import UserError  # noqa: E402
from methods.models.delta import ADAPTER, DELTA, REST, load_whole, shrink  # noqa: E402
from methods.models.encoder import Encoder  # noqa: E402
from methods.models.encoder_config import EncoderConfig  # noqa: E402
from methods.models.weights import SHIPPED, locate  # noqa: E402
from results.store.checkpoints import CARD, describe, verify  # noqa: E402
from tools import ship as shipping  # noqa: E402

TEXTS = ["the river runs", "a town in the vale"]


@pytest.fixture
def base(tiny_encoder: str, tmp_path: Path) -> Path:
    shutil.copytree(tiny_encoder, tmp_path / "base")
    return tmp_path / "base"


@pytest.fixture
def tuned(base: Path, tmp_path: Path) -> Callable[..., Path]:
    """Save a checkpoint with updates of a given rank to its matrices, and changed vectors."""

    def make(rank: int, *, vectors: bool = True) -> Path:
        model = load_whole(str(base), encoder)
        torch.manual_seed(rank)
        with torch.no_grad():
            for value in model.parameters():
                if value.dim() == 2:
                    value += 0.05 * torch.randn(len(value), rank) @ torch.randn(rank, value.shape[1])
                elif vectors:
                    value += 0.05 * torch.randn_like(value)
        model.save_pretrained(str(tmp_path / "tuned"), create_model_card=False)
        describe(tmp_path / "tuned", method="ark", stage="stage1", config={"base": str(base)})
        return tmp_path / "tuned"

    return make


def encoder(folder: str) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(folder, device="cpu")


def vectors(folder: Path) -> Any:
    return Encoder(EncoderConfig(model=str(folder)), "cpu").passages(TEXTS)


def test_low_rank_update_is_kept_exactly_and_a_larger_one_by_the_share_of_its_norm(
    base: Path, tuned: Callable[..., Path], tmp_path: Path
) -> None:
    whole = tuned(3)
    exact = shrink(whole, tmp_path / "exact", str(base), rank=3)
    assert exact.kept == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(vectors(tmp_path / "exact"), vectors(whole), atol=3e-3)
    assert np.abs(vectors(base) - vectors(whole)).max() > 0.1
    # What is left out, independently: the smallest singular values of each matrix.
    least = shrink(whole, tmp_path / "least", str(base), rank=1)
    before, after = (load_file(str(folder / "model.safetensors")) for folder in (base, whole))
    changes = [after[name] - before[name] for name in before]
    kept = sum(np.linalg.norm(item, 2) ** 2 if item.ndim == 2 else np.square(item).sum() for item in changes)
    assert least.kept == pytest.approx((kept / sum(np.square(item).sum() for item in changes)) ** 0.5, abs=1e-4)
    assert verify(tmp_path / "least").parents == (verify(whole).sha256,)
    assert least.size < sum(path.stat().st_size for path in whole.rglob("*") if path.is_file())


def test_delta_loads_with_plain_peft(base: Path, tuned: Callable[..., Path], tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModel

    whole = tuned(2, vectors=False)
    shrink(whole, tmp_path / "delta", str(base), rank=2)
    assert json.loads((tmp_path / "delta" / "adapter_config.json").read_text())["base_model_name_or_path"] == str(base)
    ids = torch.tensor([[2, 5, 9, 3]])
    with torch.no_grad():
        adapted = PeftModel.from_pretrained(AutoModel.from_pretrained(str(base)), str(tmp_path / "delta")).eval()(ids)
        direct = AutoModel.from_pretrained(str(whole)).eval()(ids)
    torch.testing.assert_close(adapted.last_hidden_state, direct.last_hidden_state, atol=3e-2, rtol=0)


def test_incomplete_delta_or_one_of_another_base_is_refused(base: Path, tuned: Callable[..., Path], tmp_path: Path) -> None:
    whole = tuned(1)
    shrink(whole, tmp_path / "delta", str(base))
    for name, spoil, what in (
        (ADAPTER, lambda path: path.write_bytes(path.read_bytes()[:-10]), "cut short or changed"),
        (REST, lambda path: path.unlink(), "missing"),
        (DELTA, lambda path: path.write_text("{"), "damaged"),
    ):
        shutil.copytree(tmp_path / "delta", tmp_path / name)
        spoil(tmp_path / name / name)
        with pytest.raises(UserError, match=what) as caught:
            vectors(tmp_path / name)
        assert name in str(caught.value.where)
        assert caught.value.try_this
    with raises("folder-exists"):
        shrink(whole, tmp_path / "delta", str(base))
    shutil.copy(whole / "model.safetensors", base)
    with raises("difference-base-mismatch"):
        vectors(tmp_path / "delta")


def test_failed_shrink_leaves_no_files(base: Path, tuned: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tuned(1)
    monkeypatch.setattr("methods.models.delta._seal", lambda *_: (_ for _ in ()).throw(OSError("the disk is full")))
    there = set(tmp_path.iterdir())
    with pytest.raises(OSError, match="full"):
        shrink(whole, tmp_path / "delta", str(base))
    assert set(tmp_path.iterdir()) == there


def test_shipped_checkpoints_match_their_cards_and_fit_in_the_wheel() -> None:
    folders = [Path(locate(name)) for name in SHIPPED]
    assert sum(map(shipping.bytes_of, folders)) <= shipping.LARGEST_BYTES
    for folder in folders:
        assert (folder / "README.md").is_file()
        if (folder / CARD).is_file():
            verify(folder)
