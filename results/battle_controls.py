"""Where a pair judge places the controls of a board, by the tests of all pairs that its win rates are marked with.

What is expected of a control is what `flags` expects of it: nothing stands above the gold answer, and what says nothing
or the wrong thing stands below the methods.
"""

from __future__ import annotations

from dataclasses import dataclass

from results.battle_board import BattleBoard
from results.flags import BEST, NO_ANSWER, WORTHLESS

_METHOD = ""
"""Stands for the id of what is no control."""
_LEVELS = {BEST: 2, _METHOD: 1, NO_ANSWER: 0, **dict.fromkeys(WORTHLESS, 0)}


@dataclass(frozen=True, slots=True)
class Placed:
    """A control among the rivals that it met and must stand above, or below.

    Attributes:
        control: Its name.
        above: Whether it must stand above them: the gold answer; else below.
        right: Rivals beside which it surely stands where it belongs.
        level: Rivals from which the tests do not tell it apart.
        wrong: Rivals that it surely beats and must not, or loses to and must not.
    """

    control: str
    above: bool
    right: tuple[str, ...]
    level: tuple[str, ...]
    wrong: tuple[str, ...]

    @property
    def rivals(self) -> int:
        """How many it is judged by."""
        return len(self.right) + len(self.level) + len(self.wrong)


def placed(board: BattleBoard, criterion: str) -> list[Placed]:
    """Controls of which a place is known beforehand and that met somebody they can be judged by.

    Args:
        board: What the judge said.
        criterion: By which the answers were compared.
    """
    sure: dict[str, dict[str, bool | None]] = {}
    for one in board.pairings:
        if one.criterion == criterion and one.rate.n:
            sure.setdefault(one.method, {})[one.opponent] = one.won
            sure.setdefault(one.opponent, {})[one.method] = None if one.won is None else not one.won
    found = []
    for control in board.controls:
        met = {rival: won for rival, won in sure.get(control, {}).items() if _above(control, rival, board) is not None}
        if met:
            above = board.controls[control] == BEST
            right = tuple(rival for rival, won in met.items() if won is above)
            level = tuple(rival for rival, won in met.items() if won is None)
            wrong = tuple(rival for rival, won in met.items() if won is (not above))
            found.append(Placed(control, above, right, level, wrong))
    return found


def not_placed(board: BattleBoard, criterion: str) -> list[str]:
    """Controls that were compared and are not among `placed`."""
    known = {one.control for one in placed(board, criterion)}
    met = {name for one in board.pairings if one.criterion == criterion for name in (one.method, one.opponent)}
    return [control for control in board.controls if control in met - known]


def misplaced(board: BattleBoard, criterion: str) -> dict[str, tuple[str, ...]]:
    """What speaks against the judge: by a name, the rivals that it surely beats and must not.

    Each such pair occurs once.
    """
    found: dict[str, dict[str, None]] = {}
    for one in placed(board, criterion):
        for rival in one.wrong:
            winner, loser = (rival, one.control) if one.above else (one.control, rival)
            found.setdefault(winner, {})[loser] = None
    return {winner: tuple(losers) for winner, losers in found.items()}


def _above(control: str, rival: str, board: BattleBoard) -> bool | None:
    """Whether a control must stand above a rival; None where nothing is known beforehand."""
    kinds = board.controls.get(control, _METHOD), board.controls.get(rival, _METHOD)
    # How much of an answer a whole passage is, is known beside the gold answer alone.
    if not all(kind in _LEVELS for kind in kinds) or (NO_ANSWER in kinds and BEST not in kinds):
        return None
    one, other = (_LEVELS[kind] for kind in kinds)
    return None if one == other else one > other
