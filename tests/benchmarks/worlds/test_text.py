"""Texts, questions, distractors and graphs of worlds."""

import re
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.core.errors import UserError
from benchmarks.core.random import Draws
from benchmarks.worlds.questions import Asker, Distractors, WorldQuestion, apportion, question_graph
from benchmarks.worlds.text import NO_FACT, Library, Rendering, articles, document
from benchmarks.worlds.world import Fact, World, WorldConfig
from benchmarks.worlds.world import generate as made
from tests.support.errors import raises
from tools.tiny_lm.material import fact_material, training_world

generate = cache(made)
SMALL = WorldConfig(entities=130, community=65)
SEEDS = st.one_of(st.integers(0, 19_999), st.integers(100_000, 2**31 - 1))


def forms(entity) -> list[str]:
    """Return every name under which a text may mention an entity."""
    return [entity.name, *entity.aliases]


def says(sentence: str, fact: Fact) -> bool:
    """Return whether a sentence states a fact, by matching templates and not the generator's records."""
    tails = forms(fact.tail) if fact.tail else [fact.text]
    if not any(tail.lower() in sentence.lower() for tail in tails):
        return False  # every template names the tail
    subject = "(?:" + "|".join(map(re.escape, [*forms(fact.head), fact.head.epithet or "-"])) + ")"
    pronoun = "|".join(fact.head.pronouns)
    called = f"(?:the )?{subject}(?:, called [^,]*,)?|{pronoun}"
    for template in fact.relation.says:
        if not all(piece.lower() in sentence.lower() for piece in re.split(r"(?:\ba )?\{\w\}", template)):
            continue  # patterns take long to be made
        tail = f"(?:the )?(?:{'|'.join(map(re.escape, tails))})"
        pattern = re.escape(template).replace(r"\ a\ \{t\}", f" an? {tail}").replace(r"\{t\}", tail)
        for slot in ("h", "o", "p"):
            pattern = pattern.replace(rf"\{{{slot}\}}", f"(?:(?:{called})(?:'s)?)")
        if re.fullmatch(pattern, sentence, flags=re.IGNORECASE):
            return True
    return False


def libraries(world: World) -> list[Library]:
    return [articles(world), *(document(world, community) for community in range(world.communities))]


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(SEEDS)
def test_every_fact_is_stated_once_at_its_recorded_position(seed):
    world = generate(seed, SMALL)
    for library in libraries(world):
        stated = [fact for text in library.texts for fact in text.facts if fact != NO_FACT]
        assert len(stated) == len(set(stated)) == len(library.where)
        for fact, (row, number) in library.where.items():
            assert says(library.texts[row].passage.sentences[number], world.facts[fact])
    # The check itself can fail: no statement matches another fact of its relation.
    library = articles(world)
    for fact in world.facts[::20]:
        row, number = library.where[fact.row]
        for other in world.facts:
            if other.relation is fact.relation and other.text != fact.text:
                assert not says(library.texts[row].passage.sentences[number], other)
    assert set(articles(world).where) == set(range(len(world.facts)))
    reported = [fact for item in range(world.communities) for fact in document(world, item).where]
    assert sorted(reported) == list(range(len(world.facts)))


def test_every_text_introduces_its_entities_by_unique_names():
    """The first sentence about an entity in each run uses a name that no other entity has."""
    world = generate(100_000)
    for library in libraries(world):
        for text in library.texts:
            before = None
            for sentence, subject in zip(text.passage.sentences, text.subjects, strict=True):
                if subject != before:
                    assert any(form in sentence for form in forms(world.entities[subject])), sentence
                before = subject


def test_texts_use_pronouns_aliases_and_epithets():
    world = generate(100_000)
    sentences = [
        (sentence, world.entities[subject])
        for text in articles(world).texts
        for sentence, subject in zip(text.passage.sentences, text.subjects, strict=True)
    ]
    by_name = sum(entity.name in sentence for sentence, entity in sentences)
    by_pronoun = sum(sentence.split(" ")[0] in ("He", "She", "It", "His", "Her", "Its") for sentence, _ in sentences)
    by_alias = sum(entity.name not in sentence and any(alias in sentence for alias in entity.aliases) for sentence, entity in sentences)
    by_epithet = sum(bool(entity.epithet) and entity.epithet.lower() in sentence.lower() for sentence, entity in sentences)
    assert min(by_name, by_pronoun, by_alias) > 0.15 * len(sentences)
    assert by_epithet > 20


@pytest.mark.slow
def test_long_documents_have_at_least_60_chunks_of_about_100_words():
    for seed in (0, 10_000, *range(100_000, 100_003)):
        world = generate(seed)
        for community in range(world.communities):
            chunks = document(world, community).texts
            assert len(chunks) >= 60
            sizes = [len(chunk.passage.text.split()) for chunk in chunks]
            assert 90 <= sum(sizes) / len(sizes) <= 125
            assert max(sizes) < 180
            assert len({chunk.passage.document_id for chunk in chunks}) == 1
            # Longer chunks are the same sentences, in the same order.
            longer = document(world, community, Rendering(chunk_words=190)).texts
            assert all(len(chunk.passage.text.split()) >= 190 for chunk in longer[:-1])
            assert [item for chunk in longer for item in chunk.passage.sentences] == [s for c in chunks for s in c.passage.sentences]
    short, usual = document(world, 0, Rendering(chunk_words=25)), document(world, 0)
    assert len(short.texts) > 2 * len(usual.texts)
    assert short.where.keys() == usual.where.keys()


def check_requested(query: WorldQuestion, world: World, library: Library) -> None:
    if not query.answerable:
        assert not query.answers
        assert not query.facts
        return
    evidence = {library.where[fact.row][0] for fact in query.facts}
    texts = [library.texts[row].passage.full_text for row in sorted(evidence)]
    for answer in query.answers:
        if answer not in ("yes", "no"):
            accepted = (answer, *query.aliases.get(answer, ()))
            assert any(form in text for text in texts for form in accepted), (query, texts)
    for answer in query.answers:
        named = [entity for entity in world.entities if entity.name == answer]
        assert len(named) <= 1
        for alias in query.aliases.get(answer, ()):
            others = [entity for entity in world.entities if alias in forms(entity) and entity.name != answer]
            assert not others, f"{alias} also means {others}"
    if query.type == "bridge":
        first, second = query.facts
        assert first.tail is second.head
        assert query.answers == (second.text,)
        assert first.tail is not None
        assert first.tail.name not in query.text, "the question names what it should only describe"
    if query.type == "multi":
        assert len(query.answers) == len(query.facts) >= 2
        proof = query.facts[0]
        alike = [fact for fact in world.facts if fact.relation is proof.relation]
        if query.answers[0] == proof.text:
            complete = [fact.text for fact in alike if fact.head is proof.head]
        else:
            complete = [fact.head.name for fact in alike if fact.tail is proof.tail]
        assert sorted(complete) == sorted(query.answers)


def verdict(query: WorldQuestion) -> str:
    """Return the answer to a comparison, derived independently from both facts and the words of the question."""
    item, two = query.facts
    relation = item.relation
    a, b = forms(item.head), forms(two.head)

    def matches(template: str) -> bool:
        pattern = re.escape(template)
        for slot, names in (("a", a), ("b", b)):
            pattern = pattern.replace(rf"\{{{slot}\}}", f"(?:the )?(?:{'|'.join(map(re.escape, names))})")
        return re.fullmatch(pattern, query.text) is not None

    if any(matches(template) for template in relation.same):
        return "yes" if item.text == two.text else "no"
    for side, which, whether in relation.compare:
        first = item.number < two.number if side == "smaller" else item.number > two.number
        if matches(which):
            return item.head.name if first else two.head.name
        if matches(whether):
            return "yes" if first else "no"
    raise AssertionError(f"no template fits {query.text!r}")


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(SEEDS)
def test_every_answer_follows_from_its_evidence(seed):
    world = generate(seed, WorldConfig(entities=220))
    library = articles(world)
    questions = Asker(world, world.facts, Draws("test", seed)).ask(80, 0.1)
    assert len({question.text for question in questions}) == 80
    for question in questions:
        check_requested(question, world, library)
        if question.type == "comparison":
            assert question.answers == (verdict(question),)


def test_yes_and_no_answers_are_balanced():
    world = generate(100_000)
    questions = Asker(world, world.facts, Draws("balance", 1)).ask(400, mix={"comparison": 1.0})
    verdicts = [question.answers[0] for question in questions if question.answers[0] in ("yes", "no")]
    assert 0.4 < verdicts.count("yes") / len(verdicts) < 0.6
    which = [question for question in questions if question.answers[0] not in ("yes", "no")]
    first = sum(query.answers[0] == query.facts[0].head.name for query in which)
    assert 0.4 < first / len(which) < 0.6


def test_unanswerable_questions_ask_for_facts_that_do_not_exist():
    world = generate(100_000)
    questions = Asker(world, world.facts, Draws("none", 1)).ask(100, 1.0)
    assert {question.type for question in questions} == {"single", "bridge"}
    for question in questions:
        assert not question.answerable
        if question.type == "single":
            (topic,) = question.topics
            assert question.relations[0] not in {fact.relation.id for fact in world.by_head.get(topic.index, ())}
        else:
            (topic,) = question.topics
            middle = [f.tail for f in world.by_head[topic.index] if f.relation.id == question.relations[0]]
            assert len(middle) == 1
            assert question.relations[1] not in {fact.relation.id for fact in world.by_head.get(middle[0].index, ())}


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(SEEDS, st.integers(2, 20))
def test_distractors_never_state_a_fact_of_the_proof(seed, size):
    world = generate(seed, WorldConfig(entities=220))
    library = articles(world)
    chooser = Distractors(world, library)
    draws = Draws("test", seed)
    for query in Asker(world, world.facts, draws).ask(40, 0.1):
        rows = chooser.choose(query, size, draws)
        evidence = {library.where[fact.row][0] for fact in query.facts}
        assert len(rows) == len(set(rows)) == max(size, len(evidence))
        assert evidence <= set(rows)
        for row in set(rows) - evidence:
            text = library.texts[row]
            for sentence, subject in zip(text.passage.sentences, text.subjects, strict=True):
                assert not any(subject == fact.head.index and says(sentence, fact) for fact in query.facts)


def test_distractors_are_relevant_but_insufficient():
    world = generate(100_000)
    library = articles(world)
    chooser = Distractors(world, library)
    draws = Draws("test", 5)
    same_subject = same_relation = questions = 0
    for query in Asker(world, world.facts, draws).ask(100):
        questions += 1
        evidence = {library.where[fact.row][0] for fact in query.facts}
        others = [library.texts[row] for row in chooser.choose(query, 10, draws) if row not in evidence]
        subjects = {entity.index for entity in query.topics} | {fact.head.index for fact in query.facts}
        same_subject += any(subjects & set(text.subjects) for text in others)
        stated = {world.facts[fact].relation.id for text in others for fact in text.facts if fact != NO_FACT}
        same_relation += bool(stated & set(query.relations))
    assert same_subject > 0.6 * questions
    assert same_relation > 0.9 * questions


def test_evidence_position_among_candidates_is_uniform():
    world = generate(100_000)
    library, draws = articles(world), Draws("places", world.seed)
    chooser, positions = Distractors(world, library), []
    for item in Asker(world, world.facts, draws).ask(200, 0.0):
        evidence = {library.where[fact.row][0] for fact in item.facts}
        positions += [position for position, row in enumerate(chooser.choose(item, 10, draws)) if row in evidence]
    assert 3.8 < sum(positions) / len(positions) < 5.2


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(SEEDS)
def test_question_graph_contains_its_proof_and_topics(seed):
    world = generate(seed)
    draws = Draws("test", seed)
    for query in Asker(world, world.facts, draws).ask(20):
        graph = question_graph(world, query, 1200, draws)
        assert len(graph) == len(set(graph)) == 1200
        assert {fact.triple for fact in query.facts} <= set(graph)
        nodes = {node for head, _, tail in graph for node in (head, tail)}
        assert {entity.name for entity in query.topics} <= nodes
        assert set(graph) <= set(world.graph())


def test_graph_larger_than_the_world_is_refused():
    world = generate(0, SMALL)
    query = Asker(world, world.facts, Draws("test", 0)).ask(1)[0]
    with raises("world-too-small"):
        question_graph(world, query, 100_000, Draws("test", 1))


def test_more_questions_than_the_world_provides_are_refused():
    world = generate(0, SMALL)
    with raises("too-few-world-questions"):
        Asker(world, world.facts, Draws("test", 0)).ask(100_000)


@given(st.integers(0, 500), st.lists(st.floats(0.01, 1.0), min_size=1, max_size=4))
def test_apportioned_counts_sum_to_the_total(count, shares):
    mix = {str(i): share for i, share in enumerate(shares)}
    results = apportion(count, mix)
    assert len(results) == count
    for name, share in mix.items():
        assert abs(results.count(name) - count * share / sum(shares)) < 1


def test_fact_material_has_every_wording_of_each_fact():
    world = training_world(3, SMALL)
    material = list(fact_material(world))
    assert [item.fact for item in material] == list(world.facts)
    for item in material:
        assert set(item.statements) == {"formal", "informal", "humor", "romance"}
        assert len(item.questions) >= 3
        for texts in item.statements.values():
            assert len(texts) == len(item.fact.relation.says)
            assert all(item.answer in text for text in texts)
    with pytest.raises(UserError):
        training_world(100_000)
