"""Worlds as a benchmark: loader, styles, native files, difficulty."""

import json
import time

import pytest

from benchmarks.core.errors import UserError
from benchmarks.registry import load
from benchmarks.schema import Passage, passage_id, sentence_of, triple_id
from benchmarks.styles.rules import RULES, STYLES, RuleRewriter
from benchmarks.worlds.text import articles
from benchmarks.worlds.world import generate
from tests.support.errors import raises
from tests.support.worlds_native import write_native

SUBSETS = ("multihop", "long", "graph", "style")


@pytest.fixture(scope="module", autouse=True)
def _worlds_made_once():
    """Disable the cache, so that every world is generated again."""


@pytest.fixture(scope="module")
def loaded():
    return {subset: load(f"worlds/{subset}:test") for subset in SUBSETS}


@pytest.mark.slow
@pytest.mark.parametrize("subset", SUBSETS)
def test_subset_is_equal_at_every_load(loaded, subset):
    start = time.process_time()
    again = load(f"worlds/{subset}:test")
    assert time.process_time() - start < 5  # about a third of a second on an idle core
    assert again.fingerprint == loaded[subset].fingerprint
    assert again.extra == loaded[subset].extra


@pytest.mark.parametrize("subset", SUBSETS)
def test_ids_are_unique_and_evidence_is_among_the_candidates(loaded, subset):
    benchmark = loaded[subset]
    assert len(benchmark.questions) == 200
    assert len({q.id for q in benchmark.questions}) == len({q.query_id for q in benchmark.questions}) == 200
    assert len(set(benchmark.corpus.ids)) == len(benchmark.corpus)
    for question in benchmark.questions:
        assert len(set(question.candidates)) == len(question.candidates)
        assert question.evidence
        assert set(question.evidence) <= set(question.candidates) <= set(benchmark.corpus.ids)


@pytest.mark.parametrize("subset", SUBSETS)
def test_passage_ids_are_hashes_of_the_content(loaded, subset):
    for passage in loaded[subset].corpus:
        if subset == "graph":
            assert passage.id.startswith("t")
        else:
            assert passage.id == passage_id(passage.title, passage.text, passage.document_id)
            assert passage.text == " ".join(passage.sentences)


@pytest.mark.parametrize("subset", SUBSETS)
def test_query_holds_no_gold(loaded, subset):
    for question in loaded[subset].questions:
        query = question.query()
        shown = json.dumps([query.id, query.text, query.document_id, query.topic_entities])
        assert question.id not in shown
        for answer in question.answers:
            # "Which of the two, A or B" has to name both; nothing else may name the answer.
            assert answer in ("yes", "no") or question.type == "comparison" or answer not in shown


def test_supporting_sentences_contain_the_answer(loaded):
    for subset in ("multihop", "long"):
        benchmark = loaded[subset]
        for question in benchmark.questions:
            sentences = []
            for passage, index in map(sentence_of, question.supporting_facts):
                assert passage in question.evidence
                sentences.append(benchmark.corpus.get([passage])[0].sentences[index])
            assert len(sentences) == len(question.triples)
            if question.type == "bridge":
                accepted = question.golds
                assert any(form in sentences[-1] for form in accepted), (question, sentences)


def test_multihop_has_the_question_types_and_candidates_of_hotpotqa(loaded):
    benchmark = loaded["multihop"]
    counts = {kind: sum(q.type == kind for q in benchmark.questions) for kind in ("single", "bridge", "comparison", "multi")}
    assert counts == {"single": 50, "bridge": 80, "comparison": 40, "multi": 30}
    assert all(len(q.candidates) == 10 for q in benchmark.questions)
    for question in benchmark.questions:
        titles = [p.title for p in benchmark.corpus.get(question.candidates)]
        assert len(set(titles)) == len(titles)
        assert question.answer_set is (question.type == "multi")
        if question.type == "bridge":
            assert [step["answer"] for step in question.metadata["steps"]][-1] == question.answers[0]
            assert question.metadata["hops"] == 2


def test_long_documents_have_many_chunks_and_several_questions(loaded):
    benchmark = loaded["long"]
    documents = {q.document_id for q in benchmark.questions}
    assert len(documents) == 30
    for document in documents:
        queries = [q for q in benchmark.questions if q.document_id == document]
        assert len(queries) in (6, 7)
        assert len(queries[0].candidates) >= 35
        assert all(q.candidates == queries[0].candidates for q in queries)
        assert {p.document_id for p in benchmark.corpus.get(queries[0].candidates)} == {document}
        assert len({p.title for p in benchmark.corpus.get(queries[0].candidates)}) == 1


@pytest.mark.slow
def test_graph_questions_have_triples_proof_and_topics(loaded):
    benchmark = loaded["graph"]
    for question in benchmark.questions:
        graph = benchmark.extra["graphs"][question.id]
        assert len(graph) == 120
        assert set(question.triples) <= set(graph)
        assert question.evidence == tuple(dict.fromkeys(triple_id(triple) for triple in question.triples))
        assert question.candidates == tuple(triple_id(triple) for triple in graph)
        nodes = {node for head, _, tail in graph for node in (head, tail)}
        assert question.topic_entities
        assert set(question.topic_entities) <= nodes
        assert all(answer in nodes or answer in ("yes", "no") for answer in question.answers)
    triple = benchmark.extra["graphs"][benchmark.questions[0].id][0]
    assert benchmark.corpus.get([triple_id(triple)])[0].text == " ".join(triple)


def test_style_subset_has_equal_questions_and_an_exact_style_mix(loaded):
    plain, styled = loaded["multihop"], loaded["style"]
    for before, after in zip(plain.questions, styled.questions, strict=True):
        assert (before.id, before.text, before.answers) == (after.id, after.text, after.answers)
        pairs = {pair.formal.id: pair for pair in styled.extra["styles"][after.id]}
        assert set(pairs) == set(before.candidates)
        assert sum(pair.used for pair in pairs.values()) == 5
        now = [pairs[old].styled.id if pairs[old].used else old for old in before.candidates]
        assert tuple(now) == after.candidates
        moved = dict(zip(before.candidates, after.candidates, strict=True))
        assert tuple(moved[old] for old in before.evidence) == after.evidence
        assert len(after.supporting_facts) == len(before.supporting_facts)


def test_custom_style_mixes_are_exact():
    styles = {"formal": 0.2, "humor": 0.4, "romance": 0.4}
    benchmark = load("worlds/style:test", {"styles": styles, "questions": 20})
    for question in benchmark.questions:
        used = [pair.style for pair in benchmark.extra["styles"][question.id] if pair.used]
        assert (used.count("humor"), used.count("romance")) == (4, 4)


@pytest.mark.slow
def test_splits_share_no_passages_questions_or_entity_names():
    parts = {split: load(f"worlds/multihop:{split}") for split in ("train", "validation", "test")}
    names = list(parts)
    for i, item in enumerate(names):
        for other in names[i + 1 :]:
            assert not set(parts[item].corpus.ids) & set(parts[other].corpus.ids)
            assert not {q.text for q in parts[item].questions} & {q.text for q in parts[other].questions}
            assert not {p.title for p in parts[item].corpus} & {p.title for p in parts[other].corpus}


@pytest.mark.slow
def test_joined_splits_keep_the_graphs_of_both():
    both = load("worlds/graph:train+validation", {"questions": 5})
    assert set(both.extra["graphs"]) == {question.id for question in both.questions}
    assert len(both.questions) == 10


@pytest.mark.slow
def test_options_change_the_loaded_questions():
    config = {"seed": 100_050, "worlds": 3, "questions": 31, "unanswerable": 0.3, "candidates": 20, "entities": 220}
    benchmark = load("worlds/multihop:test", config)
    assert len(benchmark.questions) == 31
    assert {q.metadata["seed"] for q in benchmark.questions} == {100_050, 100_051, 100_052}
    assert 8 <= sum(not q.answerable for q in benchmark.questions) <= 10
    assert all(len(q.candidates) == 20 for q in benchmark.questions)
    assert all(not q.answers and not q.evidence for q in benchmark.questions if not q.answerable)
    only = load("worlds/multihop:test", {"mix": {"bridge": 1.0}, "questions": 20})
    assert {q.type for q in only.questions} == {"bridge"}
    unseen = load("worlds/graph:test", {"unseen_relations": True, "questions": 100})
    assert 3 < sum(q.metadata["unseen_relation"] for q in unseen.questions) < 75


@pytest.mark.parametrize(
    ("reference", "config"),
    [
        ("worlds:test", {"seed": 5}),
        ("worlds:train", {"seed": 9_999, "worlds": 2}),
        ("worlds:train", {"seed": 100_000}),
        ("worlds:train", {"unseen_relations": True}),
        ("worlds:test", {"path": "somewhere"}),
        ("worlds:test", {"mix": {"brige": 1.0}}),
        ("worlds:test", {"mix": {"bridge": 0.0}}),
        ("worlds/style:test", {"styles": {"baroque": 1.0}}),
        ("worlds:test", {"questions": 100_000}),
        ("worlds/graph:test", {"triples": 100_000}),
        ("worlds:test", {"candidates": 1}),
        ("worlds:test", {"sed": 1}),
    ],
)
def test_wrong_options_are_refused(reference, config):
    with pytest.raises(UserError):
        load(reference, config)


@pytest.mark.parametrize("style", STYLES)
def test_training_and_test_rules_are_disjoint(style):
    train, test = RULES["train"][style], RULES["test"][style]
    assert min(len(train.phrases), len(test.phrases)) > 40
    assert not {phrase.lower() for phrase in train.phrases} & {phrase.lower() for phrase in test.phrases}
    assert not set(train.swaps) & set(test.swaps)


def test_split_selects_the_rewriting_rules():
    assert [RuleRewriter(split).rules_of for split in ("train", "validation", "test")] == ["train", "train", "test"]
    with pytest.raises(UserError):
        RuleRewriter("dev")


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("seed", [1, 100_001])
def test_restyling_keeps_every_fact_and_changes_nearly_every_sentence(style, seed):
    world = generate(seed)
    library = articles(world)
    formal = [text.passage for text in library.texts]
    rewriter = RuleRewriter(world.split)
    reported = rewriter.rewrite(formal, style)
    assert reported == RuleRewriter(world.split).rewrite(formal, style)
    changed = total = swapped = 0
    rules = RULES[rewriter.rules_of][style]
    for text, new in zip(library.texts, reported, strict=True):
        assert new is not None
        assert new.id == passage_id(new.title, new.text) != text.passage.id or new.text == text.passage.text
        assert len(new.sentences) == len(text.passage.sentences)
        for before, after, fact in zip(text.passage.sentences, new.sentences, text.facts, strict=True):
            total += 1
            changed += before != after
            swapped += any(target in after for target in rules.swaps.values())
            if fact >= 0:
                item = world.facts[fact]
                for form in (item.text, *(item.tail.aliases if item.tail else ())):
                    assert form not in before or form in after
    assert changed > 0.75 * total
    assert swapped > 0.05 * total


def test_content_loss_is_optional_and_measured():
    world = generate(100_001)
    library = articles(world)
    formal = [text.passage for text in library.texts]
    reported = RuleRewriter("test", content_loss=0.3).rewrite(formal, "informal")
    facts = [
        (world.facts[fact].text, before, after)
        for text, new in zip(library.texts, reported, strict=True)
        for before, after, fact in zip(text.passage.sentences, new.sentences, text.facts, strict=True)
        if fact >= 0 and world.facts[fact].text in before
    ]
    lost = sum(answer not in after for answer, _, after in facts) / len(facts)
    assert 0.25 < lost < 0.35
    with pytest.raises(UserError):
        RuleRewriter("test", content_loss=1.5)
    with pytest.raises(UserError):
        RuleRewriter("test").rewrite(formal, "baroque")


def test_passages_without_sentences_are_restyled():
    text = "Ada was born in Rome. She died in Bern."
    passage = Passage(passage_id("", text), "", text)
    (reported,) = RuleRewriter("test", opener=1.0, closer=0.0).rewrite([passage], "informal")
    assert reported.sentences == ()
    assert reported.text.count("Ada was born in Rome.") == 1
    assert "was a goner in Bern." in reported.text


NATIVE_FIELDS = {
    "hotpotqa": ("hotpotqa/hotpot_distractor_train50.json", "json"),
    "2wikimultihopqa": ("2wikimultihopqa/2wiki_dev40.json", "json"),
    "musique": ("musique/musique_ans_v1.0_train50.jsonl", "jsonl"),
}


def _shape(value, depth=0):
    """Return the types of a value at all depths; for a list, those of its first element."""
    if isinstance(value, dict):
        return {key: _shape(item, depth + 1) for key, item in sorted(value.items())}
    if isinstance(value, list):
        return [_shape(value[0], depth + 1)] if value else []
    return type(value).__name__


def _records(path, form):
    text = path.read_text("utf-8")
    return json.loads(text) if form == "json" else [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("form", NATIVE_FIELDS)
def test_native_records_have_the_shape_of_real_ones(loaded, data_folder, tmp_path, form):
    name, kind = NATIVE_FIELDS[form]
    path = tmp_path / f"worlds.{kind}"
    write_native(loaded["multihop"], form, path)
    real = _records(data_folder / name, kind)
    ours = _records(path, kind)
    # Lists of aliases may be empty in either; take records in which they are not, where there are such.
    pick = lambda rows: max(rows, key=lambda row: len(row.get("answer_aliases", ())))  # noqa: E731
    assert _shape(pick(ours)) == _shape(pick(real))


def test_native_files_are_overwritten_only_on_request(loaded, tmp_path):
    path = tmp_path / "records.json"
    write_native(loaded["multihop"], "hotpotqa", path)
    with pytest.raises(UserError, match="in the way"):
        write_native(loaded["multihop"], "hotpotqa", path)
    write_native(loaded["multihop"], "hotpotqa", path, overwrite=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["records.json"]


def test_export_that_a_format_cannot_express_is_refused(loaded, tmp_path):
    with raises("unknown-native-format"):
        write_native(loaded["multihop"], "hotpot", tmp_path / "x")
    only = load("worlds/multihop:test", {"mix": {"multi": 1.0}, "questions": 5})
    with pytest.raises(UserError, match="can express"):
        write_native(only, "musique", tmp_path / "x")


@pytest.mark.slow
def test_bm25_finds_some_but_not_all_evidence_in_long_documents(loaded):
    from perf.worlds import bm25_recall

    for stem in (False, True):
        results = bm25_recall(loaded["long"], stem)
        assert 0.3 < sum(results) / len(results) < 0.8


@pytest.mark.soak
def test_untuned_minilm_finds_some_but_not_all_evidence():
    from perf.worlds import minilm_recall

    results = minilm_recall(load("worlds/long:test", {"worlds": 1, "questions": 100}))
    assert 0.3 < sum(results) / len(results) < 0.8
