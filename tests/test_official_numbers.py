"""Native files through loader and metric, compared with the numbers of each dataset's own script.

Each script is restated here in a few lines that use no code of ragmeter. Predictions are variants of the gold on which evaluators
differ: golds on one line, on separate lines, repeated, in another wording, with other text, and none.
"""

from __future__ import annotations

import json
import random
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.registry import Benchmark, load
from benchmarks.schema import Question, passage_id
from judges.score import score
from methods.api import SUPPORT, TRIPLES, Prediction
from tests.support.worlds_native import write_native

Row = dict[str, Any]
Scores = dict[str, float | None]
"""Scores by metric; None if the script omits the question."""


def squad(text: str, articles: bool = True) -> str:
    text = "".join(character for character in text.lower() if character not in set(string.punctuation))
    return " ".join((re.sub(r"\b(a|an|the)\b", " ", text) if articles else text).split())


def harmonic(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def rog(golds: Sequence[str], text: str) -> Scores:
    lines = text.strip().split("\n") if text.strip() else []
    if not any(map(squad, golds)):
        return dict.fromkeys(("rog_f1", "rog_precision", "rog_recall", "rog_hit"))
    joined = squad(" ".join(lines))
    matched = sum(squad(gold) in joined for gold in golds) if lines else 0
    precision, recall = matched / max(len(lines), 1), matched / len(golds)
    return {"rog_f1": harmonic(precision, recall), "rog_precision": precision, "rog_recall": recall, "rog_hit": float(matched > 0)}


def webqsp(row: Row, text: str) -> Scores:
    marks = [parse["AnnotatorComment"] for parse in row["Parses"]]
    if not any(mark["QuestionQuality"] == "Good" and mark["ParseQuality"] == "Complete" for mark in marks):
        return {"webqsp_f1": None, "webqsp_accuracy": None}
    lines = text.split("\n") if text else []
    best = 0.0
    for parse in row["Parses"]:
        golds = [answer["AnswerArgument"] for answer in parse["Answers"]]
        if not golds or not lines:
            best = max(best, float(not golds and not lines))
            continue
        tp, fp = sum(gold in lines for gold in golds), sum(line not in golds for line in lines)
        best = max(best, harmonic(tp / (tp + fp) if tp else 0.0, tp / len(golds)))
    return {"webqsp_f1": best, "webqsp_accuracy": float(best == 1)}


def answer(golds: Sequence[str], text: str) -> tuple[float, float, float, float]:
    """Return EM, and precision, recall and F1 of the gold with the best F1."""
    best = (0.0, 0.0, 0.0)
    for gold in golds:
        response, wanted = squad(text), squad(gold)
        special = {"yes", "no", "noanswer"}
        if response != wanted and (response in special or wanted in special):
            continue
        same = (Counter(response.split()) & Counter(wanted.split())).total()
        precision, recall = (same / len(response.split()), same / len(wanted.split())) if same else (0.0, 0.0)
        best = max(best, (harmonic(precision, recall), precision, recall))
    return float(any(squad(text) == squad(gold) for gold in golds)), *best[1:], best[0]


def sets(matched: int, claims: int, golds: int, exact: bool) -> tuple[float, float, float, float]:
    precision, recall = matched / claims if claims else 0.0, min(matched / golds, 1.0)
    return float(exact), precision, recall, harmonic(precision, recall)


def ids_of(row: Row) -> list[list[str]]:
    """Return the ids of the parts of each triple, which some records lack."""
    return row["evidences_id"] or [["", "", ""]] * len(row["evidences"])


def two_wiki(row: Row, prediction: Prediction, names: dict[str, list[str]]) -> Scores:
    claimed = {tuple(squad(part, articles=False) for part in triple) for triple in prediction.notes[TRIPLES]}
    accepted = set()
    for (head_id, _, tail_id), (head, relation, tail) in zip(ids_of(row), row["evidences"], strict=True):
        for item in (head, *names.get(head_id, ())):
            for other in (tail, *names.get(tail_id, ())):
                accepted.add(tuple(squad(part, articles=False) for part in (item, relation, other)))
    matched, golds = len(claimed & accepted), len(row["evidences"])
    triples = sets(matched, len(claimed), golds, matched == len(claimed) == golds)
    facts = {tuple(fact) for fact in row["supporting_facts"]}
    claims = {tuple(fact) for fact in prediction.notes["titles"]}
    support = sets(len(facts & claims), len(claims), len(facts), facts == claims)
    parts = [answer([row["answer"], *names.get(row["answer_id"], ())], prediction.answer), support, triples]
    joint = [float(np.prod([part[at] for part in parts])) for at in range(3)]
    return {
        **dict(zip(("evidence_em", "evidence_precision", "evidence_recall", "evidence_f1"), triples, strict=True)),
        "sp_em": support[0],
        "sp_f1": support[3],
        "joint_em(rules=2wiki)": joint[0],
        "joint_f1(rules=2wiki)": harmonic(joint[1], joint[2]),
    }


def corrupted(golds: Sequence[str], draw: random.Random) -> str:
    some = draw.sample(list(golds), draw.randint(0, len(golds)))
    others = draw.sample(["Nowhere", "the a", "42"], draw.randint(0, 2))
    lines = [*some, *others, *some[: draw.randint(0, 1)]]
    draw.shuffle(lines)
    return draw.choice(("\n", "\n", " ", "\n\n")).join(lines)


def compare_values(benchmark: Benchmark, predictions: Sequence[Prediction], official: Callable[[Question, Prediction], Scores]) -> int:
    """Compare every value; return the number of values."""
    expected = [official(question, prediction) for question, prediction in zip(benchmark.questions, predictions, strict=True)]
    ours = score(benchmark.questions, predictions, list(expected[0]))
    for (name, values), metric in zip(ours.items(), expected[0], strict=True):
        wanted = np.array([np.nan if row[metric] is None else row[metric] for row in expected], dtype=np.float64)
        np.testing.assert_allclose(values, wanted, rtol=0, atol=1e-12, err_msg=name)
        assert len(set(wanted[~np.isnan(wanted)].tolist())) > 1, f"{name} is always the same"
    return len(expected) * len(expected[0])


@pytest.mark.parametrize("source", ["webqsp/rog_style_webqsp.jsonl", "cwq/rog_style_cwq.jsonl", "worlds"])
def test_rog_scores_equal_the_official_script(source: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "rog_webqsp_test.jsonl"
    if source == "worlds":
        write_native(load("worlds/graph:test", {"questions": 60}), "rog", path)
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for row in rows[::2]:  # two entities of one name
            row["answer"] += row["answer"][:1]
    else:
        rows = [json.loads(line) for line in (request.getfixturevalue("data_folder") / source).read_text().split("\n") if line]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    draw = random.Random(source)
    predictions = [Prediction(row["id"], corrupted(row["answer"], draw)) for row in rows]
    golds = {row["id"]: row["answer"] for row in rows}
    benchmark = load("cwq:test" if source.startswith("cwq") else "webqsp:test", {"path": str(path)})
    assert any(len(question.answers) > len(question.wanted) for question in benchmark.questions)
    assert compare_values(benchmark, predictions, lambda question, prediction: rog(golds[question.id], prediction.answer)) >= 4 * len(rows)


def test_webqsp_scores_use_the_best_parse_like_the_official_script(data_folder: Path) -> None:
    path = data_folder / "webqsp" / "WebQSP.test.json"
    rows = {row["QuestionId"]: row for row in json.loads(path.read_text("utf-8-sig"))["Questions"]}
    draw = random.Random(0)
    predictions = []
    for row in rows.values():
        parse = draw.choice(row["Parses"])
        ids = [answer["AnswerArgument"] for answer in parse["Answers"]]
        predictions.append(Prediction(row["QuestionId"], "\n".join([*ids[: draw.randint(0, 9)], *["m.0"] * draw.randint(0, 1)])))
    benchmark = load("webqsp:test", {"path": str(path)})
    compare_values(benchmark, predictions, lambda question, prediction: webqsp(rows[question.id], prediction.answer))


@pytest.mark.parametrize("source", ["2wikimultihopqa/2wiki_dev40.json", "worlds"])
def test_2wiki_scores_with_aliases_equal_the_official_script(source: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "dev.json"
    if source == "worlds":
        write_native(load("worlds/multihop:test", {"questions": 60}), "2wikimultihopqa", path)
    else:
        path.write_text((request.getfixturevalue("data_folder") / source).read_text("utf-8"))
    rows = {row["_id"]: row for row in json.loads(path.read_text())}
    ids = [identifier for row in rows.values() for head, _, tail in row["evidences_id"] for identifier in (head, tail)]
    names = {identifier: [f"The {identifier}", f"{identifier}-er"] for identifier in ids[::2]} | {
        row["answer_id"]: [f"Alias of {row['answer_id']}"] for row in rows.values() if row["answer_id"]
    }
    lines = [json.dumps({"Q_id": key, "aliases": value[:1], "demonyms": value[1:]}) for key, value in names.items()]
    (tmp_path / "id_aliases.json").write_text("\n".join(lines))
    benchmark = load("2wikimultihopqa:dev", {"path": str(path)})
    draw = random.Random(source)
    predictions = []
    for question in benchmark.questions:
        row = rows[question.id]
        triples = []
        for (head_id, _, tail_id), (head, relation, tail) in zip(ids_of(row), row["evidences"], strict=True):
            pairs = [(draw.choice([head, *names.get(head_id, ())]), draw.choice([tail, *names.get(tail_id, ())])) for _ in range(2)]
            triples += [(item.upper(), relation, other) for item, other in pairs[: draw.randint(0, 2)]]
        titles = [(title, number) for title, sentences in row["context"] for number in range(min(len(sentences), 2))]
        facts = [*map(tuple, row["supporting_facts"]), *draw.sample(titles, draw.randint(0, 1))][draw.randint(0, 1) :]
        joined = {title: passage_id(title, " ".join(sentences)) for title, sentences in row["context"]}
        text = draw.choice([row["answer"], *names.get(row["answer_id"], ()), f"{row['answer']} indeed", "no"])
        notes = {SUPPORT: [(joined[title], number) for title, number in facts], TRIPLES: triples, "titles": facts}
        predictions.append(Prediction(question.id, text, notes=notes))
    compare_values(benchmark, predictions, lambda question, prediction: two_wiki(rows[question.id], prediction, names))


def test_nq_open_scores_equal_the_official_script(data_folder: Path) -> None:
    path = data_folder / "nq" / "NQ-open.dev.300.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
    benchmark = load("nq/open:test", {"path": str(path)})
    draw = random.Random(0)
    predictions = [
        Prediction(question.id, draw.choice([*row["answer"], f"the {row['answer'][0]}.", f"{row['answer'][0]} or so", ""]))
        for question, row in zip(benchmark.questions, rows, strict=True)
    ]
    golds = {question.id: row["answer"] for question, row in zip(benchmark.questions, rows, strict=True)}

    def official(question: Question, prediction: Prediction) -> Scores:
        worded = [gold for gold in golds[question.id] if squad(gold)]  # the others are ignored next to them
        return {"em": float(squad(prediction.answer) in map(squad, worded or golds[question.id]))}

    assert compare_values(benchmark, predictions, official) == len(rows)
