"""Retrieval metrics compared with pytrec_eval, a naive loop and hand-computed tables."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.core.errors import UserError
from benchmarks.schema import Passage, Question
from benchmarks.text import has_answer
from judges.metric import Batch, parse
from judges.metrics.positions import find_positives
from methods.api import Evidence, Prediction
from tests.support.errors import raises

KS = (1, 2, 3, 5, 10, 100)


def batch(rows):
    """Build a batch from (positives, ranked ids) per question; all scores are equal, so only the order counts."""
    questions = [Question(f"q{i}", "?", ("gold",), evidence=tuple(row[0])) for i, row in enumerate(rows)]
    predictions = [
        Prediction(question.query_id, "", tuple(Evidence(name, 1.0) for name in row[1]))
        for question, row in zip(questions, rows, strict=True)
    ]
    return Batch(questions, predictions)


def value(metric, positives, ranked):
    return float(parse(metric).compute(batch([(positives, ranked)]))[0])


@pytest.mark.parametrize(
    ("metric", "positives", "ranked", "expected"),
    [
        ("recall@1", "ab", "abc", 0.5),  # at most 1 / positives
        ("recall@2", "ab", "abc", 1),
        ("hit@1", "ab", "bxa", 1),
        ("hit@1", "ab", "xab", 0),
        ("all@2", "ab", "axb", 0),
        ("all@3", "ab", "axb", 1),
        ("precision@5", "ab", "ab", 0.4),  # divided by k although two were returned
        ("mrr@3", "ab", "xxa", 0.5),  # the second x is dropped, so a stands second
        ("mrr@1", "ab", "xa", 0),
        ("map@3", "ab", "axb", (1 + 2 / 3) / 2),
        ("map@1", "ab", "ab", 0.5),  # all positives divide, not min(k, positives)
        ("ndcg@3", "ab", "xab", (1 / math.log2(3) + 1 / 2) / (1 + 1 / math.log2(3))),
        ("ndcg@1", "ab", "axx", 1),
        ("ndcg@3(gain=exponential)", "ab", "xab", (1 / math.log2(3) + 1 / 2) / (1 + 1 / math.log2(3))),
        ("recall@2", "ab", "aab", 1),  # a repeated id is dropped, what follows moves up
        ("recall@5", "aab", "ab", 1),  # so is a repeated positive
    ],
)
def test_values_equal_the_hand_computed_table(metric, positives, ranked, expected):
    assert value(metric, positives, ranked) == pytest.approx(expected, abs=1e-12)


METRICS = ["recall", "hit", "all", "precision", "mrr", "map", "ndcg"]


@pytest.mark.parametrize("metric", METRICS)
def test_question_without_results_scores_zero_and_stays_in_the_mean(metric):
    assert value(f"{metric}@5", "ab", "") == 0


@pytest.mark.parametrize("metric", METRICS)
def test_question_without_positives_is_unscorable(metric):
    assert np.isnan(value(f"{metric}@5", "", "abc"))


def test_unanswered_hard_question_never_raises_the_mean():
    answered = parse("recall@5").compute(batch([("a", "a"), ("b", "xyz")]))
    dropped = parse("recall@5").compute(batch([("a", "a"), ("b", "")]))
    assert dropped.mean() <= answered.mean() == 0.5


def test_scores_never_reorder_the_ranking():
    question = Question("q", "?", (), evidence=("a",))
    upside_down = Prediction(question.query_id, "", (Evidence("a", 0.1), Evidence("b", 0.9)))
    assert parse("mrr@1").compute(Batch([question], [upside_down]))[0] == 1


def test_hit_is_not_recall():
    assert value("hit@1", "ab", "a") == 1
    assert value("recall@1", "ab", "a") == 0.5


ids = st.sampled_from([f"p{number}" for number in range(6)] + ["p1#2", "p1#3", "msmarco_v2.1_doc_00_0#3_123", "#", "#1", "p 1"])
rows = st.lists(st.tuples(st.lists(ids, max_size=11), st.lists(ids, max_size=15)), max_size=8)


def naive(metric, k, positives, ranked):
    """Compute the definitions one question at a time."""
    wanted, order = set(positives), list(dict.fromkeys(ranked))
    if not wanted:
        return math.nan
    relevant = [name in wanted for name in order]
    result = sum(relevant[:k])
    if metric == "recall":
        return result / len(wanted)
    if metric == "hit":
        return float(result > 0)
    if metric == "all":
        return float(result == len(wanted))
    if metric == "precision":
        return result / k
    if metric == "mrr":
        return next((1 / rank for rank, is_gold in enumerate(relevant[:k], 1) if is_gold), 0.0)
    if metric == "map":
        return sum(sum(relevant[:rank]) / rank for rank, g in enumerate(relevant[:k], 1) if g) / len(wanted)
    gained = sum(1 / math.log2(rank + 1) for rank, is_gold in enumerate(relevant[:k], 1) if is_gold)
    return gained / sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(wanted)) + 1))


@given(rows, st.sampled_from(METRICS), st.integers(1, 16))
def test_every_metric_equals_a_naive_loop(rows, metric, k):
    expected = [naive(metric, k, *row) for row in rows]
    np.testing.assert_allclose(parse(f"{metric}@{k}").compute(batch(rows)), np.array(expected), atol=1e-12)


@pytest.mark.slow
@given(rows)
@settings(deadline=None)
def test_recall_hit_all_mrr_and_map_never_fall_as_k_grows(rows):
    shared = batch(rows)
    for metric in ("recall", "hit", "all", "mrr", "map"):
        values = np.array([parse(f"{metric}@{k}").compute(shared) for k in KS])
        values = values[:, ~np.isnan(values[0])]
        assert (np.diff(values, axis=0) >= -1e-12).all()
        assert ((values >= 0) & (values <= 1 + 1e-12)).all()


@given(rows)
@settings(deadline=None)
def test_mrr_precision_and_hit_are_equal_at_cutoff_one(rows):
    shared = batch(rows)
    first = parse("mrr@1").compute(shared)
    np.testing.assert_array_equal(first, parse("precision@1").compute(shared))
    np.testing.assert_array_equal(first, parse("hit@1").compute(shared))


def random_run(seed, size=60, graded=False):
    rng = np.random.default_rng(seed)
    pool = [f"d{number}" for number in range(80)]
    rankings, grades = [], []
    for _ in range(size):
        rankings.append(list(rng.permutation(pool)[: rng.integers(1, 50)]))
        chosen = rng.permutation(pool)[: rng.integers(1, 20)]
        grades.append({str(name): int(rng.integers(1, 4)) if graded else 1 for name in chosen})
    return [[str(name) for name in row] for row in rankings], grades


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("graded", [False, True])
def test_untied_rankings_agree_with_pytrec_eval(seed, graded):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    rankings, grades = random_run(seed, graded=graded)
    qrels = {str(number): row for number, row in enumerate(grades)}
    run = {str(n): {name: float(-rank) for rank, name in enumerate(row)} for n, row in enumerate(rankings)}
    cuts = ",".join(map(str, KS))
    measures = {f"{name}.{cuts}" for name in ("recall", "success", "P", "map_cut", "ndcg_cut")} | {"recip_rank", "map"}
    theirs = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)
    result = find_positives(rankings, [tuple(row) for row in grades], grades if graded else None)
    ours = {"recip_rank": result.reciprocal_rank(100), "map": result.average_precision(100)}
    for k in KS:
        ours |= {
            f"recall_{k}": result.recall(k),
            f"success_{k}": result.hit(k),
            f"P_{k}": result.precision(k),
            f"map_cut_{k}": result.average_precision(k),
            f"ndcg_cut_{k}": result.ndcg(k),
        }
    for name, values in ours.items():
        expected = [theirs[str(number)][name] for number in range(len(rankings))]
        np.testing.assert_allclose(values, expected, atol=1e-9, rtol=0, err_msg=name)


def test_exponential_gain_equals_hand_computed_values():
    result = find_positives([["x", "low", "high"]], [("high", "low")], [{"high": 3.0, "low": 1.0}])
    ideal = 7 + 1 / math.log2(3)
    assert result.ndcg(3, exponential=True)[0] == pytest.approx((1 / math.log2(3) + 7 / 2) / ideal)
    assert result.ndcg(3)[0] == pytest.approx((1 / math.log2(3) + 3 / 2) / (3 + 1 / math.log2(3)))


def test_grade_of_zero_is_not_a_positive():
    with pytest.raises(ValueError, match="above 0"):
        find_positives([["a"]], [("a",)], [{"a": 0.0}])


# Rankings as grades from the first rank on (- is not judged), the judged passages that are not ranked, and what ir_measures 0.4.3
# gives for each; its ERR and exponential nDCG are gdeval's, which prints five decimals.
GRADED = [("2-01-4", "31"), ("---", "1"), ("10", ""), ("0-3-0-1-2-4-0-1--2-1", "43210"), ("4", "4444"), ("01-1----1", "")]
IR_MEASURES = {
    "ndcg@5": ([0.31524982, 0.0, 1.0, 0.148670082, 0.339160205, 0.498189257], 1e-9),
    "ndcg@5(gain=exponential)": ([0.15785, 0.0, 1.0, 0.1089, 0.33916, 0.49819], 6e-6),
    "err@5": ([0.2002, 0.0, 0.0625, 0.14583, 0.9375, 0.0459], 6e-6),
    "err@20": ([0.31921, 0.0, 0.0625, 0.1988, 0.9375, 0.052], 6e-6),
    "rbp": ([0.367936, 0.0, 0.2, 0.251640065, 0.2, 0.295954432], 1e-9),
    "rbp(p=0.95,rel=2)": ([0.088689047, 0.0, 0.0, 0.129138885, 0.05, 0.0], 1e-9),
    "judged@5": ([0.6, 0.0, 1.0, 0.6, 1.0, 0.6], 1e-9),
    "judged@20": ([0.666666667, 0.0, 1.0, 0.5, 1.0, 0.444444444], 1e-9),
}


def graded_batch():
    questions, predictions = [], []
    for number, (ranked, rest) in enumerate(GRADED):
        grades = {f"d{rank}": float(grade) for rank, grade in enumerate(ranked) if grade != "-"}
        grades |= {f"r{place}": float(grade) for place, grade in enumerate(rest)}
        positives = tuple(name for name, grade in grades.items() if grade > 0)
        questions.append(Question(str(number), "?", (), evidence=positives, grades=grades))
        predictions.append(Prediction(str(number), "", tuple(Evidence(f"d{rank}", 1.0) for rank in range(len(ranked)))))
    return Batch(questions, predictions)


@pytest.mark.parametrize("name", IR_MEASURES)
def test_graded_measures_equal_ir_measures(name):
    expected, tolerance = IR_MEASURES[name]
    np.testing.assert_allclose(parse(name).compute(graded_batch()), expected, atol=tolerance, rtol=0)


def test_grade_above_the_scale_is_refused():
    with raises("grade-too-large"):
        parse("err@5(largest=3)").compute(graded_batch())
    question = Question("q", "?", (), evidence=("a",), grades={"a": 1000.0})
    with raises("grade-too-large"):
        parse("ndcg@5(gain=exponential)").compute(Batch([question], [Prediction("q", "")]))


def test_question_without_judgments_is_unscorable_and_one_without_results_scores_zero():
    questions = [Question("a", "?", ()), Question("b", "?", (), evidence=("x",)), Question("c", "?", (), grades={"x": 0.0})]
    batch = Batch(questions, [Prediction(question.id, "") for question in questions])
    for name, expected in {"judged@5": [np.nan, 0, 0], "rbp": [np.nan, 0, np.nan], "err@5": [np.nan, 0, np.nan]}.items():
        np.testing.assert_array_equal(parse(name).compute(batch), expected)


def test_excluded_passages_are_removed_from_the_ranking():
    question = Question("q", "?", (), evidence=("a",), excluded=("own",))
    batch = Batch([question], [Prediction("q", "", (Evidence("own", 2.0), Evidence("a", 1.0)))])
    assert parse("mrr@1").compute(batch)[0] == 1.0
    assert parse("judged@1").compute(batch)[0] == 1.0


def test_documents_are_ranked_by_their_first_passage():
    passages = {name: Passage(name, "", name, document_id=name[0]) for name in ("a1", "a2", "b1", "c1", "c2")}
    question = Question("q", "?", (), evidence=("c1", "a2", "gone"), grades={"c1": 2.0, "a2": 1.0, "gone": 1.0})
    ranked = ("a1", "a2", "b1", "c2")
    batch = Batch([question], [Prediction("q", "", tuple(Evidence(name, 1.0) for name in ranked))], passages.__getitem__)
    values = {name: parse(name).compute(batch)[0] for name in ("recall@2", "recall@3(level=documents)", "hit@1(level=documents)")}
    assert values == {"recall@2": 1 / 3, "recall@3(level=documents)": 2 / 3, "hit@1(level=documents)": 1.0}
    ideal = 2 + 1 / math.log2(3) + 1 / 2
    assert parse("ndcg@3(level=documents)").compute(batch)[0] == pytest.approx((1 + 2 / 2) / ideal)
    with pytest.raises(UserError, match="documents"):
        parse("recall@3(level=documents)").compute(Batch([question], [Prediction("q", "")]))


TEXTS = {"p1": "He lives in Newark.", "p2": "Born in New York City.", "p3": "new york", "p4": ""}
PASSAGES = {name: Passage(name, "Ulm", text) for name, text in TEXTS.items()}


def answer_batch(golds, ranked, **more):
    question = Question("q", "?", tuple(golds), **more)
    evidence = tuple(Evidence(name, 1.0) for name in ranked)
    return Batch([question], [Prediction(question.query_id, "", evidence)], PASSAGES.__getitem__)


@pytest.mark.parametrize(
    ("golds", "ranked", "k", "expected"),
    [
        (["New York"], ["p1", "p2"], 1, 0),
        (["New York"], ["p1", "p2"], 2, 1),
        (["new"], ["p1"], 1, 0),  # tokens, not characters
        (["London", "York"], ["p2"], 1, 1),
        (["New York"], [], 5, 0),
        (["", "London"], ["p1", "p4"], 2, 0),
        (["Ulm"], ["p1"], 1, 0),  # occurs only in the title, which DPR's script does not read
    ],
)
def test_has_answer_gives_expected_values_at_every_cutoff(golds, ranked, k, expected):
    assert parse(f"has_answer@{k}").compute(answer_batch(golds, ranked))[0] == expected


@pytest.mark.parametrize(("golds", "answerable"), [([], True), (["..."], False), (["x"], False)])
def test_has_answer_without_gold_is_unscorable(golds, answerable):
    assert np.isnan(parse("has_answer@3").compute(answer_batch(golds, ["p1"], answerable=answerable))[0])


def test_has_answer_does_not_depend_on_the_order_of_cutoffs():
    rising, falling = answer_batch(["New York"], ["p1", "p4", "p2"]), answer_batch(["New York"], ["p1", "p4", "p2"])
    up = [parse(f"has_answer@{k}").compute(rising)[0] for k in (1, 2, 3, 4)]
    down = [parse(f"has_answer@{k}").compute(falling)[0] for k in (4, 3, 2, 1)]
    assert up == down[::-1] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("golds", "ranked", "k", "expected"),
    [
        (["New York"], ["p1", "p4", "p2", "p3"], 5, 1 / 3),
        (["New York"], ["p1", "p4", "p2"], 2, 0),
        (["London", "Newark"], ["p1", "p2"], 1, 1),
        (["London"], ["p1", "p2"], 5, 0),
        (["New York"], [], 5, 0),
    ],
)
def test_has_answer_mrr_gives_expected_values_at_every_cutoff(golds, ranked, k, expected):
    assert parse(f"has_answer_mrr@{k}").compute(answer_batch(golds, ranked))[0] == pytest.approx(expected)


WORDS = st.sampled_from(["york", "new york", "newark", "Ulm", "...", ""])


@given(
    st.lists(st.tuples(st.lists(WORDS, max_size=3), st.permutations(list("abcdef")), st.booleans()), max_size=8),
    st.lists(st.lists(WORDS, max_size=2), min_size=6, max_size=6),
    st.permutations(["has_answer@3", "has_answer_mrr@2", "has_answer_mrr@6(searched=title_text)", "has_answer_mrr@6"]),
)
def test_has_answer_mrr_equals_a_naive_loop_after_other_metrics(rows, words, metrics):
    texts = {name: " and ".join(results) for name, results in zip("abcdef", words, strict=True)}
    questions = [Question(f"q{i}", "?", tuple(row[0]), answerable=row[2]) for i, row in enumerate(rows)]
    predictions = [
        Prediction(question.query_id, "", tuple(Evidence(name, 1.0) for name in row[1]))
        for question, row in zip(questions, rows, strict=True)
    ]
    passages = {name: Passage(name, "New York", text) for name, text in texts.items()}
    query = Batch(questions, predictions, passages.__getitem__)
    results = {name: parse(name).compute(query) for name in metrics}
    for name in metrics:
        if "mrr" not in name:
            continue
        naive = []
        for golds, ranked, answerable in rows:
            value = 0.0
            for rank, item in enumerate(ranked[: int(name[15])], start=1):
                if has_answer(passages[item].full_text if "title" in name else texts[item], golds):
                    value = 1 / rank
                    break
            known = answerable and any(golds)
            naive.append(value if known else np.nan)
        np.testing.assert_allclose(results[name], naive, err_msg=name)


def test_has_answer_without_texts_is_refused():
    with raises("passage-texts-needed"):
        parse("has_answer@3").compute(batch([("a", "a")]))


def test_has_answer_reports_a_passage_missing_from_the_corpus():
    with raises("unknown-passage"):
        parse("has_answer@3").compute(answer_batch(["x"], ["p99"]))
