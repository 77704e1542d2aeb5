"""Cards of checkpoints that ship: their options can still be read."""

from pathlib import Path

import pytest

import methods
from methods.presets import laid_over
from methods.training import TRAININGS
from methods.training.stages import card_of

CARDS = sorted(Path(methods.__path__[0]).glob("*/weights/**/ragmeter.json"))


@pytest.mark.parametrize("card", CARDS, ids=lambda card: str(card.parent.relative_to(methods.__path__[0])))
def test_training_accepts_the_options_in_a_shipped_card(card: Path) -> None:
    shipped = card_of(str(card.parent))
    assert shipped is not None
    options = TRAININGS.get(shipped["method"]).validate(shipped["config"]).model_dump(mode="json")
    assert laid_over(options, shipped["config"]) == options


def test_cards_of_three_approaches_ship() -> None:
    assert {card.relative_to(methods.__path__[0]).parts[0] for card in CARDS} == {"ark", "gpr", "sark"}
