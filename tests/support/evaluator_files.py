"""Generate data files in the authors' layouts and files of predictions with everything that the official scripts tolerate.

    python -m tests.support.evaluator_files FOLDER [SEEDS]

This writes them, so that the official scripts can be run on the same files; `tests/results/formats/recorded_evaluators.json` has
their output.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import evaluators
from tests.support.evaluators import Result, Rows

WORDS = (
    "Lyon",
    "the",
    "A",
    "An old inn",
    "Zürich",
    "Beyonce\u0301",
    "Beyoncé",
    "北京",
    "1,000",
    "1914–1918",
    "porter’s",
    "well-known",
    "AC/DC",
    "yes",
    "no",
    "noanswer",
    "Yes.",
    "\u00a0",
    "“Old”",
    "THE",
    "42",
    "\ufeffLyon",
    "x",
    "İstanbul",
    "\u2028",
)


ALIASES = ("Lugdunum", "Lyons")


@dataclass
class Case:
    """A data file with related files, a file of predictions, and the script's result on it.

    Attributes:
        reference: Data reference of the data file.
        rows: Its records.
        predictions: The file of predictions.
        script: Maps its text to a result; raises `Refused`.
        data: The data file, JSON of `rows` unless the layout differs.
        beside: Related files by name.
    """

    reference: str
    rows: Rows
    predictions: str
    script: Callable[[str], Result]
    data: str = ""
    beside: dict[str, str] = field(default_factory=dict)


def gold_text(draws: random.Random) -> str:
    """Return an answer with at least one character that is not white space."""
    while not (text := " ".join(draws.sample(WORDS, draws.choice((1, 1, 2, 3))))).strip() or text.lstrip().startswith("["):
        pass
    return text


def near(draws: random.Random, golds: list[str]) -> str:
    """Return a prediction: right, nearly right, wrong, or empty."""
    gold = draws.choice(golds) if golds else ""
    return draws.choice(
        (gold, gold.upper(), f"the {gold}, indeed", "A", "", "yes", gold_text(draws), f"{gold}\n{gold_text(draws)}", "No.", "\0")
    )


def kept(draws: random.Random, rows: list[Any]) -> list[Any]:
    """Return all or some items of a list."""
    return rows if draws.random() < 0.5 else [row for row in rows if draws.random() < 0.8]


def identifiers(draws: random.Random, n: int) -> list[str]:
    return draws.sample(["q1", "Q1", "5a8b57f2", "2hop__1_2", "é", "id with space", "北", "0", "test_1", "q/2", "x" * 60], n)


ODD: tuple[Any, ...] = (
    ["x"],
    ["Ada", "0"],
    ["Ada", 0, 1],
    ["Ada", None],
    "Ad",
    ["Ada", 1.5],
    ["Ada", True],
    ["Ada", 0.0],
    ["Ada", -1],
    ["Nowhere", 0],
    ["ada", 99],
)
BROKEN: tuple[Any, ...] = (None, 7, [3], [["Ada", [0]]], [None])


def paragraphs(draws: random.Random, lower: bool) -> list[list[Any]]:
    """Return paragraphs of a record; a title may occur twice, and in 2Wiki's records no two differ only in case."""
    titles = ["Ada", "Ada", "Zoll (town)", "AT&T", "Ünlü", "b", "Ada II"] + ([] if lower else ["ada"])
    return [
        [title, [f"{title} {number}.{draws.randrange(99)}" for number in range(draws.randrange(5))]]
        for title in draws.sample(titles, draws.randint(2, 5))
    ]


def multihop(draws: random.Random, *, two_wiki: bool) -> Case:
    """Return a case of HotpotQA, or of 2WikiMultihopQA with aliases."""
    rows: Rows = []
    aliases: Rows = []
    for identifier in identifiers(draws, draws.randint(1, 5)):
        context = paragraphs(draws, two_wiki)
        sentences = [[title, number] for title, texts in context for number in range(len(texts))] or [["Ada", 0]]
        odd = [[context[0][0], 40], ["Not here", 1], [context[-1][0], -1]]
        facts = draws.sample(sentences, draws.randint(1, min(3, len(sentences)))) + draws.sample(odd, draws.choice((0, 0, 0, 1)))
        facts += facts[: draws.choice((0, 0, 1))]
        row = {
            "_id": identifier,
            "question": f"Question {identifier}?",
            "answer": gold_text(draws),
            "type": "bridge",
            "level": "hard",
            "supporting_facts": facts if draws.random() < 0.95 else [],
            "context": context,
        }
        if two_wiki:
            del row["level"]
            triples = [
                [gold_text(draws), draws.choice(("city", "born in")), draws.choice((row["answer"], gold_text(draws)))]
                for _ in range(draws.randint(0, 3))
            ]
            triples += triples[: draws.choice((0, 0, 1))]
            ids = [[f"Q{draws.randrange(6)}", relation, f"Q{draws.randrange(6)}"] for _, relation, _ in triples]
            row |= {
                "evidences": triples,
                "evidences_id": ids if draws.random() < 0.7 else [],
                "answer_id": f"Q{draws.randrange(6)}",
                "entity_ids": "",
            }
        rows.append(row)
    if two_wiki:
        for number in draws.sample(range(6), draws.randrange(5)):
            names = [draws.choice((*ALIASES, gold_text(draws))) for _ in range(draws.randrange(3))]
            aliases.append({"Q_id": f"Q{number}", "aliases": names, "demonyms": names[:1] if draws.random() < 0.3 else []})
    file = {"answer": {}, "sp": {}} | ({"evidence": {}} if two_wiki else {})
    for row in rows:
        identifier = row["_id"]
        for name in file:
            if draws.random() < 0.15:
                continue
            file[name][identifier] = {"answer": said_answer, "sp": said_facts, "evidence": said_triples}[name](draws, row, two_wiki)
    for name in file:
        if draws.random() < 0.2:
            file[name]["of nobody"] = draws.choice(("x", None, [["Ada", 0]]))
    if draws.random() < 0.1:
        file["scores"] = {"em": 1}
    if draws.random() < 0.05:
        del file[draws.choice(list(file))]
    script = evaluators.two_wiki if two_wiki else evaluators.hotpotqa
    predictions = json.dumps(file, ensure_ascii=draws.random() < 0.5, indent=draws.choice((None, 1)))
    if draws.random() < 0.1 and rows[0]["_id"] in file.get("answer", {}):
        # A repeated key: the last one counts.
        predictions = predictions.replace('"answer": {', f'"answer": {{{json.dumps(rows[0]["_id"])}: "once", ', 1)
    if draws.random() < 0.04:
        predictions += draws.choice((" x", "}", "\n{}"))
    name = "2wikimultihopqa" if two_wiki else "hotpotqa"
    beside = {"id_aliases.json": "".join(json.dumps(row) + "\n" for row in aliases)} if two_wiki else {}
    return Case(f"{name}:dev", rows, predictions, lambda text: script(rows, text, aliases), beside=beside)


def said_answer(draws: random.Random, row: dict[str, Any], _: bool) -> Any:
    return draws.choice((None, 3, ["x"])) if draws.random() < 0.01 else near(draws, [row["answer"], *ALIASES])


def said_facts(draws: random.Random, row: dict[str, Any], fold: bool) -> Any:
    if draws.random() < 0.02:
        return draws.choice(BROKEN)
    sentences = [[title, number] for title, texts in row["context"] for number in range(len(texts))]
    facts = [
        *draws.sample(row["supporting_facts"], draws.randint(0, len(row["supporting_facts"]))),
        *draws.sample(sentences, draws.randint(0, min(2, len(sentences)))),
    ]
    facts += draws.sample(ODD, 1) if draws.random() < 0.15 else []
    if fold:
        facts = [
            [draws.choice((fact[0], fact[0].upper(), fact[0].lower())), *fact[1:]]
            if isinstance(fact[0], str) and isinstance(fact, list)
            else fact
            for fact in facts
        ]
    return facts


def said_triples(draws: random.Random, row: dict[str, Any], _: bool) -> Any:
    if draws.random() < 0.02:
        return draws.choice((None, 7, [3], [[["a"]]], "x", {"a": []}))
    triples = [list(triple) for triple in draws.sample(row["evidences"], draws.randint(0, len(row["evidences"])))]
    triples = [[head, relation, draws.choice((tail, tail, *ALIASES))] for head, relation, tail in triples]
    triples += [["a", "b", "c"]] * draws.randint(0, 2) + draws.sample(
        [["x", "y"], [], "abc", [""] * 3, ["a", "b", "c", "d"]], draws.choice((0, 0, 1))
    )
    return [[part.upper() for part in triple] if isinstance(triple, list) and draws.random() < 0.3 else triple for triple in triples]


def musique(draws: random.Random, *, full: bool) -> Case:
    """Return a case of MuSiQue-ans, or of MuSiQue-full with its twins."""
    rows: Rows = []
    for number in range(draws.randint(1, 4)):
        n = draws.randint(2, 6)
        texts = [f"Text {draws.choice((number, at, 'same'))}." for at in range(n)]
        numbers = draws.sample(range(n + draws.choice((0, 0, 7))), n)
        supporting = set(draws.sample(range(n), draws.randint(1, min(3, n))))
        golds = [gold_text(draws) for _ in range(draws.randint(1, 3))]
        row = {
            "id": f"2hop__{number}_{number + 1}",
            "question": f"Question {number}?",
            "answer": golds[0],
            "answer_aliases": golds[1:] + golds[:1],
            "answerable": True,
            "question_decomposition": [],
            "paragraphs": [
                {"idx": numbers[at], "title": draws.choice(("T", "U")), "paragraph_text": text, "is_supporting": at in supporting}
                for at, text in enumerate(texts)
            ],
        }
        pair = [row]
        if full:
            pair.append(json.loads(json.dumps(row)) | {"answerable": False})
            pair[1]["paragraphs"].pop()
            draws.shuffle(pair)
        rows += pair
    if full:
        rows.sort(key=lambda row: row["answerable"]) if draws.random() < 0.3 else None
    claimed_rows: list[Any] = []
    for row in rows:
        gold = [part["idx"] for part in row["paragraphs"] if part["is_supporting"]]
        every = [part["idx"] for part in row["paragraphs"]]
        support: Any = [
            *draws.sample(gold, draws.randint(0, len(gold))),
            *draws.sample(every, draws.randint(0, min(2, len(every)))),
            *draws.sample([99, -1, "0", 1.9, True], draws.choice((0, 0, 0, 1))),
        ]
        if draws.random() < 0.02:
            support = draws.choice((None, ["x"], 3, [None], "01"))
        answer: Any = near(draws, [row["answer"], *row["answer_aliases"]])
        if draws.random() < (0.02 if row["answerable"] else 0.3):
            answer = None
        flag: Any = row["answerable"] != (draws.random() < 0.2)
        claimed_rows.append(
            {
                "id": row["id"],
                "predicted_answer": answer,
                "predicted_support_idxs": support,
                "predicted_answerable": int(flag) if draws.random() < 0.1 else flag,
            }
        )
    if draws.random() < 0.05:
        claimed_rows.pop()
    if draws.random() < 0.05 and claimed_rows:
        claimed_rows.append(claimed_rows[0])
    if draws.random() < 0.03 and claimed_rows:
        del claimed_rows[0]["predicted_support_idxs"]
    blank = draws.choice(("\n", "\n", "\n\n", "\r\n"))
    return Case(
        f"musique/{'full' if full else 'ans'}:dev",
        rows,
        blank.join(map(json.dumps, claimed_rows)),
        lambda text: evaluators.musique(rows, text),
        data=json_lines(rows, draws),
    )


def json_lines(rows: Rows, draws: random.Random) -> str:
    """Return rows as a JSON array or as JSON Lines."""
    return json.dumps(rows, indent=draws.choice((None, 2))) if draws.random() < 0.3 else "".join(json.dumps(row) + "\n" for row in rows)


SETS = {
    "qasper": "f1",
    "hotpotqa": "f1",
    "qasper_e": "f1",
    "multifieldqa_en_e": "f1",
    "trec": "class",
    "passage_count": "number",
    "trec_e": "class",
}
CLASSES = ["City", "City and country", "Date", "Other"]


def longbench(draws: random.Random) -> Case:
    """Return a case of a LongBench subset."""
    subset = draws.choice(list(SETS))
    metric, even = SETS[subset], subset.endswith("_e")
    rows: Rows = []
    for number in range(draws.randint(1, 6)):
        golds = {
            "f1": lambda: draws.choice((gold_text(draws), "Yes", "unanswerable", "A", "")),
            "class": lambda: draws.choice(CLASSES),
            "number": lambda: str(draws.randint(1, 9)),
        }[metric]
        answers = [golds() for _ in range(draws.choice((1, 1, 2, 3)))]
        answers += answers[: draws.choice((0, 1))]
        rows.append(
            {
                "_id": f"{number:03}",
                "input": f"Question {number}?",
                "context": f"Some text {number}.",
                "answers": answers,
                "length": draws.choice((100, 3999, 4000, 7999, 8000, 12000)),
                "dataset": subset.removesuffix("_e"),
                "language": "en",
                "all_classes": CLASSES if metric == "class" else None,
            }
        )
    claimed_rows = []
    for row in kept(draws, rows):
        prediction: Any = (
            near(draws, row["answers"]) if metric != "class" else draws.choice((*CLASSES, "\nDate\nCity", "none", "City, Date", ""))
        )
        if draws.random() < 0.02:
            prediction = draws.choice((None, 3))
        claimed_rows.append({"pred": prediction, "answers": row["answers"], "all_classes": row["all_classes"], "length": row["length"]})
    if draws.random() < 0.4:
        draws.shuffle(claimed_rows)
    if draws.random() < 0.1 and not even:
        for row in claimed_rows:
            del row["length"]
    text = "\n".join(json.dumps(row, ensure_ascii=False) for row in claimed_rows)
    return Case(f"longbench/{subset}:test", rows, text, lambda text: evaluators.longbench(rows, text, metric=metric, even=even))


def rog(draws: random.Random) -> Case:
    """Return a case of RoG's WebQSP."""
    rows: Rows = []
    for number in range(draws.randint(1, 5)):
        answers = [gold_text(draws) for _ in range(draws.randint(1, 4))]
        rows.append(
            {
                "id": f"WebQTest-{number}",
                "question": f"question {number}?",
                "answer": answers + answers[: draws.choice((0, 1))],
                "q_entity": ["Ada"],
                "a_entity": answers,
                "graph": [["Ada", "r.s", "Zoll"]],
                "choices": [],
            }
        )
    claimed_rows: list[Any] = []
    for row in kept(draws, rows):
        listed = [near(draws, row["answer"]) for _ in range(draws.randrange(4))]
        prediction: Any = listed if draws.random() < 0.4 else "\n".join(listed)
        if draws.random() < 0.02:
            prediction = draws.choice((None, 3, [1]))
        claimed_rows.append(
            json.dumps(
                {"id": row["id"], "question": row["question"], "prediction": prediction, "ground_truth": row["answer"], "input": "?"}
            )
        )
    if draws.random() < 0.15:
        claimed_rows.insert(draws.randint(0, len(claimed_rows)), "half a line {")
    if draws.random() < 0.04 and claimed_rows:
        claimed_rows.append(claimed_rows[0])
    return Case("webqsp:test", rows, "\n".join(claimed_rows), lambda text: evaluators.rog(rows, text))


def squad(draws: random.Random) -> Case:
    """Return a case of answers by id."""
    rows: Rows = []
    for identifier in identifiers(draws, draws.randint(1, 5)):
        golds = [gold_text(draws) for _ in range(draws.randint(1, 3))]
        rows.append({"id": identifier, "question": f"question {identifier}", "answer": golds + golds[: draws.choice((0, 1))]})
    file: dict[str, Any] = {row["id"]: near(draws, row["answer"]) for row in kept(draws, rows)}
    if draws.random() < 0.2:
        file["of nobody"] = None
    if draws.random() < 0.03:
        file[rows[0]["id"]] = 3
    return Case("nq/open:test", rows, json.dumps(file, ensure_ascii=False), lambda text: evaluators.squad(rows, text))


def squad_v2(draws: random.Random) -> Case:
    """Return a case of answers by id in SQuAD 2.0's layout; the first question has no answer, and the second has one."""
    rows: Rows = []
    for identifier in identifiers(draws, draws.randint(2, 5)):
        golds = [gold_text(draws) for _ in range(draws.randint(len(rows) == 1, 3) if rows else 0)]
        stated = [{"text": gold, "answer_start": 0} for gold in golds]
        rows.append({"id": identifier, "question": f"question {identifier}", "answers": stated, "is_impossible": not golds})
    paragraphs = [{"context": "A text.", "qas": rows[:2]}, {"context": "Another.", "qas": rows[2:]}]
    data = json.dumps({"version": "v2.0", "data": [{"title": "T", "paragraphs": paragraphs}]})
    file = {row["id"]: near(draws, [item["text"] for item in row["answers"]]) for row in rows}
    return Case("files:test", rows, json.dumps(file, ensure_ascii=False), lambda text: evaluators.squad_v2(rows, text), data)


CASES: dict[str, tuple[str, Callable[[random.Random], Case]]] = {
    "hotpotqa": ("hotpotqa", lambda draws: multihop(draws, two_wiki=False)),
    "2wiki": ("2wiki", lambda draws: multihop(draws, two_wiki=True)),
    "musique": ("musique", lambda draws: musique(draws, full=False)),
    "musique full": ("musique", lambda draws: musique(draws, full=True)),
    "longbench": ("longbench", longbench),
    "rog": ("rog", rog),
    "squad": ("squad", squad),
    "squad v2": ("squad", squad_v2),
}
"""The format and case generator by name."""


def write(case: Case, folder: Path) -> tuple[Path, Path]:
    """Write a case; return the data file and the file of predictions."""
    folder.mkdir(parents=True, exist_ok=True)
    data, predictions = folder / "data.json", folder / "predictions"
    lines = not case.reference.startswith(("hotpotqa", "2wiki"))
    text = case.data or ("".join(json.dumps(row) + "\n" for row in case.rows) if lines else json.dumps(case.rows))
    for path, content in (
        (data, text),
        (predictions, case.predictions),
        *((folder / name, content) for name, content in case.beside.items()),
    ):
        path.write_bytes(content.encode("utf-8", "surrogatepass"))
    return data, predictions


if __name__ == "__main__":
    for name, (_, make) in CASES.items():
        for seed in range(int(sys.argv[2]) if len(sys.argv) > 2 else 5):
            write(make(random.Random(f"{name} {seed}")), Path(sys.argv[1]) / f"{name} {seed}")
