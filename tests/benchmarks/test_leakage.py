"""Overlap with training files, in batches of every size, of questions, answers and passages."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import leakage as module
from benchmarks.leakage import ANSWERS, CONTEXTS, QUESTION, contamination
from benchmarks.ngrams import NOWHERE, NgramIndex
from benchmarks.registry import load
from benchmarks.text import normalize
from benchmarks.training_texts import Text
from tests.support.errors import raises
from tests.support.training_files import PASSAGE, QUESTION_TEXT, grams, lines

WORDS = QUESTION_TEXT.split()


pieces = st.lists(st.tuples(st.lists(st.sampled_from(WORDS[:3]), max_size=20), st.booleans()), min_size=1, max_size=12)


@pytest.mark.slow
@given(pieces, st.lists(st.lists(st.sampled_from(WORDS[:3]), min_size=1, max_size=18), min_size=1, max_size=4), st.integers(1, 40))
def test_batch_size_does_not_change_the_result(stream, wanted, batch):
    index = NgramIndex(wanted, 13)
    scan = module._Scan(index)
    read = [Text(" ".join(words), number, joined and number > 1) for number, (words, joined) in enumerate(stream, 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BATCH_WORDS", batch)
        assert scan.file(0, iter(read), Path("x"), None) == len(read)
    whole: list[list[tuple[str, int]]] = []
    for text in read:
        if not text.joined or not whole:
            whole.append([])
        whole[-1] += [(word, text.number) for word in text.text.split()]
    met, _, first = index.counts()
    for position, words in enumerate(wanted):
        results = {
            gram: min(
                (
                    run[i][1]
                    for run in whole
                    for i in range(len(run) - len(gram) + 1)
                    if tuple(word for word, _ in run[i : i + len(gram)]) == gram
                ),
                default=None,
            )
            for gram in grams(words, 13)
        }
        assert met[position] == sum(results[gram] is not None for gram in grams(words, 13))
        assert first[position] == min((at for at in results.values() if at is not None), default=NOWHERE)


def test_question_of_sixteen_words_has_four_ngrams_and_reports_the_matched_share(benchmark_of, tmp_path):
    benchmark = benchmark_of((QUESTION_TEXT, ("yes",), PASSAGE))
    train = lines(tmp_path / "t.jsonl", {"a": "nothing of it"}, {"a": {"deep": ["x", " ".join(WORDS[:14])]}})
    (item,) = contamination([benchmark], [train]).overlaps
    assert item.words == 16
    assert not item.whole
    assert (item.result[QUESTION], item.grams[QUESTION]) == (2, 4)
    assert item.share == item.share_of(QUESTION) == 0.5
    assert item.first == f"{train}:2"


def test_case_punctuation_and_articles_are_ignored(benchmark_of, tmp_path):
    benchmark = benchmark_of((QUESTION_TEXT, ("yes",), PASSAGE))
    response = f"The {', '.join(WORDS).upper()}!"
    assert normalize(response) == QUESTION_TEXT
    (item,) = contamination([benchmark], [lines(tmp_path / "t.jsonl", {"a": response})]).overlaps
    assert item.share == 1


def test_short_question_is_matched_as_a_whole_and_short_answer_is_ignored(benchmark_of, tmp_path):
    benchmark = benchmark_of(("Who wrote Emma", ("yes",), PASSAGE))
    train = lines(tmp_path / "t.jsonl", {"a": "yes, who wrote it?"})
    (item,) = contamination([benchmark], [train]).overlaps
    assert item.whole
    assert item.share == 0
    assert item.grams == {QUESTION: 1, ANSWERS: 0}
    (item,) = contamination([benchmark], [lines(train, {"a": "I ask who wrote Emma, again"})]).overlaps
    assert item.share == 1


def test_long_answers_are_searched_and_passages_on_request(benchmark_of, tmp_path):
    benchmark = benchmark_of(("Who wrote Emma", (QUESTION_TEXT,), PASSAGE), ("Who wrote Persuasion", ("x",), PASSAGE))
    train = lines(tmp_path / "t.jsonl", {"a": QUESTION_TEXT, "b": PASSAGE})
    first, second = contamination([benchmark], [train]).overlaps
    assert (first.share_of(ANSWERS), first.share_of(QUESTION), first.share_of(CONTEXTS)) == (1, 0, None)
    assert second.share == 0
    first, second = contamination([benchmark], [train], contexts=True).overlaps
    assert first.result == {QUESTION: 0, ANSWERS: 4, CONTEXTS: 4}
    assert second.share_of(CONTEXTS) == 1
    assert second.share == 4 / 5


def test_question_without_words_has_no_overlap(benchmark_of, tmp_path):
    benchmark = benchmark_of(("?!", ("x",), PASSAGE))
    (item,) = contamination([benchmark], [lines(tmp_path / "t.jsonl", {"a": "?!"})]).overlaps
    assert (item.share, item.share_of(QUESTION), item.first) == (0, None, None)


def test_first_occurrence_is_reported_from_the_first_file(benchmark_of, tmp_path):
    benchmark = benchmark_of((QUESTION_TEXT, ("x",), PASSAGE))
    files = [lines(tmp_path / "1.jsonl", {"a": "none"}), lines(tmp_path / "2.jsonl", {"a": QUESTION_TEXT})]
    report = contamination([benchmark], [*files, lines(tmp_path / "3.jsonl", {"a": QUESTION_TEXT})])
    assert report.overlaps[0].first == f"{files[1]}:1"
    assert list(report.files.values()) == [1, 1, 1]
    assert report.words == 1 + 16 + 16


def test_bad_record_is_refused_or_skipped_and_counted(benchmark_of, tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(f'{{"a": \n{{"a": "{QUESTION_TEXT}"}}\n')
    benchmark = benchmark_of((QUESTION_TEXT, ("x",), PASSAGE))
    with raises("bad-record") as caught:
        contamination([benchmark], [path])
    assert f"{path}, line 1" in caught.value.where
    report = contamination([benchmark], [path], skip_bad=True)
    assert report.overlaps[0].first == f"{path}:2"
    assert len(report.skipped) == 1


def test_real_samples_overlap_fully_with_themselves_and_little_with_others(data_folder):
    own = data_folder / "musique" / "musique_ans_v1.0_train50.jsonl"
    other = data_folder / "nq" / "nq-dev.qa.300.csv"
    if not (own.exists() and other.exists()):
        pytest.skip("the samples of musique and nq are not there")
    benchmark = load("musique:train", {"path": str(own)})
    report = contamination([benchmark], [own], contexts=True)
    assert all(overlap.share == 1 for overlap in report.overlaps)
    # Questions share passages, so the first position may be before a question's own line but never after it.
    firsts = [int(overlap.first.rpartition(":")[2]) for overlap in report.overlaps]
    assert all(first <= own for own, first in enumerate(firsts, 1))
    assert firsts.count(1) >= 1
    assert sum(overlap.share for overlap in contamination([benchmark], [other], contexts=True).overlaps) == 0
