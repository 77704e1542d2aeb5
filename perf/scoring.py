"""How fast scoring is: answers against the SQuAD script, ROUGE against rouge-score, rankings against pytrec_eval.

Equal results or no figure.

    python -m perf.scoring            the full sizes of the project's targets
    python -m perf.scoring --quick    small sizes: checks that both sides agree, misses no target

Both sides run in this process, one thread, in turns, on the same Python objects. A figure is the median over the
turns of this process's CPU seconds, which a busy machine disturbs little. rouge-score is timed and compared on a sample
of the pairs, drawn evenly, and its seconds are extrapolated. The exit code is 1 where a target is missed or the two
sides differ.
"""

from __future__ import annotations

import json
import os
import random
import re
import statistics
import string
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.text_batch import AnswerPairs
from judges.metrics import generation
from judges.metrics.positions import find_positives
from perf.measuring import Bench, medians, parser

ROOT = Path(__file__).resolve().parent.parent


def normalize_answer(s: str) -> str:
    """Normalize an answer like SQuAD's script: lower-case, without punctuation, articles and extra white space."""

    def remove_articles(text: str) -> str:
        return re.sub(r"\b(a|an|the)\b", " ", text)

    def white_space_fix(text: str) -> str:
        return " ".join(text.split())

    def remove_punc(text: str) -> str:
        exclude = set(string.punctuation)
        return "".join(ch for ch in text if ch not in exclude)

    def lower(text: str) -> str:
        return text.lower()

    return white_space_fix(remove_articles(remove_punc(lower(s))))


def script_em(prediction: str, gold: str) -> float:
    return float(normalize_answer(prediction) == normalize_answer(gold))


def script_f1(prediction: str, gold: str) -> float:
    prediction_tokens = normalize_answer(prediction).split()
    gold_tokens = normalize_answer(gold).split()
    common = Counter(prediction_tokens) & Counter(gold_tokens)
    num_same = sum(common.values())
    if num_same == 0:
        return 0.0
    precision = 1.0 * num_same / len(prediction_tokens)
    recall = 1.0 * num_same / len(gold_tokens)
    return (2 * precision * recall) / (precision + recall)


def script_cover_em(prediction: str, gold: str) -> float:
    gold = normalize_answer(gold)
    return float(gold != "" and gold in normalize_answer(prediction))


def script_way(predictions: Sequence[str], golds: Sequence[Sequence[str]]) -> tuple[list[float], ...]:
    """Compute each metric as an imported official script would: separately, with its own maximum over the gold answers."""
    return tuple(
        [max(metric(prediction, gold) for gold in row) for prediction, row in zip(predictions, golds, strict=True)]
        for metric in (script_em, script_f1, script_cover_em)
    )


def script_once(predictions: Sequence[str], golds: Sequence[Sequence[str]]) -> tuple[list[float], ...]:
    """Compute the metrics like the script, but with every text normalized only once."""
    em, f1, cover = [], [], []
    for prediction, row in zip(predictions, golds, strict=True):
        normal = normalize_answer(prediction)
        words = Counter(normal.split())
        length = sum(words.values())
        best_em = best_f1 = best_cover = 0.0
        for gold in map(normalize_answer, row):
            wanted = gold.split()
            num_same = sum((words & Counter(wanted)).values())
            if num_same:
                precision, recall = num_same / length, num_same / len(wanted)
                best_f1 = max(best_f1, (2 * precision * recall) / (precision + recall))
            best_em = max(best_em, float(normal == gold))
            best_cover = max(best_cover, float(gold != "" and gold in normal))
        em.append(best_em)
        f1.append(best_f1)
        cover.append(best_cover)
    return em, f1, cover


def our_way(predictions: Sequence[str], golds: Sequence[Sequence[str]]) -> tuple[Any, ...]:
    pairs = AnswerPairs(predictions, golds)
    return pairs.em(), pairs.f1(), pairs.cover_em()


def real_texts() -> tuple[list[str], list[str]]:
    """Return answers and sentences of the real samples; empty lists if they are missing."""
    folder = Path(os.environ.get("RAGMETER_DATA") or ROOT.parent / "shared" / "data")
    answers: list[str] = []
    sentences: list[str] = []
    for path in sorted([*folder.glob("hotpotqa/*train50.json"), *folder.glob("2wikimultihopqa/*.json")]):
        for record in json.loads(path.read_text(encoding="utf-8")):
            if "context" in record:
                answers.append(record["answer"])
                sentences += [sentence for _, paragraph in record["context"] for sentence in paragraph]
    for path in sorted(folder.glob("musique/*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            answers += [record["answer"], *record["answer_aliases"]]
            sentences += [paragraph["paragraph_text"] for paragraph in record["paragraphs"]]
    return answers, sentences


def made_up_texts(rng: random.Random) -> tuple[list[str], list[str]]:
    """Generate answers and sentences of invented words, with realistic punctuation, articles and accents."""
    syllables = ["ka", "ri", "ton", "mel", "os", "vé", "dra", "lin", "BA", "sho", "Ün", "te", "gar", "ny", "ul", "fo"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(5000)]
    words += ["the", "The", "a", "an", "of", "in", "and", "U.S.", "1984", "(born", "19 May", "–", "it's"] * 100
    sentences = [" ".join(rng.choices(words, k=rng.randint(6, 30))) + "." for _ in range(3000)]
    return [" ".join(rng.choices(words, k=rng.randint(1, 4))) for _ in range(500)], sentences


def answer_pairs(size: int, most_golds: int, seed: int) -> tuple[list[str], list[list[str]]]:
    """Generate predictions from one word to three sentences long; about half contain a gold answer.

    Gold answers are real ones for a tenth of the rows, and else runs of words from the sentences.
    """
    rng = random.Random(seed)
    answers, sentences = real_texts()
    if not answers:
        answers, sentences = made_up_texts(rng)
    words = [word for sentence in sentences for word in sentence.split()]

    def run(low: int, high: int) -> str:
        length = rng.randint(low, high)
        start = rng.randrange(max(len(words) - length, 1))
        return " ".join(words[start : start + length])

    predictions, golds = [], []
    for _ in range(size):
        row = [rng.choice(answers) if rng.random() < 0.1 else run(1, 5) for _ in range(rng.randint(1, most_golds))]
        kind = rng.random()
        if kind < 0.15:
            predictions.append(rng.choice(row))  # the gold itself
        elif kind < 0.5:
            predictions.append(f"{run(1, 12)} {rng.choice(row)}, {run(1, 12)}")  # a sentence that holds it
        elif kind < 0.8:
            predictions.append(run(1, 6))  # a wrong short answer
        else:
            predictions.append(run(20, 60))  # a wrong long one
        golds.append(row)
    return predictions, golds


def rankings(size: int, depth: int, corpus: int, seed: int) -> tuple[list[list[str]], list[list[str]]]:
    """Generate rankings of `depth` out of `corpus` passage ids, with one to five positives, most of them retrieved."""
    rng = np.random.default_rng(seed)
    ids = np.array([f"p{number:016x}" for number in rng.integers(1 << 62, size=corpus)], dtype=object)
    result, positives = [], []
    for count in rng.integers(1, 6, size=size):
        # Distinct rows without the cost of a permutation: draw more than are needed, drop repetitions.
        rows = list(dict.fromkeys(rng.integers(corpus, size=depth + 40).tolist()))
        positions = set(rng.integers(depth, size=int(count)).tolist())
        relevant = [rows[position] if rng.random() < 0.7 else rows[depth + i] for i, position in enumerate(positions)]
        result.append(ids[rows[:depth]].tolist())
        positives.append(ids[relevant].tolist())
    return result, positives


def answers_against_script(report: Bench, size: int, turns: int) -> None:
    for name, most_golds in (("one gold", 1), ("1-5 golds", 5)):
        predictions, golds = answer_pairs(size, most_golds, seed=7)
        flat = [gold for row in golds for gold in row]
        pairs = {(prediction, *row) for prediction, row in zip(predictions, golds, strict=True)}
        shares = ", ".join(
            f"{len(set(part)) / len(part):.0%} of the {noun}" for noun, part in (("predictions", predictions), ("golds", flat))
        )
        sides = [partial(way, predictions, golds) for way in (our_way, script_way, script_once)]
        seconds, (ours, script, once) = medians(turns, *sides)
        equal = [all(np.array_equal(a, b) for a, b in zip(ours, side, strict=True)) for side in (script, once)]
        print(
            f"# {size:,} pairs, {name}; distinct: {len(pairs) / size:.0%} of the pairs, {shares}; mean scores "
            + ", ".join(f"{np.mean(values):.3f}" for values in ours)
        )
        report.ratio(f"em+f1+cover_em, {name}, SQuAD script", seconds[0], seconds[1], 5, equal=equal[0])
        report.ratio(f"em+f1+cover_em, {name}, script, normalized once", seconds[0], seconds[2], None, equal=equal[1])


ROUGE_SAMPLE = 20
"""One pair in so many is scored by rouge-score too, which takes minutes for all."""


def rouge_against_rouge_score(report: Bench, size: int, turns: int) -> None:
    """Compare ROUGE with the package rouge_score, with and without stemming, on short answers and paragraphs."""
    from rouge_score.rouge_scorer import RougeScorer

    short_texts, golds = answer_pairs(size, 1, seed=7)
    _, sentences = real_texts()
    rng = random.Random(5)
    pool = sentences or made_up_texts(rng)[1]
    long_texts = [" ".join(rng.choices(pool, k=4)) for _ in range(size // 10)]
    for noun, predictions, references in (
        ("answers", short_texts, [row[0] for row in golds]),
        ("paragraphs", long_texts, long_texts[1:] + long_texts[:1]),
    ):
        positions = range(0, len(predictions), ROUGE_SAMPLE)
        sample = [(references[position], predictions[position]) for position in positions]
        share = len(sample) / len(predictions)
        words = sum(len(text.split()) for text in predictions) / len(predictions)
        print(
            f"# {len(predictions):,} pairs of {noun}, predictions of {words:.0f} words; rouge-score scores"
            f" {len(sample):,} of them, its time is extrapolated"
        )
        for kind in generation.TYPES:
            for stem in (True, False):
                ours = partial(our_rouge, predictions, references, kind, stem)
                scorer = RougeScorer([kind], use_stemmer=stem)
                theirs = partial(rouge_score_way, scorer, kind, sample)
                seconds, (values, sampled) = medians(turns, ours, theirs)
                equal = values[:: positions.step].tolist() == sampled
                name = f"{kind}{', stems' if stem else ''}, {noun}, rouge-score"
                report.ratio(name, seconds[0], seconds[1] / share, None, equal=equal)


def our_rouge(predictions: Sequence[str], references: Sequence[str], kind: str, stem: bool) -> Any:
    generation._stems.cache_clear()  # no turn profits from the stems of the one before
    return generation.rouge_of_pairs(predictions, references, kind, stem=stem)


def rouge_score_way(scorer: Any, kind: str, pairs: Sequence[tuple[str, str]]) -> list[float]:
    return [scorer.score(reference, prediction)[kind].fmeasure for reference, prediction in pairs]


CUTS = (1, 3, 5, 10, 20, 100)
"""The project's default cuts."""


def our_rankings(results: list[list[str]], positives: list[list[str]]) -> dict[str, Any]:
    """Compute every compared measure from lists of string ids."""
    hits = find_positives(results, positives, distinct=True)
    scores = {}
    for k in CUTS:
        scores[f"recall_{k}"] = hits.recall(k)
        scores[f"success_{k}"] = hits.hit(k)
        scores[f"P_{k}"] = hits.precision(k)
        scores[f"map_cut_{k}"] = hits.average_precision(k)
        scores[f"ndcg_cut_{k}"] = hits.ndcg(k)
    scores["recip_rank"] = hits.reciprocal_rank(max(CUTS))
    return scores


def rankings_against_pytrec_eval(report: Bench, size: int, depth: int, turns: int) -> None:
    import pytrec_eval

    cuts = ",".join(map(str, CUTS))
    measures = {"recip_rank", *(f"{name}.{cuts}" for name in ("recall", "success", "P", "map_cut", "ndcg_cut"))}
    names = [str(number) for number in range(size)]
    descending = [float(depth - rank) for rank in range(depth)]
    for corpus, target in ((10_000, 10), (200_000, None)):
        matches, positives = rankings(size, depth, corpus, seed=11)

        def ours(matches: list[list[str]] = matches, positives: list[list[str]] = positives) -> dict[str, Any]:
            return our_rankings(matches, positives)

        alone: list[float] = []

        def theirs(
            matches: list[list[str]] = matches, positives: list[list[str]] = positives, alone: list[float] = alone
        ) -> dict[str, Any]:
            qrels = {name: dict.fromkeys(row, 1) for name, row in zip(names, positives, strict=True)}
            run = {name: dict(zip(row, descending, strict=True)) for name, row in zip(names, matches, strict=True)}
            start = time.process_time()
            results = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)
            alone.append(time.process_time() - start)
            rows = [results[name] for name in names]
            return {measure: np.array([row[measure] for row in rows]) for measure in rows[0]}

        seconds, results = medians(turns, ours, theirs)
        worst = max(float(np.abs(results[0][name] - results[1][name]).max()) for name in results[1])
        equal = worst <= 1e-9 and results[0].keys() == results[1].keys()
        print(
            f"# {size:,} queries x {depth} of {corpus:,} documents, {len(results[0])} measures; both sides from the"
            f" same lists of string ids to one array a measure; largest difference {worst:.1e}"
        )
        name = f"ranking metrics, {corpus:,} documents, pytrec_eval"
        report.ratio(name, seconds[0], seconds[1], target, equal=equal)
        report.ratio(f"{name}.evaluate alone", seconds[0], statistics.median(alone), None, equal=equal)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare metrics with official scripts and packages.

    Returns:
        1 if a target was missed or results differ, else 0.
    """
    arguments_parser = parser(__doc__)
    options = arguments_parser.parse_args(arguments)
    report = Bench("scoring", quick=options.quick)
    answers_against_script(report, 2_000 if options.quick else 100_000, 1 if options.quick else 3)
    rouge_against_rouge_score(report, 1_000 if options.quick else 100_000, 1 if options.quick else 3)
    rankings_against_pytrec_eval(report, 500 if options.quick else 100_000, 100, 1 if options.quick else 3)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
