"""Benchmarks over candidates of mixed style: exact shares, unchanged order, and matching ids."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference, load
from benchmarks.schema import Passage, Question, passage_id
from benchmarks.settings import apply
from benchmarks.styles.mix import Survival, rewritten, styled, survival
from benchmarks.styles.pairs import ANY, Rewriting, StylePairs, restyled, write_pairs
from benchmarks.styles.rules import RuleRewriter
from benchmarks.text import has_answer
from results.store.variants import style_of_name
from tests.support.errors import raises

SAMPLES = {
    "hotpotqa:train": "hotpotqa/hotpot_distractor_train50.json",
    "musique:train": "musique/musique_ans_v1.0_train50.jsonl",
    "nq:test": "nq/nq-open-oracle.200.jsonl.gz",
}


@pytest.fixture(scope="module")
def world() -> Benchmark:
    return load("worlds/multihop:test", {"questions": 40})


@pytest.fixture(scope="module")
def pairs(world) -> StylePairs:
    return rewritten(world, RuleRewriter("test"), ("informal", "humor", "romance"))


def passage(title: str, text: str) -> Passage:
    return Passage(passage_id(title, text), title, text)


def bench(questions: list[Question], passages: list[Passage]) -> Benchmark:
    card = load("worlds/multihop:test", {"questions": 2}).card
    return Benchmark(DataReference("made", None, "test"), 1, card, questions, Corpus.of(passages))


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=12, deadline=None)
@given(informal=st.integers(0, 5), humor=st.integers(0, 5), seed=st.integers(0, 3))
def test_each_question_keeps_candidate_order_and_the_exact_style_mix(world, pairs, informal, humor, seed):
    result = styled(world, pairs, {"informal": informal / 10, "humor": humor / 10}, seed=seed)
    for before, after in zip(world.questions, result.questions, strict=True):
        assert (before.id, before.text, before.answers) == (after.id, after.text, after.answers)
        styles = []
        for old, new in zip(before.candidates, after.candidates, strict=True):
            renderings = {pairs.get(before.id, old, style).id: style for style in pairs.styles}
            styles.append("formal" if old == new else renderings[new])
        recorded = after.metadata["styled"]["counts"]
        # A text that the rules did not change counts as formal here, and is counted separately.
        unchanged = recorded.get("informal", 0) + recorded.get("humor", 0) - styles.count("informal") - styles.count("humor")
        assert unchanged >= 0
        assert recorded.get("formal", 0) == 10 - informal - humor == styles.count("formal") - unchanged
        assert recorded.get("informal", 0) == informal
        assert all(candidate in result.corpus for candidate in after.candidates)


def test_style_assignment_does_not_depend_on_other_questions(world, pairs):
    whole = styled(world, pairs, informal=0.5, seed=3)
    some = styled(world.limited(7), pairs, informal=0.5, seed=3)
    again = styled(world, RuleRewriter("test"), informal=0.5, seed=3)
    assert [q.candidates for q in whole.questions[:7]] == [q.candidates for q in some.questions]
    assert whole.fingerprint == again.fingerprint
    assert whole.fingerprint != styled(world, pairs, informal=0.5, seed=4).fingerprint


@pytest.mark.parametrize("restyled", ["evidence", "distractors"])
def test_only_evidence_or_only_distractors_can_be_restyled(world, pairs, restyled):
    whole, some = styled(world, pairs, informal=1), styled(world, pairs, informal=1, restyled=restyled)
    for before, all_new, after in zip(world.questions, whole.questions, some.questions, strict=True):
        chosen = [(item in before.evidence) == (restyled == "evidence") for item in before.candidates]
        assert after.candidates == tuple(
            new if changed else old for old, new, changed in zip(before.candidates, all_new.candidates, chosen, strict=True)
        )
        assert {item in after.evidence for item, changed in zip(after.candidates, chosen, strict=True) if changed} == {
            restyled == "evidence"
        }
    assert f"informal=1,restyled={restyled}," in some.name
    assert style_of_name(some.name).name == f"informal {restyled}"
    with raises("no-evidence-among-candidates"):
        styled(
            replace(world, questions=[replace(question, evidence=()) for question in world.questions]), pairs, informal=1, restyled=restyled
        )


def test_mix_settings_are_recorded_in_extra_and_notes(world, pairs):
    made = styled(world, pairs, informal=0.4, seed=9)
    assert made.reference == DataReference("styled", None, "test")
    response = made.extra["styled"]
    assert (response["base"], response["base_fingerprint"]) == ("worlds/multihop:test", world.fingerprint)
    assert (response["mix"], response["seed"], response["draw"]) == ({"informal": 0.4}, 9, "exact")
    assert response["by"] == {"rule": 400}
    assert "0.4 informal of worlds/multihop:test" in " ".join(made.extra["notes"])
    other = StylePairs(
        Rewriting(pair.question, pair.formal, pair.style, restyled(pair.formal, pair.styled.text + " Ha!"), pair.by) for pair in pairs
    )
    assert styled(world, other, informal=0.4, seed=9).extra["styled"]["pairs"] != response["pairs"]


def test_evidence_sentences_and_metadata_follow_the_passages(world, pairs):
    made = styled(world, pairs, romance=1.0)
    for before, after in zip(world.questions, made.questions, strict=True):
        new = dict(zip(before.candidates, after.candidates, strict=True))
        assert after.evidence == tuple(new[item] for item in before.evidence)
        expected = [fact.split("#") for fact in before.supporting_facts]
        assert after.supporting_facts == tuple(f"{new[item]}#{number}" for item, number in expected)
        steps = zip(before.metadata["steps"], after.metadata["steps"], strict=True)
        assert all(new[item["passage"]] == other["passage"] for item, other in steps)
        assert "styled" not in before.metadata


def test_style_pairs_equal_those_of_the_worlds_style_subset(world):
    """The subset samples independently, but pairs, texts and counts are equal."""
    subset = load("worlds/style:test", {"questions": 40})
    made = styled(world, informal=0.5)
    for question in world.questions:
        item, other = (
            {pair.formal.id: (pair.style, pair.styled) for pair in result.extra["styles"][question.id]} for result in (subset, made)
        )
        assert item == other
        assert sum(pair.used for pair in made.extra["styles"][question.id]) == 5


def test_lost_answer_is_recorded_per_question(world):
    lossy = styled(world, RuleRewriter("test", content_loss=0.6), informal=1.0)
    texts = {p.id: p.text for p in (*world.corpus, *lossy.corpus)}
    lost = 0
    for before, after in zip(world.questions, lossy.questions, strict=True):
        had = [has_answer(texts[item], before.golds) for item in before.evidence]
        has = [has_answer(texts[item], before.golds) for item in after.evidence]
        expected = any(has) if any(had) else None
        assert after.metadata["styled"]["survived"] is expected
        assert survival(after.metadata["styled"]).lost is (expected is False)
        lost += expected is False
    assert lost == lossy.extra["counts"]["styled_content_lost"] > 5
    assert not any(survival(q.metadata["styled"]).lost for q in styled(world, informal=1.0).questions)


def among_candidates(evidence: tuple[int, ...] = ()) -> Benchmark:
    """Return a question with four passages, of which three contain the answer; restyled, one loses it and one gains it."""
    texts = {"gold one": "gold uno", "gold two": "lost", "gold three": "the gold of three", "other": "gold other"}
    formal = [passage("t", text) for text in texts]
    ids = tuple(item.id for item in formal)
    question = Question("q", "?", ("gold",), evidence=tuple(ids[n] for n in evidence), candidates=ids)
    rendering = StylePairs(Rewriting(ANY, item, "informal", restyled(item, texts[item.text])) for item in formal)
    return styled(bench([question], formal), rendering, informal=1.0)


def test_without_evidence_one_candidate_that_lost_the_answer_counts_as_content_loss():
    """With fifty candidates, some passage nearly always keeps the answer, so this would not detect losses."""
    made = among_candidates()
    met = made.questions[0].metadata["styled"]
    assert (met["with_answer_before"], met["with_answer"], met["answers_kept"]) == (3, 3, 2)
    assert (met["among"], met["survived"]) == ("candidates", True)
    assert survival(met) == Survival(pytest.approx(2 / 3), lost=True)
    assert made.extra["counts"] == {"styled_content_thinned": 1}
    assert "1 questions without known evidence have a gold answer string that a candidate lost" in made.extra["notes"]


@pytest.mark.parametrize(("evidence", "kept", "lost"), [((0,), 1, False), ((1,), 0, True), ((0, 1), 0.5, False)])
def test_with_evidence_content_is_lost_if_no_passage_keeps_the_answer(evidence, kept, lost):
    made = among_candidates(evidence)
    assert made.questions[0].metadata["styled"]["among"] == "evidence"
    assert survival(made.questions[0].metadata["styled"]) == Survival(kept, lost)
    assert "styled_content_thinned" not in made.extra["counts"]


@pytest.mark.parametrize("met", [{"counts": {"formal": 3}}, {"survived": False}])
def test_unrecorded_content_survival_is_unknown(met):
    assert survival(met) is None


def test_two_candidates_are_never_merged():
    item, other = passage("t", "a b"), passage("t", "a c")
    question = Question("q", "?", ("b",), evidence=(item.id,), candidates=(item.id, other.id))
    same = StylePairs(Rewriting(ANY, source, "informal", restyled(source, "whatever")) for source in (item, other))
    made = styled(bench([question], [item, other]), same, informal=1.0)
    assert len(set(made.questions[0].candidates)) == 2
    assert made.questions[0].metadata["styled"]["counts"] == {"formal": 1, "informal": 1}
    assert made.extra["counts"]["styled_kept_formal"] == 1
    swap = StylePairs(Rewriting(ANY, source, "informal", restyled(source, text)) for source, text in ((item, "a c"), (other, "x")))
    made = styled(bench([question], [item, other]), swap, informal=1.0)
    assert len(set(made.questions[0].candidates)) == 2


def test_evidence_outside_the_candidates_is_unchanged():
    item, other = passage("t", "a b"), passage("t", "gold")
    question = Question("q", "?", ("gold",), evidence=(other.id,), candidates=(item.id,))
    made = styled(bench([question], [item, other]), informal=1.0)
    assert made.questions[0].evidence == (other.id,)
    assert other.id in made.corpus
    assert made.questions[0].metadata["styled"]["survived"] is None


@pytest.mark.parametrize("reference", SAMPLES)
def test_real_datasets_with_candidates_can_be_restyled(data_folder: Path, reference: str):
    base = load(reference, {"path": str(data_folder / SAMPLES[reference])}).limited(20)
    made = styled(base, informal=0.5, seed=1)
    for before, after in zip(base.questions, made.questions, strict=True):
        size = len(before.candidates)
        assert len(set(after.candidates)) == len(after.candidates) == size
        assert after.metadata["styled"]["counts"].get("formal", 0) == round(0.5 * size)
        assert len(after.evidence) == len(before.evidence)
        assert len(after.supporting_facts) == len(before.supporting_facts)
        flags = after.metadata.get("has_answer", ())
        assert all(has_answer(made.corpus.get([flag])[0].text, after.golds) for flag in flags if flag in after.candidates)


@pytest.mark.slow
def test_styled_dataset_by_name_equals_the_function_call(data_folder: Path):
    config = {"path": str(data_folder / SAMPLES["musique:train"])}
    made = styled(load("musique:train", config), informal=0.5, seed=1)
    assert load("styled:train", {"base": "musique", "base_config": config, "seed": 1}).fingerprint == made.fingerprint


def test_retrieved_candidates_can_be_restyled(world):
    listed = apply("oracle(n=4)", world, seed=0)
    made = styled(listed, informal=0.5)
    assert {q.metadata["styled"]["counts"]["formal"] for q in made.questions} == {2}
    again = apply("gold_only", made, seed=0)
    assert [q.candidates for q in again.questions] == [q.evidence for q in made.questions]


def test_styled_dataset_accepts_rules_pair_files_and_texts_of_the_base(world, pairs, tmp_path: Path):
    options = {"base_config": {"questions": 40}, "seed": 2, "mix": {"informal": 0.3}}
    by_rule = load("styled:test", options)
    path = tmp_path / "pairs.jsonl"
    write_pairs(path, pairs, rewriter="x", made_from="y")
    by_file = load("styled:test", {**options, "pairs": str(path)})
    assert by_rule.fingerprint == by_file.fingerprint == styled(world, informal=0.3, seed=2).fingerprint
    assert load("styled:train", {"base_config": {"questions": 5}}).extra["styled"]["rewriter"].startswith("rules-train")


@pytest.mark.parametrize(
    ("reference", "config", "what"),
    [
        ("styled:test", {"base": "nowhere"}, "unknown-dataset"),
        ("styled:test", {"base": "worlds/multihop:train"}, "base-split-mismatch"),
        ("styled:test", {"base": "styled"}, "styled-over-styled"),
        ("styled:test", {"base": "worlds/graph", "base_config": {"questions": 3}}, "nothing-to-restyle"),
        ("styled:test", {"mix": {"baroque": 0.5}}, "unknown-style"),
        ("styled:test", {"mix": {}}, "no-style-stated"),
        ("styled:test", {"mix": {"informal": 1.5}}, "bad-mixture-share"),
        ("styled:test", {"rewriter": "own"}, "no-parallel-texts"),
        ("styled:test", {"path": "x"}, "styled-with-file"),
        ("styled:test", {"pairs": "x", "rewriter": "rule"}, "pairs-and-rewriter"),
    ],
)
def test_invalid_options_are_refused(reference, config, what):
    with raises(what):
        load(reference, config)


def test_questions_without_candidates_are_refused(world):
    bare = replace(world, questions=[replace(question, candidates=None) for question in world.questions])
    with raises("nothing-to-restyle"):
        styled(bare, informal=0.5)
