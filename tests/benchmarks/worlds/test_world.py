"""Worlds: seeds, words, names, relations, facts."""

import hashlib
import json
import os
import re
import subprocess
import sys

import pytest
import Stemmer
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.core.errors import UserError
from benchmarks.core.random import Draws
from benchmarks.worlds.names import SIZES, all_words, introduced_by, training_words
from benchmarks.worlds.questions import Asker
from benchmarks.worlds.text import articles, document
from benchmarks.worlds.world import (
    KINDS,
    SPLITS,
    VALUES,
    Fact,
    World,
    WorldConfig,
    generate,
    relations,
    require_split,
    require_training_seed,
    split_of,
)
from tests.support.errors import raises

TEST_SEED = 100_000
SMALL = WorldConfig(entities=120, community=60)

# Any change of these changes every world: increase the loader's version with it.
GOLDEN = {7: "bc738035752cd784", 100_007: "8b32378c48191000"}


def triple(fact: Fact) -> tuple[str, str, str]:
    """Return head, relation and tail by entity id; values are unchanged."""
    return (fact.head.id, fact.relation.id, fact.tail.id if fact.tail else fact.text)


def world_hash(seed: int, config: WorldConfig | None = None) -> str:
    """Return one hash over facts, articles, long documents and questions."""
    world = generate(seed, config)
    queries = Asker(world, world.facts, Draws("golden", seed)).ask(50, 0.2)
    everything = [
        [entity.name for entity in world.entities],
        [triple(fact) for fact in world.facts],
        world.graph(),
        [text.passage.full_text for text in articles(world).texts],
        [text.passage.full_text for text in document(world, 0).texts],
        [(item.text, item.answers, [fact.row for fact in item.facts]) for item in queries],
    ]
    return hashlib.sha256(json.dumps(everything).encode()).hexdigest()[:16]


@pytest.mark.parametrize("seed", GOLDEN)
def test_world_equals_its_pinned_bytes(seed):
    assert world_hash(seed) == GOLDEN[seed]


@pytest.mark.slow
def test_world_does_not_depend_on_the_process():
    code = (
        "import importlib.util,sys;spec=importlib.util.spec_from_file_location('t',sys.argv[1]);"
        "m=importlib.util.module_from_spec(spec);spec.loader.exec_module(m);print(m.world_hash(100123,m.SMALL))"
    )
    results = {
        subprocess.run(
            [sys.executable, "-c", code, __file__], env={**os.environ, "PYTHONHASHSEED": salt}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for salt in ("1", "2")
    }
    assert results == {world_hash(100_123, SMALL)}


def test_different_seeds_give_different_worlds():
    assert len({world_hash(seed, SMALL) for seed in (0, 1, 10_000, 10_001, TEST_SEED, TEST_SEED + 1)}) == 6


def test_draws_are_pinned_and_uniform_enough():
    draws = Draws("pin", 1)
    assert [draws.below(1000) for _ in range(5)] == [562, 766, 965, 260, 93]
    counts = [0] * 10
    for _ in range(20_000):
        counts[draws.below(10)] += 1
    assert sum((count - 2000) ** 2 / 2000 for count in counts) < 27.9  # chi-square, 9 degrees, p = .001
    assert sorted(draws.sample(range(50), 50)) == list(range(50))
    assert {draws.between(3, 5) for _ in range(200)} == {3, 4, 5}


def test_seed_ranges_are_disjoint_and_fixed():
    assert [split_of(seed) for seed in (0, 9_999, 10_000, 19_999, 100_000, 5_000_000)] == [
        "train",
        "train",
        "validation",
        "validation",
        "test",
        "test",
    ]
    for split in SPLITS.values():
        for other in SPLITS.values():
            assert split is other or not set(split[:100_000]) & set(other[:100_000])


@pytest.mark.parametrize("seed", [-1, 20_000, 99_999])
def test_seed_outside_every_split_is_refused(seed):
    with raises("bad-world-seed"):
        generate(seed)


@pytest.mark.parametrize("seed", [10_000, 19_999, 100_000])
def test_training_refuses_held_out_seeds(seed):
    with raises("seed-of-other-split"):
        require_training_seed(seed)
    assert require_training_seed(9_999) == 9_999
    with pytest.raises(UserError):
        require_split(seed, "train")


def test_lexicon_words_are_short_and_none_contains_another():
    words = [word.lower() for word in all_words()]
    assert len(set(words)) == sum(SIZES.values())
    assert SIZES["train"] == 1500 == len(training_words())
    assert all(4 <= len(word) <= 8 and word.isalpha() for word in words)
    text = "|".join(words)
    assert all(text.count(word) == 1 for word in words)
    ranges = [introduced_by(split) for split in SIZES]
    assert [len(item) for item in ranges] == list(SIZES.values())
    assert ranges[0].stop == ranges[1].start
    assert ranges[1].stop == ranges[2].start


def test_invented_words_are_not_words_of_the_templates():
    used = {
        word
        for relation in relations()
        for text in (*relation.says, *relation.asks, *relation.phrases, *relation.decoys)
        for word in re.findall("[a-z]+", text.lower())
    }
    assert not used & {word.lower() for word in all_words()}


def test_training_worlds_use_only_training_words_and_test_worlds_some_new_ones():
    known = set(training_words())
    assert all(word in known for seed in (1, 2) for entity in generate(seed).entities for word in entity.words)
    for seed, split in ((TEST_SEED, "test"), (10_000, "validation")):
        fresh = {all_words()[position] for position in introduced_by(split)}
        used = [word for entity in generate(seed).entities for word in entity.words]
        assert all(word in known or word in fresh for word in used)
        assert 0.12 < sum(word in fresh for word in used) / len(used) < 0.28
    none = generate(TEST_SEED, WorldConfig(unseen_share=0.0))
    assert all(word in known for entity in none.entities for word in entity.words)


@pytest.mark.parametrize("worlds", [12, pytest.param(40, marks=pytest.mark.slow)])
def test_names_of_held_out_worlds_never_occur_in_training_worlds(worlds):
    config = WorldConfig(unseen_share=0.0)
    listed = {
        split: [entity.name for seed in range(first, first + worlds) for entity in generate(seed, config).entities]
        for split, first in (("train", 0), ("validation", 10_000), ("test", TEST_SEED))
    }
    names = {split: set(result) for split, result in listed.items()}
    assert len(names["train"]) > 125 * worlds
    assert not names["train"] & names["test"]
    assert not names["train"] & names["validation"]
    assert not names["validation"] & names["test"]
    # Name classes, not chance, keep names apart: within a split, names do recur.
    assert len(listed["train"]) > len(names["train"])


def test_there_are_enough_relations_kinds_and_templates():
    assert len(relations()) >= 36
    assert {relation.head for relation in relations()} == set(KINDS)
    assert sum(relation.held_out for relation in relations()) >= 8
    for relation in relations():
        assert len(set(relation.says)) >= 4, relation.id
        assert len(set(relation.asks)) >= 3, relation.id
        assert len(relation.says_pronoun) >= 2, relation.id
        assert relation.decoys, relation.id
        for text in relation.says:
            assert text.count("{t}") == 1, text
            assert sum(text.count(slot) for slot in ("{h}", "{o}", "{p}")) == 1, text
        for text in (*relation.asks, *relation.phrases):
            assert text.count("{h}") == 1, text
            assert "{t}" not in text, text
        assert all("{t}" not in text for text in relation.decoys), relation.id
        if relation.tail in ("year", "number"):
            assert relation.compare, relation.id
        if relation.to_entity and not relation.many:
            assert relation.phrases, relation.id


_STOP = frozenset(
    re.findall(
        r"\w+",
        "a an the of in on at by to for from with is was were are be been did does do has had have who whom whose "
        "which what when where how it its as that this and or than one into out up s would could can",
    )
)
_STEMMER = Stemmer.Stemmer("english")


def _stems(texts) -> set[str]:
    results = re.findall("[a-z]+", re.sub(r"\{\w\}", "", " ".join(texts)).lower())
    return set(_STEMMER.stemWords([word for word in results if word not in _STOP]))


def test_questions_and_statements_of_a_relation_share_no_content_word():
    for relation in relations():
        asks = (*relation.asks, *relation.phrases, *relation.inverse, *relation.same)
        compared = [text for _, which, whether in relation.compare for text in (which, whether)]
        assert _stems(relation.says), relation.id
        assert not _stems(relation.says) & _stems((*asks, *compared)), relation.id


def test_decoys_share_words_with_the_question():
    for relation in relations():
        for text in relation.decoys:
            assert _stems([text]) & _stems((*relation.asks, *relation.phrases)), text


def check_world(world: World) -> None:
    names = [entity.name for entity in world.entities]
    assert len(set(names)) == len(names)
    padded = [f" {name} " for name in names]
    joined = "|".join(padded)
    assert all(joined.count(name) == 1 for name in padded), "a name occurs inside another"
    for entity in world.entities:
        assert world.entities[entity.index] is entity
        # A few names are one invented word with common ones; all have two to four proper words beside small ones.
        assert 2 <= len(entity.name.split()) <= 6
    forms = [form for entity in world.entities for form in {entity.name, *entity.aliases}]
    assert len(set(forms)) == len(forms), "an alias means two entities"
    seen = set()
    for row, fact in enumerate(world.facts):
        assert fact.row == row
        assert fact.head.kind == fact.relation.head
        if fact.tail is not None:
            assert fact.tail.kind == fact.relation.tail
            assert fact.text == fact.tail.name
            assert fact.tail is not fact.head
            if fact.relation.when:
                assert fact.relation.when[0] <= fact.tail.year - fact.head.year <= fact.relation.when[1]
        elif fact.relation.tail in VALUES:
            assert fact.text in VALUES[fact.relation.tail]
        else:
            assert str(fact.number) == fact.text.split(" ")[0].replace(",", "")
        key = (fact.head.index, fact.relation.id, fact.text if fact.relation.many else "")
        assert key not in seen, "two values of a relation that has one"
        seen.add(key)
    assert len(set(world.graph())) == len(world.facts)
    assert len({triple(fact) for fact in world.facts}) == len(world.facts)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.one_of(st.integers(0, 19_999), st.integers(100_000, 2**31 - 1)), st.integers(60, 300), st.floats(0.1, 1.0))
def test_world_names_are_unambiguous_and_facts_well_formed(seed, entities, density):
    check_world(generate(seed, WorldConfig(entities=entities, community=60, density=density)))


@pytest.mark.slow
def test_largest_allowed_world_has_enough_names():
    world = generate(TEST_SEED, WorldConfig(entities=4000))
    check_world(world)
    assert len(world.entities) == 4000


def test_facts_about_persons_and_regions_are_consistent():
    for seed in range(5):
        world = generate(seed)
        for fact in world.facts:
            if fact.relation.id == "person.death_year":
                assert 40 <= fact.number - fact.head.year <= 90
            if fact.relation.id == "region.capital" and fact.tail is not None:
                # Its region follows from the capital and is not stated a second time.
                assert not [item for item in world.by_head.get(fact.tail.index, ()) if item.relation.id == "town.region"]
        couples = [fact for fact in world.facts if fact.relation.id == "person.spouse"]
        people = [item for fact in couples for item in (fact.head.index, fact.tail.index)]
        assert len(people) == len(set(people))


def test_unseen_relations_occur_only_in_test_worlds_that_request_them():
    held_out = {relation.id for relation in relations() if relation.held_out}
    assert not held_out & {fact.relation.id for fact in generate(TEST_SEED).facts}
    results = {fact.relation.id for fact in generate(TEST_SEED, WorldConfig(unseen_relations=True)).facts}
    assert held_out <= results
    for seed in (0, 10_000):
        with raises("held-out-relation"):
            generate(seed, WorldConfig(unseen_relations=True))
