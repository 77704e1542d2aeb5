"""Text primitives, compared with hand-computed tables and plain restatements of the official evaluators."""

from __future__ import annotations

import json
import re
import string
import unicodedata
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.text import (
    RULES,
    common_tokens,
    cover_em,
    em,
    f1,
    has_answer,
    is_abstention,
    is_scorable_gold,
    normalize,
    precision_recall_f1,
    sentences,
    tokens,
)
from tests.support.errors import raises

# Pieces that make normalization hard, joined at random: articles against every kind of neighbor, odd white space,
# marks, control characters, letters whose lower case depends on what follows.
PIECES = [
    "a", "A", "an", "the", "The ", " ", "  ", "\t", "\n", "\x0b", "\x1c", "\x00", "\x01", "\x7f", "é", "e\u0301",
    "a\u0301", "–", "’", "Σ", "ΑΣ", "İ", "ß", "x", "yes", "no", "noanswer", "True", "-", ".", "_", "'", "\u00a0",
    "\u2003", "9", "²", "中", "\ud800", "word", "Word",
]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES), max_size=8).map("".join) | st.text(max_size=30)
ordinary = st.lists(st.sampled_from(["cat", "dog", "the", "of", "yes", "no", "New York", "York", "a"]), max_size=6).map(" ".join)


def official_normalize(s):
    """Return `normalize_answer` of SQuAD 1.1, as used by HotpotQA, 2Wiki, MuSiQue, LongBench and RoG."""

    def remove_articles(text):
        return re.sub(r"\b(a|an|the)\b", " ", text)

    def white_space_fix(text):
        return " ".join(text.split())

    def remove_punc(text):
        exclude = set(string.punctuation)
        return "".join(ch for ch in text if ch not in exclude)

    return white_space_fix(remove_articles(remove_punc(s.lower())))


def official_overlap(prediction_tokens, gold_tokens):
    common = Counter(prediction_tokens) & Counter(gold_tokens)
    num_same = sum(common.values())
    if num_same == 0:
        return 0.0, 0.0, 0.0
    precision = 1.0 * num_same / len(prediction_tokens)
    recall = 1.0 * num_same / len(gold_tokens)
    return precision, recall, (2 * precision * recall) / (precision + recall)


def squad(prediction, gold):
    return official_overlap(official_normalize(prediction).split(), official_normalize(gold).split())


def hotpotqa(prediction, gold):
    a, b = official_normalize(prediction), official_normalize(gold)
    if a in ["yes", "no", "noanswer"] and a != b:
        return 0.0, 0.0, 0.0
    if b in ["yes", "no", "noanswer"] and a != b:
        return 0.0, 0.0, 0.0
    return official_overlap(a.split(), b.split())


def musique(prediction, gold):
    a, b = official_normalize(prediction).split(), official_normalize(gold).split()
    if len(a) == 0 or len(b) == 0:
        return (float(a == b),) * 3
    return official_overlap(a, b)


def clara(prediction, gold):
    mapped = [{"True": "yes", "False": "no"}.get(text, text) for text in (prediction, gold)]
    return hotpotqa(*mapped)


OFFICIAL = {"squad": squad, "longbench": squad, "rog": squad, "hotpotqa": hotpotqa, "musique": musique, "squad_v2": musique, "clara": clara}


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Cat!", "cat"),
        ("  a  cat  and\tan\n dog ", "cat and dog"),
        ("well-known", "wellknown"),  # deleted, not replaced by a space
        ("U.S.A.", "usa"),
        ("the the a an", ""),
        ("A", ""),
        ("The The", ""),
        ("Theatre another", "theatre another"),  # whole words only
        ("a.", ""),  # punctuation goes first, so this is an article
        ("a_b the", "ab"),  # the underscore is punctuation
        ("a–the–b", "– –b"),  # the en dash is not, and an article beside it is a whole word
        ("Éa", "éa"),
        ("it's $5,000", "its 5000"),
        ("", ""),
    ],
)
def test_squad_normalization_gives_expected_text(text, normal):
    assert normalize(text) == normal == official_normalize(text)


@given(texts)
def test_normalize_equals_the_official_function(text):
    for rules in ("squad", "squad_v2", "hotpotqa", "musique", "longbench", "rog"):
        assert normalize(text, rules) == official_normalize(text)


@given(texts)
@settings(deadline=None)
def test_long_and_cached_texts_normalize_equally(text):
    long = text + " " + "word " * 60
    assert normalize(long) == official_normalize(long)
    assert normalize(text) == normalize(text) == RULES["squad"].normalize(text)


def test_clara_rules_map_exact_true_and_false_to_yes_and_no():
    assert normalize("True", "clara") == "yes"
    assert normalize("False", "clara") == "no"
    assert normalize("true", "clara") == "true"
    assert normalize("True story", "clara") == "true story"


def test_unknown_rules_suggest_the_nearest():
    with raises("unknown-normalization-rules"):
        normalize("x", "hotpot_qa")


@pytest.mark.parametrize("gold", ["A", "The The", "", "...", "an", " the. "])
def test_gold_that_normalizes_to_nothing_is_not_scorable(gold):
    assert not is_scorable_gold(gold)


def test_single_letter_other_than_an_article_is_scorable():
    assert is_scorable_gold("B")
    assert is_scorable_gold("A", "strict")


@pytest.mark.parametrize(
    ("prediction", "golds", "rules", "expected"),
    [
        ("the Eiffel Tower", ["Eiffel tower."], "squad", 1.0),
        ("the Eiffel Tower", ["Eiffel tower."], "strict", 0.0),
        ("Paris", ["London", "paris"], "squad", 1.0),  # any gold
        ("Paris", [], "squad", 0.0),
        ("True", ["yes"], "clara", 1.0),
        ("True", ["yes"], "squad", 0.0),
    ],
)
def test_exact_match_gives_expected_values(prediction, golds, rules, expected):
    assert em(prediction, golds, rules) == expected


@pytest.mark.parametrize(
    ("prediction", "golds", "rules", "expected"),
    [
        ("the cat sat", ["cat sat down"], "squad", 0.8),  # 2 common, 2 and 3 tokens
        ("cat cat", ["cat"], "squad", 2 / 3),  # repeated tokens count once
        ("cat cat", ["cat cat cat"], "squad", 0.8),  # multisets: 2 common of 2 and 3
        ("yes it is", ["yes"], "squad", 0.5),
        ("yes it is", ["yes"], "hotpotqa", 0.0),  # the yes/no rule
        ("no", ["no way"], "hotpotqa", 0.0),
        ("no", ["no way"], "musique", 2 / 3),  # MuSiQue has none
        ("yes", ["Yes."], "hotpotqa", 1.0),
        ("", [""], "squad", 0.0),
        ("", [""], "longbench", 0.0),
        ("the", ["a"], "musique", 1.0),
        ("", [""], "squad_v2", 1.0),
        ("cat", [""], "musique", 0.0),
        ("wellknown cat", ["well-known cat"], "squad", 1.0),
        ("cat", ["dog", "cat"], "longbench", 1.0),  # maximum over answers, not the first alone
    ],
)
def test_f1_gives_expected_values(prediction, golds, rules, expected):
    assert f1(prediction, golds, rules) == pytest.approx(expected, abs=1e-15)


@given(texts | ordinary, st.lists(texts | ordinary, max_size=4), st.sampled_from(sorted(OFFICIAL)))
def test_precision_recall_f1_equal_the_official_evaluators(prediction, golds, rules):
    each = [OFFICIAL[rules](prediction, gold) for gold in golds]
    expected = tuple(max((scores[part] for scores in each), default=0.0) for part in range(3))
    assert precision_recall_f1(prediction, golds, rules) == expected


@given(texts | ordinary, texts | ordinary, st.sampled_from(sorted(OFFICIAL)))
@settings(deadline=None)
def test_f1_is_symmetric_and_swaps_precision_and_recall(left, right, rules):
    precision, recall, value = precision_recall_f1(left, [right], rules)
    assert precision_recall_f1(right, [left], rules) == pytest.approx((recall, precision, value), abs=1e-12)
    assert 0 <= value <= 1


@given(texts | ordinary, st.lists(texts | ordinary, min_size=1, max_size=4), st.sampled_from(sorted(OFFICIAL)))
@settings(deadline=None)
def test_f1_and_cover_are_at_least_em_over_scorable_golds(prediction, golds, rules):
    golds = [gold for gold in golds if is_scorable_gold(gold, rules)]
    exact = em(prediction, golds, rules)
    assert f1(prediction, golds, rules) >= exact
    assert all(cover_em(prediction, golds, match, rules) >= exact for match in ("substring", "word", "tokens"))


@given(st.lists(st.sampled_from("abcd"), max_size=6), st.lists(st.sampled_from("abcd"), max_size=6))
@settings(deadline=None)
def test_common_tokens_equals_the_multiset_intersection(left, right):
    assert common_tokens(left, right) == sum((Counter(left) & Counter(right)).values())


@pytest.mark.parametrize(
    ("prediction", "gold", "substring", "word", "tokens_"),
    [
        ("It was in New York.", "New York", 1, 1, 1),
        ("York is new to me", "New York", 0, 0, 1),  # CLaRa's code and its wording differ
        ("Johnson", "John", 1, 0, 0),  # and the other way round
        ("the answer", "A", 0, 0, 0),  # trap: normalizes to nothing, lies in everything
        ("cat", "cat cat", 0, 0, 1),  # tokens ignore how often
        ("", "cat", 0, 0, 0),
        ("New-York", "New York", 0, 0, 0),  # punctuation is deleted, which joins the words
    ],
)
def test_cover_em_gives_expected_values_for_three_definitions(prediction, gold, substring, word, tokens_):
    results = [cover_em(prediction, [gold], match) for match in ("substring", "word", "tokens")]
    assert results == [substring, word, tokens_]


def test_unknown_match_is_an_error():
    with raises("unknown-match"):
        cover_em("a b", ["b"], "substrings")


@pytest.mark.parametrize("text", ["", "the", "Unanswerable.", "No answer", "I don't know", "I don’t know.", "noanswer"])
def test_abstentions_are_recognized(text):
    assert is_abstention(text)


@pytest.mark.parametrize("text", ["no", "Unknown Mortal Orchestra", "The answer is not in the text: 5"])
def test_other_answers_are_not_abstentions(text):
    assert not is_abstention(text)


def dpr_tokens(text):
    """Return DPR's SimpleTokenizer tokens, uncased, of the NFD form, with the `regex` module as in DPR."""
    regex = pytest.importorskip("regex")
    pattern = regex.compile(r"([\p{L}\p{N}\p{M}]+)|([^\p{Z}\p{C}])", regex.IGNORECASE + regex.UNICODE + regex.MULTILINE)
    return [match.group().lower() for match in pattern.finditer(unicodedata.normalize("NFD", text))]


def dpr_has_answer(text, golds):
    words = dpr_tokens(text)
    for gold in golds:
        wanted = dpr_tokens(gold)
        if wanted and any(words[i : i + len(wanted)] == wanted for i in range(len(words) - len(wanted) + 1)):
            return True
    return False


# Code points that are assigned in every Unicode version in use: tables of different ages agree on them.
settled = st.characters(codec="utf-8", max_codepoint=0x2FFF, exclude_categories=("Cn",))


@pytest.mark.slow
@given(texts | st.text(settled, max_size=20))
def test_dpr_tokens_equal_the_original_tokenizer(text):
    # `regex` knows characters that Python's own Unicode tables do not have yet; on those the two may differ.
    known = "".join(character for character in text if unicodedata.category(character) != "Cn")
    assert tokens(known, "dpr") == dpr_tokens(known)


@pytest.mark.parametrize(
    ("text", "golds", "expected"),
    [
        ("He was born in New York City.", ["new york"], True),
        ("He was born in Newark.", ["new"], False),  # tokens, not characters
        ("the café", ["cafe\u0301"], True),  # NFD on both sides
        ("the cafe", ["café"], False),  # the accent counts
        ("York, New", ["New York"], False),  # order counts
        ("well-known", ["well - known"], True),
        ("anything", ["", "  "], False),  # trap: an empty gold occurs nowhere
        ("the band The The", ["The The"], True),  # articles are words here
        ("", ["x"], False),
    ],
)
def test_has_answer_gives_expected_values(text, golds, expected):
    assert has_answer(text, golds) is expected


@given(ordinary, st.lists(ordinary | texts, max_size=3))
@settings(deadline=None)
def test_has_answer_equals_the_dpr_rule(text, golds):
    assert has_answer(text, golds) == dpr_has_answer(text, golds)


def test_has_answer_agrees_with_flags_of_real_contexts(data_folder):
    """Flags from others by DPR's rule; their golds were cleaned differently, so nearly all agree."""
    import gzip

    agree = total = 0
    for path in sorted((data_folder / "nq").glob("*.jsonl.gz")):
        for line in gzip.decompress(path.read_bytes()).decode("utf-8").splitlines():
            row = json.loads(line)
            for context in row.get("ctxs", ()):
                if "hasanswer" in context:
                    total += 1
                    agree += has_answer(context["text"], row["answers"]) == context["hasanswer"]
    assert total > 100
    assert agree / total > 0.98


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Dr. J. R. Smith met Mrs. Jones. They left.", ["Dr. J. R. Smith met Mrs. Jones.", "They left."]),
        ("It costs 3.50 today. Not 4.", ["It costs 3.50 today.", "Not 4."]),
        ("The U.S. Army, e.g. Fort No. 5 here. End.", ["The U.S. Army, e.g. Fort No. 5 here.", "End."]),
        ("He said no. She left.", ["He said no.", "She left."]),
        ('He said "Go." Then he went.', ['He said "Go."', "Then he went."]),
        ("A heading\n\nThe text goes\non. More", ["A heading", "The text goes\non.", "More"]),
        ("你好。再见！", ["你好。", "再见！"]),
        ("site example.com is up. ok", ["site example.com is up. ok"]),
        ("Wait... What", ["Wait...", "What"]),
        ("  \n ", []),
    ],
)
def test_sentences_are_split_as_expected(text, expected):
    assert sentences(text) == expected


@given(st.text(alphabet="aAB.!? \n\"'。é1", max_size=60))
@settings(deadline=None)
def test_sentence_split_loses_only_white_space(text):
    results = sentences(text)
    assert "".join("".join(results).split()) == "".join(text.split())
    assert all(sentence == sentence.strip() != "" for sentence in results)
    at = 0
    for sentence in results:
        at = text.index(sentence, at) + len(sentence)
