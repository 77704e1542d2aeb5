"""Measure how reliable a judge is: failures, repetitions, order, length, price, speed, and agreement with others.

All values are computed from the store; no call is made.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from judges.judge import AS_GIVEN, NONE, TIE, JudgeCall, Score
from results.boards.markup import plain
from results.judging import judgments, labels
from results.judging.judgments import ONE, OTHER, Battle
from results.judging.labels import Label
from results.statistics.battles import Verdict
from results.statistics.core import Estimate
from results.statistics.judges import (
    Agreement,
    Difference,
    LengthPreference,
    RepetitionVariance,
    battle_repetition_variance,
    cohen_kappa,
    first_shown_preference,
    length_preference,
    order_flip_rate,
    repetition_variance,
)
from results.statistics.prediction_powered import PredictionPowered, prediction_powered_mean
from results.store import answer_queries, queries, score_queries
from results.store.redaction import without_secrets
from results.store.store import Store

Item = tuple[str, str, str | None]
"""Question and one run, or two: an item for a judge and a person."""
_VERDICTS = {ONE: Verdict.WIN, OTHER: Verdict.LOSS, TIE: Verdict.TIE, NONE: Verdict.NONE, None: Verdict.UNSCORED}
_SCORES = np.array([0.0, 0.5, 1.0, math.nan, math.nan])


@dataclass(frozen=True, slots=True)
class Work:
    """Number, failures, time and cost of a judge's calls.

    Attributes:
        calls: Number of model calls.
        unscored: Number of calls without a usable verdict, by reason, most frequent first; quotations and numbers in reasons
            are masked.
        seconds: Mean seconds per call.
        prompt_tokens, completion_tokens: Mean tokens per call.
        cost_usd: Cost of all calls, in US dollars.
        models: Number of calls by the model name that the endpoint reported.
    """

    calls: int
    unscored: dict[str, int]
    seconds: float
    prompt_tokens: float
    completion_tokens: float
    cost_usd: float
    models: dict[str, int]

    @property
    def failure_rate(self) -> float:
        """Return the share of calls without a usable verdict; NaN without calls."""
        return sum(self.unscored.values()) / self.calls if self.calls else math.nan


@dataclass(frozen=True, slots=True)
class Corrected:
    """A run's mean on a judged measure, corrected with human labels of some of its answers (prediction-powered inference)."""

    run: str
    measure: str
    mean: PredictionPowered


@dataclass(frozen=True, slots=True)
class JudgeCard:
    """Measured properties of a judge.

    Attributes:
        card: The judge's registration: id, model, prompts, options.
        work: Number of calls, failures, cost and speed.
        repetitions: By measure or criterion, variance of its verdicts on the same item when asked again.
        flips: By criterion of a pair judge, rate at which the two presentation orders give contradicting verdicts.
        first_shown: By criterion, share of decisive verdicts for the answer shown first; ½ without a preference.
        longer: By criterion, preference for longer answers.
        with_judges: By measure or criterion, agreement with other judges of the same items, by their ids.
        with_people: By measure or criterion, agreement with each human annotator.
        between_people: By measure or criterion, agreement of the annotators with each other.
        corrected: Means of the runs on boards corrected with human labels, if a run has at least two.
    """

    card: Mapping[str, Any]
    work: Work
    repetitions: dict[str, RepetitionVariance]
    flips: dict[str, Estimate]
    first_shown: dict[str, Estimate]
    longer: dict[str, LengthPreference]
    with_judges: dict[str, dict[str, Agreement]]
    with_people: dict[str, dict[str, Agreement]]
    between_people: dict[str, Agreement]
    corrected: list[Corrected]

    def to_json(self) -> dict[str, Any]:
        """Return the card as a JSON object."""
        return dict(plain(asdict(self) | {"failure_rate": self.work.failure_rate}))


def judge_card(store: Store, judge: str) -> JudgeCard:
    """Compute the measured properties of a judge from its stored verdicts.

    Args:
        store: The store to read.
        judge: Id of a stored judge.
    """
    cards = judgments.judges(store)
    card = cards[judge]
    people = labels.labels(store)
    if card["kind"] == "pair":
        return _pair_card(store, card, cards, people)
    return _point_card(store, card, cards, people)


def _point_card(store: Store, card: Mapping[str, Any], cards: Mapping[str, Mapping[str, Any]], people: Sequence[Label]) -> JudgeCard:
    runs = judgments.judged_runs(store, card["id"])
    calls = {run: judgments.calls(store, run, card["id"]) for run in runs}
    every = [call for of_run in calls.values() for made in of_run.values() for call in made]
    names = [measure["name"] for measure in card["measures"]]
    values = _point_values(store, card["id"], runs, names)
    cluster_of = clusters_of(store, runs)
    others = {
        other: _point_values(store, other, judgments.judged_runs(store, other), names)
        for other, result in cards.items()
        if other != card["id"] and result["kind"] == "point" and {m["name"] for m in result["measures"]} & set(names)
    }
    on_boards = {run.run for run in queries.runs(store)}
    corrected = [
        Corrected(run, name, mean)
        for name in names
        for run in runs
        if run in on_boards and (mean := _corrected(store, run, values[name], [person for person in people if person.criterion == name]))
    ]
    return JudgeCard(
        card,
        _work(every),
        _point_repetitions(calls, cluster_of),
        {},
        {},
        {},
        {name: _with_judges(values[name], {other: result[name] for other, result in others.items()}, cluster_of) for name in names},
        {name: _with_people(values[name], people, name, cluster_of) for name in names},
        between_people(store, [label for label in people if label.criterion in names]),
        corrected,
    )


def _pair_card(store: Store, card: Mapping[str, Any], cards: Mapping[str, Mapping[str, Any]], people: Sequence[Label]) -> JudgeCard:
    fought = [match for _, match in judgments.matches(store, card["id"])]
    every = [call for match in fought for made in judgments.calls(store, match, card["id"]).values() for call in made]
    battles = _battles(store, card["id"])
    criteria = [name for name in card["criteria"] if any(battle.criterion == name for battle in battles)]
    by = {name: [battle for battle in battles if battle.criterion == name] for name in criteria}
    values = {name: _pair_values(by[name]) for name in criteria}
    others = {other: _battles(store, other) for other, results in cards.items() if other != card["id"] and results["kind"] == "pair"}
    runs = {run for battle in battles for run in (battle.one, battle.other)}
    lengths, cluster_of = answer_queries.answer_lengths(store, sorted(runs)), clusters_of(store, sorted(runs))
    apart = {name: _of_questions(by[name], cluster_of) for name in criteria}
    columns = {name: _columns(by[name]) for name in criteria}
    return JudgeCard(
        card,
        _work(every),
        {name: battle_repetition_variance(*columns[name], clusters=apart[name]) for name in criteria},
        {name: order_flip_rate(*columns[name], clusters=apart[name]) for name in criteria},
        {name: first_shown_preference(*columns[name], clusters=apart[name]) for name in criteria},
        {name: results for name in criteria if (results := _longer(by[name], lengths, apart[name]))},
        {
            name: _with_judges(
                values[name],
                {other: _pair_values([b for b in results if b.criterion == name]) for other, results in others.items()},
                cluster_of,
            )
            for name in criteria
        },
        {name: _with_people(values[name], people, name, cluster_of) for name in criteria},
        between_people(store, [label for label in people if label.criterion in criteria]),
        [],
    )


def _point_values(store: Store, judge: str, runs: Sequence[str], names: Sequence[str]) -> dict[str, dict[Item, float]]:
    """Return, by measure, the value of every item with one."""
    results: dict[str, dict[Item, float]] = {name: {} for name in names}
    for run in runs:
        for question, scores in judgments.scores(store, run, judge).items():
            for name in names:
                value = scores.get(name, Score(None)).value
                if value is not None:
                    results[name][question, run, None] = value
    return results


def _point_repetitions(
    calls: Mapping[str, Mapping[str, Sequence[JudgeCall]]], cluster_of: Mapping[str, str]
) -> dict[str, RepetitionVariance]:
    """Return, by part of the judge, how much replies to the same prompt differ; parts without repetitions are omitted."""
    responses: dict[str, list[tuple[Item, str | None]]] = {}
    repeated = set()
    for run, of_run in calls.items():
        for question, made in of_run.items():
            for call in made:
                value = call.parsed.value
                responses.setdefault(call.part, []).append(((question, run, None), None if value is None else repr(sorted(value.items()))))
                if call.repetition:
                    repeated.add(call.part)
    return {part: _repetitions(rows, cluster_of) for part, rows in responses.items() if part in repeated}


def _repetitions(rows: Sequence[tuple[Item, str | None]], cluster_of: Mapping[str, str]) -> RepetitionVariance:
    items = {item: number for number, item in enumerate(dict.fromkeys(item for item, _ in rows))}
    kinds = {text: number for number, text in enumerate(dict.fromkeys(text for _, text in rows if text is not None))}
    codes = [math.nan if text is None else kinds[text] for _, text in rows]
    return repetition_variance([items[item] for item, _ in rows], codes, clusters=[cluster_of.get(item[0], item[0]) for item in items])


def _corrected(store: Store, run: str, values: Mapping[Item, float], people: Sequence[Label]) -> PredictionPowered | None:
    mine = {item: value for item, value in values.items() if item[1] == run}
    responses: dict[Item, list[float]] = {}
    for label in people:
        responses.setdefault((label.question, label.one, label.other), []).append(label.value)
    human = np.array([float(np.mean(responses[item])) if item in responses else math.nan for item in mine])
    cluster_of = clusters_of(store, [run])
    clusters = [cluster_of.get(question, question) for question, _, _ in mine]
    if len({cluster for cluster, labeled in zip(clusters, ~np.isnan(human), strict=True) if labeled}) < 2:
        return None
    return prediction_powered_mean(list(mine.values()), human, clusters=clusters)


def clusters_of(store: Store, runs: Sequence[str]) -> dict[str, str]:
    """Return the cluster of each question of these runs; empty if every question is its own cluster."""
    results: dict[str, str] = {}
    by_data: dict[str, list[str]] = {}
    with store.database.reading() as connection:
        rows = connection.execute("SELECT run, dataset_fingerprint FROM runs WHERE list_contains(?, run)", [list(runs)]).fetchall()
        for run, data in rows:
            by_data.setdefault(data, []).append(run)
        sampled = score_queries.sampled_by_data(store, by_data)
        for data, of_data in sampled.items():
            if of_data.labels is not None:
                query = "SELECT question FROM questions WHERE dataset_fingerprint = ? ORDER BY position"
                ids = connection.execute(query, [data]).fetchall()
                results |= {question: f"{data} {cluster}" for (question,), cluster in zip(ids, of_data.labels, strict=True)}
    return results


def _battles(store: Store, judge: str) -> list[Battle]:
    boards = dict.fromkeys((m.dataset_fingerprint, m.setting) for _, m in judgments.matches(store, judge))
    return [battle for data, setting in boards for battle in judgments.battles(store, data, setting, judge) if not battle.unscorable]


def _columns(battles: Sequence[Battle]) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    pairs = _codes([(b.one, b.other) for b in battles])
    return (
        pairs,
        _codes([b.question for b in battles]),
        [int(b.part != AS_GIVEN) for b in battles],
        [b.repetition for b in battles],
        [_VERDICTS[b.verdict] for b in battles],
    )


def _codes(values: Sequence[Any]) -> list[int]:
    known = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return [known[value] for value in values]


def _pair_values(battles: Sequence[Battle]) -> dict[Item, float]:
    """Return a judge's verdict on each pair over all orders and repetitions, coded like human labels."""
    responses: dict[Item, list[Battle]] = {}
    for battle in battles:
        responses.setdefault((battle.question, battle.one, battle.other), []).append(battle)
    results = {}
    for item, rows in responses.items():
        verdicts = [battle.verdict for battle in rows if battle.verdict is not None]
        scores = [_SCORES[_VERDICTS[verdict]] for verdict in verdicts if verdict != NONE]
        if scores:
            mean = float(np.mean(scores))
            results[item] = labels.CODES[ONE if mean > 0.5 else OTHER if mean < 0.5 else TIE]
        elif verdicts:
            results[item] = labels.CODES[NONE]
    return results


def _longer(battles: Sequence[Battle], lengths: Mapping[tuple[str, str], int], clusters: Sequence[str | None]) -> LengthPreference | None:
    scores = [float(_SCORES[_VERDICTS[battle.verdict]]) for battle in battles]
    if all(math.isnan(score) for score in scores):
        return None
    code = {run: number for number, run in enumerate(dict.fromkeys(r for b in battles for r in (b.one, b.other)))}
    return length_preference(
        [code[b.one] for b in battles],
        [code[b.other] for b in battles],
        _codes([b.question for b in battles]),
        scores,
        ([lengths[b.one, b.question] for b in battles], [lengths[b.other, b.question] for b in battles]),
        shown_first=[b.part == AS_GIVEN for b in battles],
        clusters=clusters,
    )


def _of_questions(battles: Sequence[Battle], cluster_of: Mapping[str, str]) -> list[str | None]:
    """Return the cluster of each question, by the codes of `_codes`."""
    return [cluster_of.get(question) for question in dict.fromkeys(battle.question for battle in battles)]


def _work(calls: Sequence[JudgeCall]) -> Work:
    requests = [call for call in calls if call.key is not None or call.parsed.value is None]
    number = max(1, len(requests))
    reasons = Counter(_kind(call.parsed.unscored) for call in requests if call.parsed.unscored)
    return Work(
        len(requests),
        dict(reasons.most_common()),
        sum(call.seconds for call in requests) / number,
        sum(call.prompt_tokens for call in requests) / number,
        sum(call.completion_tokens for call in requests) / number,
        sum(call.cost_usd for call in requests),
        dict(Counter(call.model for call in requests).most_common()),
    )


def _kind(reason: str) -> str:
    """Return a reason without reply-specific quotations and numbers."""
    return re.sub(r"\d[\d.,]*", "…", re.split(r":?\s*[\"']", without_secrets(reason))[0])


def _with_judges(
    mine: Mapping[Item, float], others: Mapping[str, Mapping[Item, float]], cluster_of: Mapping[str, str]
) -> dict[str, Agreement]:
    return {judge: _kappa(mine, theirs, cluster_of) for judge, theirs in others.items() if mine.keys() & theirs.keys()}


def _with_people(
    mine: Mapping[Item, float], people: Sequence[Label], criterion: str, cluster_of: Mapping[str, str]
) -> dict[str, Agreement]:
    results: dict[str, dict[Item, float]] = {}
    for label in people:
        if label.criterion == criterion:
            results.setdefault(label.annotator, {})[label.question, label.one, label.other] = label.value
    return {name: _kappa(mine, theirs, cluster_of) for name, theirs in results.items() if mine.keys() & theirs.keys()}


def _kappa(mine: Mapping[Item, float], theirs: Mapping[Item, float], cluster_of: Mapping[str, str]) -> Agreement:
    both = [item for item in mine if item in theirs]
    clusters = [cluster_of.get(item[0], item[0]) for item in both]
    # Labels of pairs are categories, those of single answers numbers.
    difference: Difference = "nominal" if any(other is not None for _, _, other in both) else "interval"
    return cohen_kappa([mine[item] for item in both], [theirs[item] for item in both], difference=difference, clusters=clusters)


def between_people(store: Store, people: Sequence[Label]) -> dict[str, Agreement]:
    """Compute the agreement between annotators by criterion, with intervals over the clusters of the questions.

    Args:
        store: The store that holds the labels.
        people: The labels.
    """
    if not people:
        return {}
    return labels.between_annotators(people, clusters_of(store, sorted({label.one for label in people})))
