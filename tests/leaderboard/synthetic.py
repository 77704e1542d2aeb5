"""A store with synthetic results for tests of pages. Never shown as a result.

It has several methods, controls, a run in progress, failures, unscorable questions, and names and answers that try to
be markup.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np

from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference, DatasetCard
from benchmarks.schema import Passage, Question, passage_id, sentence_id
from judges.metric import Metric, MetricEntry
from methods.api import FAILED, Evidence, Prediction, Usage
from results.store.store import FINISHED, RUNNING, Run, Store

HOSTILE_NAME = "<script>window.pwned=1</script>![x](https://evil.example/x.png)[link](javascript:alert(1)) :smile: $x^2$"
HOSTILE_ANSWER = "<img src=x onerror=\"window.pwned=1\"> **bold** :red[red] =cmd|' /C calc'!A0"
HOSTILE_TITLE = "</textarea><svg/onload=window.pwned=1>"
EXPERIMENT = "made-up"
REFERENCE = "bm25"

_SUPPLIED = ["Aldra", "Bem", "Corvane", "Dessin", "Eluna", "Farrow", "Ghent", "Halia", "Ivo", "Jessamy"]
_FAMILY = ["Marrow", "Quill", "Tarn", "Vesper", "Wold", "Yarrow", "Zennor", "Ashby"]
_TOWNS = ["Ostrava-by-Sea", "Lindmoor", "Karst", "Velmouth", "Tolland", "Perrin"]

# name, id, kind, skill, mean prompt tokens, seconds, price a question
_METHODS = [
    ("bm25", "bm25", "retriever", 0.52, 0, 0.0021, 0.0),
    ("dense", "dense", "retriever", 0.57, 0, 0.0142, 0.0),
    ("hybrid", "hybrid", "retriever", 0.71, 0, 0.0163, 0.0),
    ("hybrid + chat reader", "pipeline", "method", 0.83, 1840, 1.24, 0.00042),
    ("closed book", "closed_book", "method", 0.24, 74, 0.61, 0.00006),
    (HOSTILE_NAME, "plug-in", "method", 0.45, 310, 0.2, 0.0),
    ("full context", "full_context", "method", 0.66, 6120, 2.9, 0.0011),
    ("gold answer", "gold_answer", "control", 1.0, 0, 0.0, 0.0),
    ("oracle evidence", "oracle", "control", 0.9, 420, 0.4, 0.0),
]


def metric(identifier: str, definition: str, group: str, *, high: float | None = 1.0, better: bool = True) -> Metric:
    """Return a metric that is only listed and never computed."""

    class Fixed(Metric):
        def __str__(self) -> str:
            return identifier

    entry = MetricEntry(identifier, 1, definition, lambda batch: np.zeros(len(batch)), (), 0.0, high, better, ("answer",), "made up", group)
    return Fixed(entry, {})


METRICS = [
    metric("em#v2", "1 where the normalized answer equals a normalized gold, else 0; best over golds.", "answer"),
    metric("f1(rules=hotpotqa)#v2", "Overlap of tokens <b>after</b> normalization; best over golds.", "answer"),
    metric("recall@5#v2", "Share of the positives that are within the first 5.", "retrieval"),
    metric("hit@5#v2", "1 where any positive is within the first 5.", "retrieval"),
    metric("perplexity#v1", "Mean of exp(mean NLL).", "text", high=None, better=False),
]


def benchmark(count: int, seed: int = 7) -> Benchmark:
    """Return fictional two-hop and comparison questions over a small corpus; the gold of question 3 normalizes to nothing."""
    rng = random.Random(seed)
    people = [f"{value} {family}" for value in _SUPPLIED for family in _FAMILY]
    rng.shuffle(people)
    passages, questions = [], []
    for number in range(count):
        person = people[number % len(people)]
        town, other = rng.sample(_TOWNS, 2)
        year = 1700 + number
        first = (
            f"{person} was a clockmaker of the {number + 1}th guild. ",
            f"In {year}, {person} moved to {town}. ",
            "The factory burned down twice.",
        )
        second = (f"{town} is a harbour town. ", f"Its mayor in {year} was {other} Ashgrove.")
        title = HOSTILE_TITLE if number == 1 else f"{person} (clockmaker {number})"
        pair = [
            Passage(passage_id(title, "".join(first)), title, "".join(first), first),
            Passage(passage_id(town, "".join(second)), town, "".join(second), second),
        ]
        passages += pair
        gold = "The" if number == 3 else f"{other} Ashgrove"
        bridge = number % 3 != 2
        questions.append(
            Question(
                id=f"q{number:04d}",
                text=f"Who was mayor of the town that {person} moved to in {year}?"
                if bridge
                else f"Which came first, the {number + 1}th guild or the mayor of {town}?",
                answers=(gold,),
                aliases={gold: (f"{other[0]}. Ashgrove",)},
                evidence=(pair[0].id, pair[1].id),
                supporting_facts=(sentence_id(pair[0].id, 1), sentence_id(pair[1].id, 1)),
                type="bridge" if bridge else "comparison",
            )
        )
    card = DatasetCard(
        title="Made-up worlds",
        task="multi-hop QA",
        description="for tests",
        hub_id=None,
        revision=None,
        license="CC0",
        citation="none",
        languages=("en",),
        splits={"test": count},
        metrics=("f1(rules=hotpotqa)", "em"),
        settings=("distractor",),
    )
    return Benchmark(DataReference("madeup", None, "test"), 1, card, questions, Corpus.of(passages))


def fill(folder: Path, *, count: int = 40, seed: int = 3) -> Store:
    """Fill a store with an experiment of nine runs on one benchmark and one of two runs on another setting."""
    store = Store(folder)
    world = benchmark(count)
    fingerprint = world.fingerprint
    store.put_benchmark(world, fingerprint)
    store.put_cards([], METRICS)
    runs = [_run(store, world, fingerprint, "distractor", number, *row, seed=seed) for number, row in enumerate(_METHODS)]
    again = [_run(store, world, fingerprint, "corpus", number, *row, seed=seed + 1) for number, row in enumerate(_METHODS[:2])]
    store.put_experiment("open corpus", "name: open corpus\n", None, None, "dense", again)
    # The last one stored is what pages open with.
    store.put_experiment(EXPERIMENT, "name: made-up\n", None, None, REFERENCE, runs)
    return store


def _run(
    store: Store,
    world: Benchmark,
    fingerprint: str,
    setting: str,
    number: int,
    name: str,
    method_id: str,
    kind: str,
    skill: float,
    prompt: int,
    seconds: float,
    price: float,
    *,
    seed: int,
) -> str:
    count = len(world.questions)
    run = f"{setting[:2]}{number:02d}".encode().hex().ljust(16, "0")
    store.start(
        Run(run, name, method_id, kind, {"id": method_id}, str(world.reference), fingerprint, setting, 0, count, {"machine": "none"})
    )
    # The same difficulty for all methods, so that paired differences are tighter than the intervals suggest.
    difficulty = np.random.default_rng(seed).random(count)
    rng = np.random.default_rng(seed * 100 + number)
    running = name == "full context"
    done = count // 3 if running else count
    predictions = []
    scores: dict[str, list[float]] = {str(m): [] for m in METRICS}
    ids = world.corpus.ids
    for row, question in enumerate(world.questions[:done]):
        right = bool(0.6 * difficulty[row] + 0.4 * rng.random() < skill)
        failed = name == "closed book" and row % 17 == 5
        answer = "" if failed else question.answers[0] if right else f"{_TOWNS[row % 6]} Ashgrove, perhaps"
        if name == HOSTILE_NAME and not right:
            answer = HOSTILE_ANSWER
        hits = sum(rng.random() < skill for _ in range(2)) if kind != "method" or "chat" in name else 0
        picked = list(question.evidence[:hits]) + [str(i) for i in rng.choice(ids, 4)]
        rng.shuffle(picked)
        ranked = (
            () if name == "closed book" else tuple(Evidence(i, round(12 - 1.7 * rank, 3)) for rank, i in enumerate(dict.fromkeys(picked)))
        )
        usage = Usage(
            prompt,
            12 if prompt else 0,
            0,
            1 if prompt else 0,
            {"retrieve": seconds * 0.2, "read": seconds * 0.8} if seconds else {},
            0,
            price,
        )
        predictions.append(Prediction(question.id, answer, ranked, usage, {FAILED: "timed out"} if failed else {}))
        unscorable = question.answers == ("The",)
        result = len({e.id for e in ranked[:5]} & set(question.evidence))
        scores["em#v2"].append(float("nan") if unscorable else float(right and not failed))
        scores["f1(rules=hotpotqa)#v2"].append(
            float("nan") if unscorable else 0.0 if failed else 1.0 if right else 0.5 * float(rng.random() < 0.5)
        )
        scores["recall@5#v2"].append(result / 2)
        scores["hit@5#v2"].append(float(result > 0))
        scores["perplexity#v1"].append(float(20 - 10 * skill + rng.random()))
    store.append(run, predictions, {name: np.array(values) for name, values in scores.items()}, list(world.corpus))
    store.end(run, RUNNING if running else FINISHED)
    return run


if __name__ == "__main__":
    fill(Path(sys.argv[1]), count=int(sys.argv[2]) if len(sys.argv) > 2 else 120)
