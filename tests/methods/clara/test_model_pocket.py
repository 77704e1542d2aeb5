"""CLaRa's shipped adapters: small, loadable by plain PEFT, and nearly as accurate as their base with full text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.errors import raises

torch = pytest.importorskip("torch")

from benchmarks.core.errors import UserError  # noqa: E402
from methods.clara.checkpoint import require_checkpoint  # noqa: E402
from methods.clara.config import PoolConfig, ValidateOptions  # noqa: E402
from methods.clara.data import joint_rows  # noqa: E402
from methods.clara.model import Clara  # noqa: E402
from methods.clara.prompts import query  # noqa: E402
from methods.clara.rows import JointRow  # noqa: E402
from methods.clara.stages import answered, covered  # noqa: E402
from methods.models.weights import CLARA_POCKET, locate  # noqa: E402
from tools.ship import ship  # noqa: E402

REQUESTED = {"worlds": 1, "questions": 60, "candidates": 20, "mix": {"single": 1.0}}


@pytest.fixture
def clara() -> Clara:
    return Clara.load(Path(locate(CLARA_POCKET)), "cpu")


@pytest.fixture(scope="module")
def rows() -> list[JointRow]:
    """Return held-out questions, each over its evidence and four other passages."""
    from methods.api import Services

    pool = PoolConfig.model_validate({"depth": 5})
    return list(joint_rows("worlds:validation", pool, REQUESTED, Services(), limit=60))


def test_shipped_adapters_load_with_plain_peft() -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    folder = require_checkpoint(CLARA_POCKET, where="model")
    base = AutoModelForCausalLM.from_pretrained(locate("pocket"))
    adapted = PeftModel.from_pretrained(base, str(folder / "generator"), adapter_name="generator")
    assert any("generator" in name for name, _ in adapted.named_parameters())


@pytest.mark.soak
def test_memory_reaches_four_fifths_of_full_text_answers(clara: Clara, rows: list[JointRow]) -> None:
    options = ValidateOptions()
    memory = answered(clara, rows, options, selects=False)["cover_em"]
    text, nothing = (
        covered(clara, rows, [query(row.question, row.documents if shown else (), text=True) for row in rows], None, options, None)
        for shown in (True, False)
    )
    assert memory >= 0.8 * text
    assert nothing == 0 < memory


@pytest.mark.slow
def test_shipped_half_precision_weights_change_memory_by_less_than_rounding(
    clara: Clara, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Those that ship are rounded already.
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in clara.adapters.of("compressor").values():
            parameter.mul_(1 + 1e-4 * torch.randn(parameter.shape, generator=draw))
    clara.save(tmp_path / "whole")
    size = ship(tmp_path / "whole", tmp_path / "half", {}).size
    assert size < 0.6 * sum(path.stat().st_size for path in (tmp_path / "whole").rglob("*.safetensors"))
    again = Clara.load(tmp_path / "half", "cpu")
    texts = ["The Vale: Ana Moss was born in the Vale in 1850."]
    with torch.no_grad():
        before, after = clara.encode(texts).memory, again.encode(texts).memory
    assert not torch.equal(after, before)
    torch.testing.assert_close(after, before, rtol=0, atol=1e-2)
    # What is refused leaves what was there.
    monkeypatch.setattr("tools.ship.LARGEST_BYTES", 1)
    monkeypatch.setattr("tools.ship.locate", lambda name: str(tmp_path / "half"))
    with pytest.raises(UserError, match="would ship, more than"):
        ship(tmp_path / "whole", tmp_path / "half", {})
    assert Clara.load(tmp_path / "half", "cpu").config == clara.config


def test_folder_without_a_checkpoint_is_refused_suggesting_the_shipped_one(tmp_path: Path) -> None:
    with raises("not-checkpoint-clara") as caught:
        require_checkpoint(str(tmp_path), where="model")
    assert CLARA_POCKET in str(caught.value.try_this)
