"""The official evaluators restated over the authors' data and a file of predictions, independent of the package.

Each reads a file like the script and returns values per question (None if the script omits a question) and the printed output.
Written from the scripts' published rules: HotpotQA `hotpot_evaluate_v1.py`, 2WikiMultihopQA v1.1, MuSiQue `evaluate_v1.0.py`,
LongBench `eval.py`, RoG `evaluate_results.py`, SQuAD `evaluate-v1.1.py` and `evaluate-v2.0.py`.
"""

from __future__ import annotations

import json
import re
import string
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

Rows = list[dict[str, Any]]


class Refused(Exception):
    """Raised where the script stops at a file."""


@dataclass(frozen=True)
class Result:
    """Result of a script: values per question by name, and what it prints."""

    questions: Mapping[str, list[float | None]]
    printed: Mapping[str, float | None]


def plain(text: str) -> str:
    """Lowercase a text and remove punctuation."""
    return "".join(letter for letter in text.lower() if letter not in string.punctuation)


def words(text: Any) -> list[str]:
    """Return the words of a text without articles."""
    if not isinstance(text, str):
        raise Refused("an answer is a text")
    return re.sub(r"\b(a|an|the)\b", " ", plain(text)).split()


def shares(claimed: int, wanted: int, same: int) -> tuple[float, float, float]:
    """Return F1, precision and recall."""
    precision, recall = same / claimed if claimed else 0.0, same / wanted if wanted else 0.0
    return (2 * precision * recall / (precision + recall) if precision + recall else 0.0), precision, recall


def overlap(prediction: str, gold: str) -> tuple[float, float, float]:
    """Return F1, precision and recall of the words of two texts."""
    one, other = words(prediction), words(gold)
    return shares(len(one), len(other), (Counter(one) & Counter(other)).total())


def answer(prediction: str, golds: Iterable[str]) -> dict[str, float]:
    """Return HotpotQA's and 2Wiki's answer score: the best value of each kind over the golds."""
    best = dict.fromkeys(("em", "f1", "prec", "recall"), 0.0)
    for gold in golds:
        same = words(prediction) == words(gold)
        special = {"yes", "no", "noanswer"} & {" ".join(words(prediction)), " ".join(words(gold))}
        parts = (0.0, 0.0, 0.0) if special and not same else overlap(prediction, gold)
        for name, value in zip(best, (float(same), *parts), strict=True):
            best[name] = max(best[name], value)
    return best


def tuples(value: Any) -> set[tuple[Any, ...]]:
    """Return Python's `set(map(tuple, value))`."""
    try:
        return set(map(tuple, value))
    except TypeError as error:
        raise Refused(str(error)) from None


def loaded(text: str) -> Any:
    """Return the JSON of a file."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise Refused(str(error)) from None


def sections(text: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the sections of HotpotQA's file."""
    file = loaded(text)
    if not isinstance(file, dict) or not all(isinstance(file.get(name), dict) for name in names):
        raise Refused("a section is missing")
    return [file[name] for name in names]


def facts(value: Any, *, fold: bool) -> list[tuple[Any, ...]]:
    """Return supporting facts, with lowercase titles for 2Wiki."""
    pairs = list(tuples(value))
    if not fold:
        return pairs
    if any(not pair or not isinstance(pair[0], str) for pair in pairs):
        raise Refused("a title is a text")
    return [(pair[0].lower(), *pair[1:]) for pair in pairs]


def joint(parts: Sequence[Mapping[str, float]], prefixes: Sequence[str], total: Mapping[str, list[float | None]]) -> None:
    """Add a question's parts and their product."""
    product_of = {"em": 1.0, "prec": 1.0, "recall": 1.0}
    for part, prefix in zip(parts, prefixes, strict=True):
        for name, value in part.items():
            total[f"{prefix}{name}"].append(value)
        for name in product_of:
            product_of[name] *= part[name]
    precision, recall = product_of["prec"], product_of["recall"]
    product_of["f1"] = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    for name, value in product_of.items():
        total[f"joint_{name}"].append(value)


NOTHING = dict.fromkeys(("em", "f1", "prec", "recall"), 0.0)


def hotpotqa(data: Rows, text: str, aliases: Rows = ()) -> Result:  # type: ignore[assignment]
    answers, supports = sections(text, ("answer", "sp"))
    total: dict[str, list[float | None]] = defaultdict(list)
    for row in data:
        identifier = row["_id"]
        first = answer(answers[identifier], [row["answer"]]) if identifier in answers else NOTHING
        second = NOTHING
        if identifier in supports:
            second = of_facts(facts(supports[identifier], fold=False), facts(row["supporting_facts"], fold=False))
        joint((first, second), ("", "sp_"), total)
    return Result(total, {name: sum(values) / len(data) for name, values in total.items()})  # type: ignore[arg-type]


def of_facts(claimed: list[tuple[Any, ...]], gold: list[tuple[Any, ...]]) -> dict[str, float]:
    """Return values of supporting facts; a fact listed twice counts twice."""
    right = sum(fact in gold for fact in claimed)
    lost = sum(fact not in claimed for fact in gold)
    f1, precision, recall = shares(len(claimed), right + lost, right)
    return {"em": float(right == len(claimed) and not lost), "f1": f1, "prec": precision, "recall": recall}


def normal_triples(value: Any) -> set[tuple[str, ...]]:
    """Return claimed triples, each part normalized in place like in the script."""

    def normal(part: Any) -> Any:
        if isinstance(part, str):
            return " ".join(plain(part).split())
        if isinstance(part, list):
            return [normal(item) for item in part]
        if isinstance(part, dict) and not part:
            return part
        raise Refused("no list and no text")

    if isinstance(value, str) and value:
        raise Refused("a text cannot be changed in place")
    return tuples(normal(value) if value != "" else [])


def two_wiki(data: Rows, text: str, aliases: Rows = ()) -> Result:  # type: ignore[assignment]
    answers, supports, claims = sections(text, ("answer", "sp", "evidence"))
    names = {row["Q_id"]: {*row["aliases"], *row["demonyms"]} for row in aliases}
    total: dict[str, list[float | None]] = defaultdict(list)
    for row in data:
        identifier = row["_id"]
        first = second = third = NOTHING
        if identifier in answers:
            first = answer(answers[identifier], {row["answer"], *names.get(row["answer_id"], ())})
        if identifier in supports:
            second = of_facts(facts(supports[identifier], fold=True), facts(row["supporting_facts"], fold=True))
        if identifier in claims:
            third = of_triples(normal_triples(claims[identifier]), row, names)
        joint((first, second, third), ("", "sp_", "evi_"), total)
    return Result(total, {name: round(sum(values) / len(data) * 100, 2) for name, values in total.items()})  # type: ignore[arg-type]


def of_triples(claimed: set[tuple[str, ...]], row: Mapping[str, Any], names: Mapping[str, set[str]]) -> dict[str, float]:
    """Return values of triples: a claim is right if it equals any wording of any gold triple."""
    golds: list[set[tuple[str, ...]]] = []
    for place, (head, relation, tail) in enumerate(row["evidences"]):
        heads, tails = {head}, {tail}
        if row["evidences_id"]:
            heads |= names.get(row["evidences_id"][place][0], set())
            tails |= names.get(row["evidences_id"][place][2], set())
        golds.append(normal_triples([[one, relation, other] for one, other in product(heads, tails)]))
    right = sum(any(claim in gold for gold in golds) for claim in claimed)
    f1, precision, recall = shares(len(claimed), len(golds), right)
    return {"em": float(right == len(claimed) == len(golds)), "f1": f1, "prec": precision, "recall": recall}


def lines(text: str, *, blank: bool = True) -> list[Any]:
    """Return the JSON of each line."""
    return [loaded(line.strip()) for line in text.split("\n") if line.strip()]


def field(row: Any, name: str) -> Any:
    if not isinstance(row, dict) or name not in row:
        raise Refused(f"no {name}")
    return row[name]


def musique_f1(prediction: str, gold: str) -> float:
    one, other = words(prediction), words(gold)
    return float(one == other) if not one or not other else overlap(prediction, gold)[0]


def whole_numbers(value: Any) -> set[int]:
    try:
        return set(map(int, value))
    except (TypeError, ValueError, OverflowError) as error:
        raise Refused(str(error)) from None


def musique(data: Rows, text: str, aliases: Rows = ()) -> Result:  # type: ignore[assignment]
    rows = lines(text)
    if [field(row, "id") for row in rows] != [row["id"] for row in data]:
        raise Refused("other ids or another order")
    full = not all(row["answerable"] for row in data)
    total: dict[str, list[float | None]] = defaultdict(list)
    groups: dict[str, list[bool]] = defaultdict(list)
    for row, stated in zip(data, rows, strict=True):
        answer_, support, flag = (field(stated, f"predicted_{name}") for name in ("answer", "support_idxs", "answerable"))
        groups[row["id"]].append(flag == row["answerable"])
        if not row["answerable"]:
            for name in ("answer_f1", "answer_em", "support_f1"):
                total[name].append(None)
            continue
        golds = [row["answer"], *row["answer_aliases"]]
        claimed, gold = whole_numbers(support), {part["idx"] for part in row["paragraphs"] if part["is_supporting"]}
        total["answer_f1"].append(max(musique_f1(answer_, each) for each in golds))
        total["answer_em"].append(float(max(words(answer_) == words(each) for each in golds)))
        total["support_f1"].append(shares(len(claimed), len(gold), len(claimed & gold))[0] if claimed or gold else 1.0)
    if full:
        for kind in ("answer", "support"):
            values = total[f"{kind}_f1"]
            total[f"group_{kind}_sufficiency_f1"] = [
                None if value is None else value * all(groups[row["id"]]) for value, row in zip(values, data, strict=True)
            ]
    return Result(total, {name: round(mean(values), 3) for name, values in total.items()})


def mean(values: Iterable[float | None]) -> float:
    counted = [value for value in values if value is not None]
    return sum(counted) / len(counted) if counted else 0.0


def longbench_score(metric: str, prediction: str, gold: str, classes: Any) -> float:
    if metric == "f1":
        return overlap(prediction, gold)[0]
    if metric == "class":
        named = [name for name in classes if name in prediction]
        for name in named:  # a list that shrinks during iteration, like in the script
            if name in gold and name != gold:
                named.remove(name)
        return 1 / len(named) if gold in named else 0.0
    numbers = re.findall(r"\d+", prediction)
    return numbers.count(gold) / len(numbers) if numbers else 0.0


def longbench(data: Rows, text: str, *, metric: str, even: bool) -> Result:
    """Return the result of `eval.py`, which reads golds from the predictions; here, lines are matched by answers and length."""
    free = list(range(len(data)))
    scores: list[float | None] = [None] * len(data)
    for place, row in enumerate(lines(text)):
        prediction, golds = field(row, "pred"), field(row, "answers")
        if not isinstance(prediction, str) or not isinstance(golds, list) or (even and "length" not in row):
            raise Refused("a field is no text or no list")
        fits = [at for at in free if data[at]["answers"] == golds and row.get("length", data[at]["length"]) == data[at]["length"]]
        if not fits:
            raise Refused("no question has these answers and this length")
        at = place if place in fits else fits[0]
        free.remove(at)
        if metric == "class":
            prediction = prediction.lstrip("\n").split("\n")[0]
        scores[at] = max([0.0, *(longbench_score(metric, prediction, gold, row.get("all_classes")) for gold in golds)])
    if len(free) == len(data):
        raise Refused("a mean of nothing")
    if not even:
        counted = [value for value in scores if value is not None]
        return Result({"all": scores}, {"all": round(100 * sum(counted) / len(counted), 2) if counted else None})
    buckets: dict[str, list[float | None]] = {"0-4k": [], "4-8k": [], "8k+": []}
    for row, score in zip(data, scores, strict=True):
        own = "0-4k" if row["length"] < 4000 else "4-8k" if row["length"] < 8000 else "8k+"
        for name, values in buckets.items():
            values.append(score if name == own else None)
    printed: dict[str, float | None] = {}
    for name, values in buckets.items():
        counted = [value for value in values if value is not None]
        printed[name] = round(100 * (sum(counted) / len(counted)), 2) if counted else None
    return Result(buckets, printed)


def rog(data: Rows, text: str, aliases: Rows = ()) -> Result:  # type: ignore[assignment]
    golds = {row["id"]: row["answer"] for row in data}
    values: dict[str, dict[str, float]] = {}
    for line in text.split("\n"):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        identifier, prediction = field(row, "id"), field(row, "prediction")
        if identifier not in golds or identifier in values:
            raise Refused("no question, or one that has a line")
        if isinstance(prediction, list):
            if not all(isinstance(item, str) for item in prediction):
                raise Refused("an answer is a text")
            listed = [item for item, _ in Counter(prediction).most_common()]
        elif isinstance(prediction, str):
            listed = prediction.split("\n")
        else:
            raise Refused("a prediction is a text or a list")
        stated = " ".join(words(" ".join(listed)))
        right = sum(" ".join(words(gold)) in stated for gold in golds[identifier])
        f1, precision, recall = shares(len(listed), len(golds[identifier]), right if listed else 0)
        accuracy = right / len(golds[identifier])
        values[identifier] = {"Accuracy": accuracy, "Hit": float(right > 0), "F1": f1, "Precision": precision, "Recall": recall}
    if not values:
        raise Refused("a mean of nothing")
    names = ("Accuracy", "Hit", "F1", "Precision", "Recall")
    columns = {name: [values[row["id"]][name] if row["id"] in values else None for row in data] for name in names}
    return Result(columns, {name: mean(column) * 100 if values else None for name, column in columns.items()})


def squad(data: Rows, text: str, aliases: Rows = ()) -> Result:  # type: ignore[assignment]
    answers = loaded(text)
    if not isinstance(answers, dict):
        raise Refused("no object")
    total: dict[str, list[float | None]] = {"exact_match": [], "f1": []}
    for row in data:
        stated = answers.get(row["id"])
        total["exact_match"].append(float(row["id"] in answers and any(words(stated) == words(gold) for gold in row["answer"])))
        total["f1"].append(
            max((overlap(answers[row["id"]], gold)[0] for gold in row["answer"]), default=0.0) if row["id"] in answers else 0.0
        )
    return Result(total, {name: 100 * mean(values) for name, values in total.items()})


def squad_v2(data: Rows, text: str, aliases: Rows = ()) -> Result:  # type: ignore[assignment]
    answers = loaded(text)
    total: dict[str, list[float | None]] = {"exact": [], "f1": []}
    for row in data:
        if row["id"] not in answers:
            raise Refused("a key is missing")
        stated = words(answers[row["id"]])
        golds = [gold for gold in (words(item["text"]) for item in row["answers"]) if gold] or [[]]
        total["exact"].append(max(float(gold == stated) for gold in golds))
        same = [shares(len(stated), len(gold), (Counter(gold) & Counter(stated)).total())[0] for gold in golds]
        total["f1"].append(max(float(gold == stated) if not gold or not stated else f1 for gold, f1 in zip(golds, same, strict=True)))
    printed: dict[str, float | None] = {}
    answered = [bool(row["answers"]) for row in data]
    for prefix, chosen in (("", [True] * len(data)), ("HasAns_", answered), ("NoAns_", [not item for item in answered])):
        if any(chosen):
            for name, values in total.items():
                printed[prefix + name] = 100 * mean(value for value, among in zip(values, chosen, strict=True) if among)
            printed[f"{prefix}total"] = sum(chosen)
    return Result(total, printed)


Script = Callable[..., Result]
