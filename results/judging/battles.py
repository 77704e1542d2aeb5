"""Boards of pairwise verdicts: win rates with their significance, and strengths if three or more methods were compared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from judges.judge import AS_GIVEN, NONE, TIE
from results.boards.board import groups
from results.boards.controls import BEST, NO_ANSWER, WORTHLESS
from results.boards.markup import plain
from results.boards.names import first_name, repeat_of, run_labels
from results.boards.systems import CONTAMINATED, IMPLAUSIBLE, accepted, contaminated_by, implausible
from results.boards.unread import INCOMPLETE, Missing, max_unscored, why_incomplete
from results.judging import judgments
from results.judging import labels as labeling
from results.judging.judgments import ONE, OTHER, Battle
from results.statistics.battles import TieRule, Verdict, WinRate, question_states, win_rates
from results.statistics.bradley_terry import BradleyTerry, Strength, bradley_terry
from results.statistics.core import LEVEL, Estimate
from results.statistics.holm import holm
from results.statistics.prediction_powered import ENOUGH_LABELS, PredictionPowered, prediction_powered_mean
from results.store import answer_queries, provenance, score_queries
from results.store.checkpoints import known_checkpoints
from results.store.queries import RunRow
from results.store.store import FINISHED, Store
from results.store.training_data import Cards, Checkpoints

THIS_JUDGE_ONLY = "for this judge only"
"""Qualifier of significance marks until people have labeled enough pairs."""
STRENGTHS_FROM = 3
"""Minimum number of methods for strengths; with fewer, win rates contain the same information."""
_AS_ONE = {ONE: Verdict.WIN, OTHER: Verdict.LOSS, TIE: Verdict.TIE, NONE: Verdict.NONE, None: Verdict.UNSCORED}
_AS_OTHER = {**_AS_ONE, ONE: Verdict.LOSS, OTHER: Verdict.WIN}
_SCORES = np.array([0.0, 0.5, 1.0, math.nan, math.nan])
_STATES = np.array([0.0, 0.5, 1.0, 0.5, math.nan])
"""Value of a question by its verdict, on the scale of human labels."""
_SHARES = {ONE: 1.0, OTHER: 0.0, TIE: 0.5, NONE: 0.5}


@dataclass(frozen=True, slots=True)
class Pairing:
    """Win rate of one method against another by one criterion of a pair judge.

    Attributes:
        criterion, method, opponent: The criterion, and the names of the two methods.
        rate: Win rate of `method` over the judged questions.
        unscorable: Number of questions that lack fields which the judge needs.
        pending: Number of questions that both methods answered and that are not judged yet.
        corrected: `rate.p`, or the p-value of `people` if they labeled enough, Holm-corrected over all pairings of the
            board by this criterion; NaN without a verdict.
        incomplete: Why the rates are hidden (a run is not finished, or too many verdicts are missing); empty if they are shown.
        people: Estimated win rate according to people, with ties and `none` as half: the judge's rate, corrected with human
            labels. None if fewer than two clusters are labeled, or ties do not count half.
    """

    criterion: str
    method: str
    opponent: str
    rate: WinRate
    unscorable: int = 0
    pending: int = 0
    corrected: float = math.nan
    incomplete: str = ""
    people: PredictionPowered | None = None

    @property
    def corrected_by_people(self) -> bool:
        """Return whether significance refers to human preferences, because enough pairs are labeled; otherwise it refers to
        this judge only.
        """
        return self.people is not None and not math.isnan(self.people.corrected.low)

    @property
    def share(self) -> Estimate:
        """Return the win rate that is tested: `people` if enough pairs are labeled, else `with_ties`."""
        return (
            self.people.corrected if self.people is not None and self.corrected_by_people and not self.incomplete else self.shown.with_ties
        )

    @property
    def won(self) -> bool | None:
        """Return True if the method wins significantly, False if it loses significantly, None if neither."""
        if self.people is not None and self.corrected_by_people:
            ahead = self.people.corrected.value > 0.5
            return ahead if self.corrected <= 1 - LEVEL and not self.incomplete else None
        return self.rate.wins > self.rate.losses if self.corrected <= 1 - LEVEL and not self.incomplete else None

    @property
    def shown(self) -> WinRate:
        """Return the win rate for display; its numbers are NaN if too many verdicts are missing."""
        if not self.incomplete:
            return self.rate
        rates = ("decided", "with_ties", "with_ties_opponent")
        nothing = {name: replace(getattr(self.rate, name), value=math.nan, low=math.nan, high=math.nan) for name in rates}
        return replace(self.rate, **nothing, p=math.nan)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Return `with_ties` with missing verdicts counted as lost, and as won; None if no verdict is missing."""
        return (self.rate.with_ties_failures_zero.value, self.rate.with_ties_failures_one.value) if self.rate.unscored else None


@dataclass(frozen=True, slots=True)
class BattleBoard:
    """Win rates and strengths of the methods on one board, according to one pair judge.

    Attributes:
        judge: Id of the judge.
        rule: Whether rules judged instead of a model.
        dataset, setting, seed: Dataset, retrieval setting and seed of the board.
        questions: Number of questions in the dataset.
        pairings: Win rates, sorted by criterion, then method.
        strengths: By criterion, (method, Bradley–Terry strength) pairs, strongest first; only with at least three methods and
            if no rate is hidden.
        controls: Method ids of the board's controls, by name.
        corrected: Criteria whose strengths are corrected by people's labels.
        doubts: Why a method's answers say little about it, by its name: (`CONTAMINATED` or `IMPLAUSIBLE`, sentences) pairs. Its
            rates are kept, because a judge compared these answers.
    """

    judge: str
    rule: bool
    dataset: str
    setting: str
    seed: int
    questions: int
    pairings: tuple[Pairing, ...]
    strengths: dict[str, tuple[tuple[str, Strength], ...]]
    controls: dict[str, str] = field(default_factory=dict)
    corrected: frozenset[str] = frozenset()
    doubts: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)

    def basis(self, criterion: str) -> str:
        """Return whose preferences the stars of a criterion refer to: this judge's, or people's."""
        if self.rule:
            return "for these rules only"
        known = [pairing.corrected_by_people for pairing in self.pairings if pairing.criterion == criterion]
        return "corrected by people's labels" if known and all(known) else THIS_JUDGE_ONLY

    def to_json(self) -> dict[str, Any]:
        """Return the board as a JSON object; rates are fractions, None means "no value"."""
        value = {
            **{name: getattr(self, name) for name in ("judge", "rule", "dataset", "setting", "seed", "questions")},
            "pairings": [
                {
                    **_names(pairing),
                    "n": pairing.rate.n,
                    "flip_rate": pairing.rate.flips.rate,
                    **asdict(pairing.shown),
                    "unscorable": pairing.unscorable,
                    "pending": pairing.pending,
                    "corrected": pairing.corrected,
                    **({"incomplete": pairing.incomplete} if pairing.incomplete else {}),
                    "people": None if pairing.people is None else asdict(pairing.people),
                    "corrected_by_people": pairing.corrected_by_people,
                }
                for pairing in self.pairings
            ],
            "strengths": {
                criterion: [{"method": name, "elo": strength.elo, **asdict(strength)} for name, strength in rows]
                for criterion, rows in self.strengths.items()
            },
            "basis": {criterion: self.basis(criterion) for criterion in dict.fromkeys(pairing.criterion for pairing in self.pairings)},
            "strengths_corrected_by_people": sorted(self.corrected),
            "doubts": {name: dict(why) for name, why in self.doubts.items()},
        }
        return dict(plain(value))


def _names(item: Pairing) -> dict[str, str]:
    return {"criterion": item.criterion, "method": item.method, "opponent": item.opponent}


def battle_boards(
    store: Store,
    runs: Sequence[RunRow],
    reference: str | None = None,
    *,
    ties: TieRule = "half",
    length: bool = False,
    judge: str | None = None,
) -> list[BattleBoard]:
    """Read the win rates by every pair judge that compared any of these runs; one board per repeat, since repeats are not compared.

    Args:
        store: The store to read.
        runs: The runs.
        reference: Name of the method to compare the others with.
        ties: How a tied question counts.
        length: Whether to adjust strengths for the length of answers.
        judge: Id of a judge; None reads all judges.
    """
    if not store.database.exists:
        return []
    cards = judgments.judges(store)
    fought = judgments.matches(store, judge)
    results = []
    for group in (part for repeats in groups(runs, seeds_apart=True) for part in _by_repeat(repeats)):
        here = {run.run for run in group}
        met: dict[str, set[str]] = {}
        for by, match in fought:
            if {match.one, match.other} <= here:
                met.setdefault(by, set()).update((match.one, match.other))
        for by, ids in met.items():
            judged = [run for run in group if run.run in ids]
            results.append(_board(store, judged, run_labels(judged), by, cards[by], reference, ties, length))
    return results


def _by_repeat(group: Sequence[RunRow]) -> Iterator[list[RunRow]]:
    """Yield the runs of each repeat, with the first runs of methods with fewer repeats."""
    for repeat in dict.fromkeys(repeat_of(run.method) for run in group):
        there = {first_name(run.method) for run in group if repeat_of(run.method) == repeat}
        yield [run for run in group if repeat_of(run.method) == (repeat if first_name(run.method) in there else 0)]


def _board(
    store: Store,
    group: Sequence[RunRow],
    names: dict[str, str],
    judge: str,
    card: Mapping[str, Any],
    reference: str | None,
    ties: TieRule,
    length: bool,
) -> BattleBoard:
    first = group[0]
    requests = answer_queries.questions(store, first.dataset_fingerprint)
    position = {row.question: number for number, row in enumerate(requests)}
    with store.database.reading() as connection:
        experiments = {run.experiment for run in group}
        most = max_unscored(connection, experiments)
        data = first.dataset_fingerprint
        clusters = score_queries.sampled_by_data(store, {data: list(names)}, experiments)[data].labels
    rows = [
        battle
        for battle in judgments.battles(store, first.dataset_fingerprint, first.setting, judge)
        if {battle.one, battle.other} <= names.keys()
    ]
    order = {run.run: number for number, run in enumerate(group)}
    unfinished = {
        run.run: f"{INCOMPLETE}: {run.method} is {run.status}, {run.done:,} of {run.questions:,} questions answered"
        for run in group
        if run.status != FINISHED
    }
    base = next((run.run for run in group if first_name(run.method) == reference), None)
    pairings: list[Pairing] = []
    strengths = {}
    rectified: set[str] = set()
    cards, checkpoints = provenance.cards(store), known_checkpoints(store)
    lengths = answer_queries.answer_lengths(store, list(names))
    answered: dict[str, set[str]] = {run: set() for run in names}
    for run, question in lengths:
        answered[run].add(question)
    for criterion in card["criteria"]:
        responses = [battle for battle in rows if battle.criterion == criterion]
        chosen = [battle for battle in responses if not battle.unscorable]
        if not chosen:
            continue
        judged = {(b.question, b.one, b.other) for b in responses}
        missing = Counter((b.one, b.other) for b in responses if b.unscorable)
        pairs = sorted({(b.one, b.other) for b in chosen}, key=lambda pair: (order[pair[0]], order[pair[1]]))
        named = [(b, a) if a == base or (b != base and order[b] < order[a]) else (a, b) for a, b in pairs]
        code = {pair: number for number, pair in enumerate(pairs)}
        verdicts = np.array([(_AS_ONE if named[code[b.one, b.other]][0] == b.one else _AS_OTHER)[b.verdict] for b in chosen])
        rates = win_rates(
            [code[b.one, b.other] for b in chosen],
            [position[b.question] for b in chosen],
            [int(b.part != AS_GIVEN) for b in chosen],
            [b.repetition for b in chosen],
            verdicts,
            ties=ties,
            clusters=clusters,
        )
        humans = _people(store, criterion, names)
        people = [
            _with_people(humans, pair, turned=pair[0] != a, verdicts=verdicts, battles=chosen, clusters=clusters, position=position)
            if ties == "half" else None
            for (a, _), pair in zip(named, pairs, strict=True)
        ]  # fmt: skip
        alone = [rate.p if one is None or math.isnan(one.p(0.5)) else one.p(0.5) for rate, one in zip(rates, people, strict=True)]
        # A pair with insufficient data counts as tested and not significant.
        tested = holm([1.0 if math.isnan(p) and rate.n else p for rate, p in zip(rates, alone, strict=True)])
        corrected = [math.nan if math.isnan(one) else p for one, p in zip(alone, tested, strict=True)]
        for (a, b), pair, rate, p, one in zip(named, pairs, rates, corrected, people, strict=True):
            both = answered[a] & answered[b]
            pending = sum((question, *pair) not in judged for question in both)
            scorable = rate.n + rate.unscored
            incomplete = why_incomplete(Missing(rate.unscored, rate.unscored == scorable), scorable, most)
            incomplete = next((unfinished[run] for run in (a, b) if run in unfinished), incomplete)
            pairings.append(Pairing(criterion, names[a], names[b], rate, missing[pair], pending, p, incomplete, one))
        known = not any(pairing.incomplete for pairing in pairings if pairing.criterion == criterion)
        if known and len({run for pair in pairs for run in pair}) >= STRENGTHS_FROM:
            # One label in many pairs is enough for strengths, if they are of enough questions.
            labeled = {query for query, one, other in humans if (one, other) in code}
            doubted = any(one is not None and one.corrected.n >= ENOUGH_LABELS and math.isnan(one.corrected.low) for one in people)
            enough = ties == "half" and not doubted and _clusters_of(labeled, position, clusters) >= ENOUGH_LABELS
            rectified |= {criterion} if enough else set()
            strengths[criterion] = _strengths(chosen, names, position, clusters, lengths if length else None, humans if enough else None)
    return BattleBoard(
        judge,
        bool(card["rule"]),
        first.dataset,
        first.setting,
        first.seed,
        len(requests),
        tuple(pairings),
        strengths,
        {names[run.run]: run.method_id for run in group if run.kind == "control"},
        frozenset(rectified),
        {names[run.run]: why for run in group if (why := tuple(_doubts(run, cards, checkpoints)))},
    )


def _doubts(run: RunRow, cards: Cards, known: Checkpoints) -> Iterator[tuple[str, str]]:
    if read := contaminated_by(run, cards, known):
        yield CONTAMINATED, "; ".join(read)
    if signs := implausible(run):
        yield IMPLAUSIBLE, "; ".join(signs) + "; accepted by a maintainer" * accepted(run)


Humans = Mapping[tuple[str, str, str], float]
"""Share of the win that human labels give the first method, by question and both runs."""


def _people(store: Store, criterion: str, names: Mapping[str, str]) -> Humans:
    """Return the mean human label of each pair."""
    values: dict[tuple[str, str, str], list[float]] = {}
    for label in labeling.labels(store, criterion):
        if label.other is not None and {label.one, label.other} <= names.keys():
            values.setdefault((label.question, label.one, label.other), []).append(_SHARES[label.label])
    return {item: float(np.mean(each)) for item, each in values.items()}


def _clusters_of(questions: Iterable[str], position: Mapping[str, int], clusters: Sequence[str] | None) -> int:
    """Count the clusters of questions."""
    return len({query if clusters is None else clusters[position[query]] for query in questions})


def _with_people(
    humans: Humans,
    pair: tuple[str, str],
    *,
    turned: bool,
    verdicts: NDArray[np.int64],
    battles: Sequence[Battle],
    clusters: Sequence[str] | None,
    position: Mapping[str, int],
) -> PredictionPowered | None:
    """Return the win share of one pair according to people; None if too few clusters are labeled."""
    mine = [(battle.question, verdict) for battle, verdict in zip(battles, verdicts, strict=True) if (battle.one, battle.other) == pair]
    queries_of = list(dict.fromkeys(question for question, _ in mine))
    codes = {question: number for number, question in enumerate(queries_of)}
    rows = np.array([codes[question] for question, _ in mine], dtype=np.int64)
    states = question_states(np.zeros_like(rows), rows, np.array([int(verdict) for _, verdict in mine]), 1, len(codes))[0]
    judged = _STATES[states]
    human = np.array([humans.get((question, *pair), math.nan) for question in queries_of])
    labeled = [question for question, value, known in zip(queries_of, human, judged, strict=True) if not math.isnan(value + known)]
    if _clusters_of(labeled, position, clusters) < 2:
        return None
    cluster_of = None if clusters is None else [clusters[position[question]] for question in queries_of]
    return prediction_powered_mean(judged, 1 - human if turned else human, clusters=cluster_of)


def _strengths(
    battles: Sequence[Battle],
    names: dict[str, str],
    position: dict[str, int],
    clusters: Sequence[str] | None,
    lengths: dict[tuple[str, str], int] | None,
    humans: Humans | None,
) -> tuple[tuple[str, Strength], ...]:
    code = {run: number for number, run in enumerate(names)}
    score = _SCORES[np.array([_AS_ONE[battle.verdict] for battle in battles])]
    compared: tuple[NDArray[Any], NDArray[Any]] | None = None
    if lengths is not None:
        compared = (np.array([lengths[b.one, b.question] for b in battles]), np.array([lengths[b.other, b.question] for b in battles]))
    fitted: BradleyTerry = bradley_terry(
        [code[b.one] for b in battles],
        [code[b.other] for b in battles],
        [position[b.question] for b in battles],
        score,
        methods=len(code),
        shown_first=[b.part == AS_GIVEN for b in battles],
        lengths=compared,
        labels=None if humans is None else [humans.get((b.question, b.one, b.other), math.nan) for b in battles],
        clusters=clusters,
    )
    results = [(name, strength) for name, strength in zip(names.values(), fitted.strengths, strict=True) if strength.battles]
    return tuple(sorted(results, key=lambda row: -row[1].logit.value))


# A pair judge's ranking of a board's controls, by the tests of all pairs that mark its win rates.
# The expected ranks are those of `flags`: no method is above the gold answer, and empty or wrong
# answers are below the methods.


_METHOD = ""
"""Placeholder for the id of methods that are not controls."""
_LEVELS = {BEST: 2, _METHOD: 1, NO_ANSWER: 0, **dict.fromkeys(WORTHLESS, 0)}


@dataclass(frozen=True, slots=True)
class Placed:
    """Check of a judge with a control: methods that the control must beat (gold answer) or lose to (bad answers).

    Attributes:
        control: Name of the control.
        above: Whether it must rank above them (the gold answer) or below.
        right: Methods from which it differs significantly in the expected direction.
        level: Methods from which it does not differ significantly.
        wrong: Methods from which it differs significantly in the wrong direction.
    """

    control: str
    above: bool
    right: tuple[str, ...]
    level: tuple[str, ...]
    wrong: tuple[str, ...]

    @property
    def rivals(self) -> int:
        """Return the number of methods that the control was compared with."""
        return len(self.right) + len(self.level) + len(self.wrong)


def placed(board: BattleBoard, criterion: str) -> list[Placed]:
    """Check each control with an expected rank against the methods that it was compared with.

    Args:
        board: The judge's win rates.
        criterion: The criterion of the comparison.
    """
    decided: dict[str, dict[str, bool | None]] = {}
    for pairing in board.pairings:
        if pairing.criterion == criterion and pairing.rate.n:
            decided.setdefault(pairing.method, {})[pairing.opponent] = pairing.won
            decided.setdefault(pairing.opponent, {})[pairing.method] = None if pairing.won is None else not pairing.won
    results = []
    for control in board.controls:
        met = {rival: won for rival, won in decided.get(control, {}).items() if _above(control, rival, board) is not None}
        if met:
            above = board.controls[control] == BEST
            right = tuple(rival for rival, won in met.items() if won is above)
            level = tuple(rival for rival, won in met.items() if won is None)
            wrong = tuple(rival for rival, won in met.items() if won is (not above))
            results.append(Placed(control, above, right, level, wrong))
    return results


def not_placed(board: BattleBoard, criterion: str) -> list[str]:
    """List the compared controls that `placed` cannot check."""
    known = {item.control for item in placed(board, criterion)}
    met = {name for pairing in board.pairings if pairing.criterion == criterion for name in (pairing.method, pairing.opponent)}
    return [control for control in board.controls if control in met - known]


def misplaced(board: BattleBoard, criterion: str) -> dict[str, tuple[str, ...]]:
    """List pairs that the judge decides significantly in the wrong direction: by winner, the methods or controls that it must not beat.

    Each pair occurs once.
    """
    results: dict[str, dict[str, None]] = {}
    for item in placed(board, criterion):
        for rival in item.wrong:
            winner, loser = (rival, item.control) if item.above else (item.control, rival)
            results.setdefault(winner, {})[loser] = None
    return {winner: tuple(losers) for winner, losers in results.items()}


def _above(control: str, rival: str, board: BattleBoard) -> bool | None:
    """Return whether a control must rank above a rival; None if no order is expected."""
    kinds = board.controls.get(control, _METHOD), board.controls.get(rival, _METHOD)
    # The expected rank of a whole passage is known only relative to the gold answer.
    if not all(kind in _LEVELS for kind in kinds) or (NO_ANSWER in kinds and BEST not in kinds):
        return None
    item, other = (_LEVELS[kind] for kind in kinds)
    return None if item == other else item > other
