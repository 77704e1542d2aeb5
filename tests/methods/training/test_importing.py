"""Published checkpoints as trainings: converted once, completely or not at all, and only in the named layout."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from methods.api import Services
from methods.training import TRAININGS, TrainedStage, TrainingContext, importing
from methods.training.released import new_rows, pickled, released
from ragmeter.trainings import identity
from tests.support.errors import raises


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Write a folder in PISCO's layout."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "adapters.pth").touch()
    return folder


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Record the target folders of conversions, which write one file here."""
    folders: list[Path] = []

    def convert(checkpoint: Any, folder: Path, *_: Any) -> None:
        folders.append(folder)
        folder.mkdir()
        (folder / "memory.json").write_text("{}")

    monkeypatch.setattr(importing, "convert", convert)
    return folders


def run(source: Path, folder: Path, layout: str = "pisco") -> TrainedStage:
    entry = TRAININGS.get("compressor_released")
    context = TrainingContext(folder / "work", folder / "made", Services(0, device="cpu"))
    (stage,) = entry.factory(entry.validate({"layout": layout, "source": str(source)})).run(context)
    return stage


def test_checkpoint_is_converted_once_and_then_reused(source: Path, conversions: list[Path], tmp_path: Path) -> None:
    first = run(source, tmp_path)
    assert (first.stage, first.fresh, first.folder) == ("published", True, tmp_path / "made" / "published")
    assert [path.name for path in first.folder.iterdir()] == ["memory.json"]
    shutil.rmtree(source)
    assert not run(source, tmp_path).fresh
    assert len(conversions) == 1


def test_failed_conversion_leaves_no_files_and_can_be_repeated(
    source: Path, conversions: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(checkpoint: Any, folder: Path, *_: Any) -> None:
        folder.mkdir()
        raise OSError("no space left")

    with monkeypatch.context() as broken:
        broken.setattr(importing, "convert", cut)
        with pytest.raises(OSError, match="no space left"):
            run(source, tmp_path)
    assert list((tmp_path / "made").iterdir()) == []
    assert run(source, tmp_path).fresh


def test_a_checkpoint_of_another_layout_is_refused(source: Path, conversions: list[Path], tmp_path: Path) -> None:
    with raises("checkpoint-of-other-system", where=str(source)):
        run(source, tmp_path, "cocom")
    assert not conversions


def test_seed_of_an_experiment_does_not_change_the_checkpoint() -> None:
    entry = TRAININGS.get("clara_released")
    homes = {identity(entry, entry.validate({"preset": "e2e-16x", "seed": seed})) for seed in (0, 42)}
    assert len(homes) == 1
    assert identity(entry, entry.validate({"preset": "e2e-128x"})) not in homes


@pytest.mark.parametrize("name", ["clara_released", "compressor_released"])
def test_every_preset_is_valid_and_lists_its_requirements(name: str) -> None:
    entry = TRAININGS.get(name)
    for preset in entry.presets:
        config: Any = entry.validate({"preset": preset})
        assert config.source in [item.model for item in entry.needs(config).checkpoints]  # type: ignore[misc, union-attr]
        assert config.model.base if name == "clara_released" else config.system.name == config.layout


@pytest.mark.parametrize("value", [0, -4, 2.5, "16", None, True])
def test_config_with_a_non_positive_count_is_refused(value: object, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"compr_rate": value}), "utf-8")
    checkpoint = released(str(tmp_path))
    assert checkpoint.number("lora_r", 16) == 16
    with raises("bad-checkpoint"):
        checkpoint.number("compr_rate")


def test_damaged_files_or_files_without_settings_are_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    (tmp_path / "config.json").write_text("[]", "utf-8")
    with raises("unreadable-model-config"):
        released(str(tmp_path))
    torch.save({"encoder_adapter": {"a": torch.tensor([1.0, float("nan")])}}, tmp_path / "adapters.pth")
    with raises("vectors-not-finite", "adapters.pth"):
        pickled(tmp_path / "adapters.pth")


@pytest.mark.parametrize("rows", [5, 7])
def test_embedding_with_another_number_of_new_rows_is_refused(rows: int) -> None:
    torch = pytest.importorskip("torch")
    base = torch.nn.Embedding(4, 3)
    base.get_input_embeddings = base.get_output_embeddings = lambda: base
    table = torch.cat([base.weight.detach(), torch.ones(rows - 4, 3)])
    with raises("embedding-size-mismatch"):
        new_rows({"embed_tokens.weight": table}, base, 4, 2, "x")
    assert new_rows({"embed_tokens.weight": table}, base, 4, rows - 4, "x").tolist() == [[1.0] * 3] * (rows - 4)
