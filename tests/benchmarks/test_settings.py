from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference, DatasetCard
from benchmarks.schema import Passage, Question, passage_id, triple_id
from benchmarks.settings import Setting, apply, check, insert_positives, possible_settings
from tests.support.errors import raises

NAMES = st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True)
COUNTS = st.integers(1, 500)
CORPORA = st.builds(lambda r, n: Setting("corpus", retriever=r, n=n), NAMES, COUNTS)
SETTINGS = st.one_of(
    st.sampled_from([Setting(n) for n in ("distractor", "gold_only", "document", "closed_book", "corpus")]),
    CORPORA,
    st.sampled_from([Setting("graph", scope=scope) for scope in ("question", "split")]),
    st.builds(lambda n: Setting("oracle", base=Setting("distractor"), n=n), st.none() | COUNTS),
    st.builds(lambda base, n: Setting("oracle", base=base, n=min(n, base.n)), CORPORA, COUNTS),
)


@dataclass(frozen=True)
class Ranked:
    query_id: str
    ids: tuple[str, ...]


@given(SETTINGS)
def test_setting_round_trips_through_text(setting):
    assert Setting.parse(str(setting)) == setting
    assert str(Setting.parse(str(setting))) == str(setting)
    spaced = str(setting).replace(",", " , ").replace("=", " = ").replace("(", " ( ")
    assert Setting.parse(f"  {spaced} ") == setting


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("distractor()", "distractor"),
        ("normal", "corpus"),
        ("normal(retriever=bm25)", "corpus(retriever=bm25,n=20)"),
        ("corpus(bm25, 5)", "corpus(retriever=bm25,n=5)"),
        ("corpus(n=5, retriever=bm25)", "corpus(retriever=bm25,n=5)"),
        ("oracle", "oracle(base=distractor)"),
        ("oracle(distractor, 10)", "oracle(base=distractor,n=10)"),
        ("oracle(corpus(bm25))", "oracle(base=corpus(retriever=bm25,n=20),n=20)"),
        ("oracle(base=normal(retriever=bm25,n=30),n=10)", "oracle(base=corpus(retriever=bm25,n=30),n=10)"),
        ("graph", "graph(scope=question)"),
        ("graph(split)", "graph(scope=split)"),
    ],
)
def test_setting_variants_print_canonically(text, canonical):
    assert str(Setting.parse(text)) == canonical


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not a setting"),
        ("distracter", "did you mean 'distractor'"),
        ("corpus(retreiver=bm25)", "did you mean 'retriever'"),
        ("corpus(n=5)", "has n but no retriever"),
        ("corpus(bm25,0)", "not a number from 1 on"),
        ("corpus(bm25,n=x)", "not a number from 1 on"),
        ("corpus(bm25,5,6)", "too many"),
        ("corpus(bm25,retriever=dense)", "set twice"),
        ("corpus(retriever=)", "lacks its value"),
        ("corpus(retriever=a b)", "not the name of a retriever"),
        ("distractor(n=3)", "unknown parameter"),
        ("distractor(3)", "too many"),
        ("oracle(corpus(bm25)", "do not match"),
        ("oracle(corpus)", "no candidate list"),
        ("oracle(oracle)", "no candidate list"),
        ("oracle(closed_book)", "no candidate list"),
        ("oracle(corpus(bm25,5),n=6)", "its base retrieves 5"),
        ("graph(scope=world)", "unknown scope"),
    ],
)
def test_invalid_setting_error_names_the_position(text, says):
    with pytest.raises(UserError) as caught:
        Setting.parse(text, where="x.yaml, line 3")
    assert says in "\n".join(caught.value.lines())
    assert caught.value.where == "x.yaml, line 3"


CARD = DatasetCard(
    title="T",
    task="t",
    description="",
    hub_id=None,
    revision=None,
    license="",
    citation="",
    languages=(),
    splits={"dev": None},
    metrics=(),
    settings=("distractor",),
)


def passage(number, document=None):
    text = f"text {number}"
    return Passage(passage_id("", text, document), "", text, document_id=document)


def make_benchmark(questions, passages, **extra):
    return Benchmark(DataReference("toy", None, "dev"), 1, CARD, questions, Corpus.of(passages), extra=extra)


@pytest.fixture
def benchmark():
    """Return twelve questions over 60 passages: ten candidates each, with the positives at candidates 2 and 7."""
    passages = [passage(i) for i in range(60)]
    ids = [p.id for p in passages]
    questions = []
    for i in range(12):
        own = tuple(ids[i * 4 : i * 4 + 10])
        questions.append(Question(f"q{i}", f"?{i}", ("a",), evidence=(own[7], own[2]), candidates=own))
    return make_benchmark(questions, passages)


def first_n(benchmark):
    """Return a retriever whose ranking is a rotation of the corpus that depends on the query text."""

    def retrieve(name, queries, n):
        ids = benchmark.corpus.ids
        assert name == "fake"
        assert all(query.candidates is None for query in queries)
        starts = [int(query.text[1:]) * 5 for query in queries]
        return [Ranked(q.id, tuple((ids[s:] + ids[:s])[:n])) for q, s in zip(queries, starts, strict=True)]

    return retrieve


def test_distractor_setting_keeps_the_record_order(benchmark):
    query = apply("distractor", benchmark, seed=0)
    assert [q.candidates for q in query.questions] == [q.candidates for q in benchmark.questions]


@pytest.mark.parametrize("limit", [1, 5, 12])
def test_distractor_corpus_of_a_limit_holds_only_its_candidates_and_evidence(benchmark, limit):
    elsewhere = replace(benchmark.questions[0], evidence=(benchmark.corpus.ids[-1],))
    benchmark = replace(benchmark, questions=[elsewhere, *benchmark.questions[1:]])
    few = apply("distractor", benchmark.limited(limit), seed=0)
    theirs = {identifier for question in few.questions for identifier in (*question.candidates, *question.evidence)}
    assert list(few.corpus) == [passage for passage in benchmark.corpus if passage.id in theirs]
    assert apply("corpus", benchmark.limited(limit), seed=0).corpus is benchmark.corpus


def test_corpus_setting_sets_no_candidates_and_closed_book_an_empty_list(benchmark):
    assert {q.candidates for q in apply("corpus", benchmark, seed=0).questions} == {None}
    assert {q.candidates for q in apply("closed_book", benchmark, seed=0).questions} == {()}


def test_gold_only_gives_the_evidence_in_order(benchmark):
    assert [q.candidates for q in apply("gold_only", benchmark, 0).questions] == [q.evidence for q in benchmark.questions]


def test_corpus_with_a_retriever_gives_its_ranking(benchmark):
    query = apply("corpus(fake,4)", benchmark, 0, first_n(benchmark))
    for i, question in enumerate(query.questions):
        assert question.candidates == tuple(passage(5 * i + j).id for j in range(4))


def test_oracle_does_not_change_distractors_that_contain_the_gold(benchmark):
    assert apply("oracle", benchmark, 3).questions == apply("distractor", benchmark, 3).questions


def test_oracle_truncates_a_longer_base_but_keeps_positives(benchmark):
    for before, after in zip(benchmark.questions, apply("oracle(distractor,3)", benchmark, 3).questions, strict=True):
        own = before.candidates
        assert after.candidates == (own[0], own[2], own[7])


def test_oracle_keeps_the_size_and_drops_the_lowest_ranked_negatives(benchmark):
    query = apply("oracle(corpus(fake,8))", benchmark, 3, first_n(benchmark))
    for i, question in enumerate(query.questions):
        ranking = [passage((5 * i + j) % 60).id for j in range(8)]
        assert len(question.candidates) == 8
        assert set(question.evidence) <= set(question.candidates)
        negatives = [c for c in question.candidates if c not in question.evidence]
        assert negatives == [c for c in ranking if c not in question.evidence][:6]
        kept = [c for c in question.candidates if c in ranking]
        assert kept == [c for c in ranking if c in kept]


@given(
    base=st.lists(st.integers(0, 40), unique=True, max_size=25),
    gold=st.lists(st.integers(0, 60), unique=True, max_size=5),
    n=st.integers(5, 30),
    seed=st.integers(0, 3),
)
def test_inserting_positives_keeps_size_order_and_all_positives(base, gold, n, seed):
    names, positives = [str(i) for i in base], [str(i) for i in gold]
    result = insert_positives(names, positives, n, seed, "q")
    assert result == insert_positives(names, positives, n, seed, "q")
    assert len(set(result)) == len(result) == min(n, len({*names, *positives}))
    assert set(positives) <= set(result) <= {*names, *positives}
    negatives = [name for name in names if name not in positives]
    assert [name for name in result if name not in positives] == negatives[: n - len(positives)]


def test_inserted_positions_are_uniform_and_depend_on_seed_and_question():
    base = [f"n{i}" for i in range(10)]
    positions = [insert_positives(base, ["gold"], 10, 0, f"q{i}").index("gold") for i in range(5000)]
    counts = [positions.count(i) for i in range(10)]
    # Chi-square with 9 degrees of freedom: 27.9 is exceeded once in a thousand fair draws.
    assert sum((count - 500) ** 2 / 500 for count in counts) < 27.9
    other = [insert_positives(base, ["gold"], 10, 1, f"q{i}").index("gold") for i in range(5000)]
    assert 0.05 < sum(a == b for a, b in zip(positions, other, strict=True)) / 5000 < 0.15


def test_more_positives_than_positions_is_an_error():
    with raises("too-many-positives") as caught:
        insert_positives(["a", "b"], ["c", "d"], 1, 0, "q7")
    assert "q7" in caught.value.what


@pytest.mark.parametrize("text", ["distractor", "corpus", "corpus(fake,6)", "oracle(corpus(fake,6))", "gold_only", "closed_book"])
def test_candidates_do_not_depend_on_other_questions(benchmark, text):
    whole = apply(text, benchmark, 5, first_n(benchmark)).questions
    for limit in (1, 5):
        assert apply(text, benchmark.limited(limit), 5, first_n(benchmark)).questions == whole[:limit]
    reverse = replace(benchmark, questions=benchmark.questions[::-1])
    assert apply(text, reverse, 5, first_n(benchmark)).questions == whole[::-1]


def test_seed_affects_only_the_oracle_setting(benchmark):
    def asked(text, seed):
        return apply(text, benchmark, seed, first_n(benchmark)).questions

    assert asked("oracle(corpus(fake,8))", 1) != asked("oracle(corpus(fake,8))", 2)
    for text in ("distractor", "corpus(fake,8)", "gold_only"):
        assert asked(text, 1) == asked(text, 2)


def test_positives_missing_from_the_corpus_are_skipped_and_counted(benchmark):
    questions = [replace(q, evidence=(*q.evidence, "pabsent")) for q in benchmark.questions]
    questions.append(Question("bare", "?0", (), candidates=benchmark.corpus.ids[:3]))
    lacking = replace(benchmark, questions=questions, extra={"counts": {"other": 1}, "notes": ("before",)})
    for text in ("gold_only", "oracle"):
        query = apply(text, lacking, 0)
        assert all("pabsent" not in q.candidates for q in query.questions)
        assert all("pabsent" in q.evidence for q in query.questions[:-1])
        assert query.extra["counts"] == {"other": 1, "setting_positives_left_out": 12, "setting_questions_without_positives": 1}
        assert query.extra["notes"][0] == "before"
        assert "12 positives" in query.extra["notes"][1]
    assert apply("gold_only", lacking, 0).questions[-1].candidates == ()
    assert apply("oracle", lacking, 0).questions[-1].candidates == benchmark.corpus.ids[:3]


def test_document_setting_gives_the_passages_of_the_question_document():
    passages = [passage(i, f"d{i % 2}") for i in range(6)]
    benchmark = make_benchmark([Question("q", "?", ("a",), document_id="d1")], passages)
    (question,) = apply("document", benchmark, 0).questions
    assert question.candidates == tuple(p.id for p in passages[1::2])
    assert question.query().document_id == "d1"
    stray = make_benchmark([Question("q", "?", ("a",), document_id="d7")], passages)
    with raises("question-document-missing"):
        apply("document", stray, 0)


def test_document_id_and_topics_are_hidden_unless_the_setting_provides_them():
    question = Question("q", "?", ("a",), document_id="d0", topic_entities=("m.1",))
    benchmark = make_benchmark([question], [passage(0, "d0")], graphs={"q": []})
    (closed,) = apply("closed_book", benchmark, 0).questions
    assert (closed.query().document_id, closed.query().topic_entities) == (None, ())
    assert closed.metadata["document_id"] == "d0"
    (graph,) = apply("graph", benchmark, 0).questions
    assert (graph.document_id, graph.topic_entities, graph.candidates) == (None, ("m.1",), ())


def test_graph_setting_gives_question_triples_or_the_whole_split():
    triples = [("a", "r", "b"), ("b", "r", "c"), ("a", "r", "b")]
    own = tuple(triple_id(triple) for triple in triples[:2])
    listed = Question("q", "?", ("a",), candidates=own[:1])
    unlisted = Question("p", "?", ("a",))
    benchmark = make_benchmark([listed, unlisted], [passage(0)], graphs={"q": triples[:1], "p": triples})
    assert [q.candidates for q in apply("graph(scope=question)", benchmark, 0).questions] == [own[:1], own]
    assert [q.candidates for q in apply("graph(scope=split)", benchmark, 0).questions] == [None, None]


def test_impossible_setting_error_lists_possible_settings(benchmark):
    for text in ("document", "graph"):
        with pytest.raises(UserError) as caught:
            apply(text, benchmark, 0)
        assert "toy:dev" in caught.value.what
        assert text in caught.value.what
        assert caught.value.try_this == "one of: distractor, corpus, oracle, gold_only, closed_book"
    bare = make_benchmark([Question("q", "?", ("a",))], [passage(0)])
    assert possible_settings(bare) == ("corpus", "closed_book")
    for text in ("distractor", "oracle", "oracle(corpus(fake))", "gold_only"):
        with raises("setting-not-supported"):
            check(Setting.parse(text), bare)
    only_corpus = make_benchmark([Question("q", "?", ("a",), evidence=(passage(0).id,))], [passage(0)])
    with raises("setting-not-supported"):
        apply("oracle", only_corpus, 0)
    assert "oracle" in possible_settings(only_corpus)


def test_single_question_without_candidates_is_reported(benchmark):
    questions = [*benchmark.questions, Question("odd", "?", ("a",))]
    with raises("question-without-passages"):
        apply("distractor", replace(benchmark, questions=questions), 0)


def test_retriever_that_violates_its_contract_is_refused(benchmark):
    good = first_n(benchmark)

    def swapped(name, queries, n):
        return good(name, queries, n)[::-1]

    def long(name, queries, n):
        return good(name, queries, n + 1)

    def twice(name, queries, n):
        return [Ranked(r.query_id, (r.ids[0], r.ids[0])) for r in good(name, queries, n)]

    def unknown(name, queries, n):
        return [Ranked(r.query_id, ("pnone",)) for r in good(name, queries, n)]

    for retrieve in (swapped, long, twice, unknown, None):
        with pytest.raises(ValueError, match="fake"):
            apply("corpus(fake,3)", benchmark, 0, retrieve)
