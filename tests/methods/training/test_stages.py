"""Checkpoints are saved whole, and the options in cards of shipped ones can still be loaded."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import methods
from methods.presets import laid_over
from methods.training import TRAININGS
from methods.training.stages import Manifest, StageRecord, card_of, read_lines, saved, write_lines

CARDS = sorted(Path(methods.__path__[0]).glob("*/weights/**/ragmeter.json"))


@pytest.mark.parametrize("card", CARDS, ids=lambda card: str(card.parent.relative_to(methods.__path__[0])))
def test_training_accepts_the_options_in_a_shipped_card(card: Path) -> None:
    shipped = card_of(str(card.parent))
    assert shipped is not None
    options = TRAININGS.get(shipped["method"]).validate(shipped["config"]).model_dump(mode="json")
    assert laid_over(options, _without_removed(shipped["config"], options)) == options


def _without_removed(stated: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Drop removed options: `validate` refuses them with any value but the one now in effect."""
    kept = {name: value for name, value in stated.items() if name in options}
    return {name: _without_removed(value, options[name]) if isinstance(options[name], dict) else value for name, value in kept.items()}


def test_removed_option_is_accepted_only_with_the_value_now_in_effect() -> None:
    entry, options = TRAININGS.get("gpr"), {"preset": "demo"}
    assert entry.validate({**options, "triple_base": None}) == entry.validate(options)
    with pytest.raises(ValidationError, match="triple_base"):
        entry.validate({**options, "triple_base": "minilm"})


def test_cards_of_three_approaches_ship() -> None:
    assert {card.relative_to(methods.__path__[0]).parts[0] for card in CARDS} == {"ark", "gpr", "sark"}


def test_saving_a_checkpoint_removes_what_killed_processes_left(tmp_path: Path) -> None:
    left = tmp_path / ".towers.1" / "model.safetensors"
    left.parent.mkdir()
    left.write_text("half")
    manifest, record = Manifest.open(tmp_path, "i", {}), StageRecord("", "p", None, "", {})

    def save(draft: Path) -> None:
        (draft / "weights").write_text("whole")

    made = saved("towers", tmp_path / "towers", manifest, record, save)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.json", "towers"]
    assert manifest.finished("towers", tmp_path / "towers", "p") == made


def test_text_with_unicode_line_separators_is_one_line(tmp_path: Path) -> None:
    rows = [{"text": "one\u2028two\u2029three\x85four\x0bfive\r\nsix"}, {"text": ""}]
    write_lines(tmp_path / "rows.jsonl", rows)
    assert read_lines(tmp_path / "rows.jsonl") == rows
