"""NSM's numbered graphs: names of entities and relations, and vocabularies."""

import json

import pytest

from benchmarks.registry import load
from tests.support.errors import raises

ENTITIES = ["m.a", "m.z", "m.1", "m.x"]
NAMES = {"m.a": "Ada", "m.z": "Zoll", "m.1": None, "m.x": "Ada"}
RELATIONS = ["people.person.children", "people.person.place"]
NAMED = {
    "id": "q1",
    "question": "Where was Ada born?",
    "answer": ["Zoll"],
    "q_entity": ["Ada"],
    "a_entity": ["Zoll"],
    "graph": [["Ada", RELATIONS[0], "m.1"], ["m.1", RELATIONS[1], "Zoll"], ["Ada", RELATIONS[1], "Zoll"]],
    "choices": [],
}
"""The question of `nsm` in RoG's layout."""


def nsm(identifier="q1", **changes):
    return {
        "id": identifier,
        "answers": [{"kb_id": "m.z", "text": "Zoll"}],
        "question": "Where was Ada born?",
        "entities": [0],
        "subgraph": {"tuples": [[0, 0, 2], [2, 1, 1], [0, 1, 1]], "entities": [0, 1, 2]},
    } | changes


@pytest.fixture
def loaded(tmp_path):
    def load_records(*records, name="records.jsonl", **options):
        (tmp_path / name).write_text("".join(json.dumps(record) + "\n" for record in records))
        return load("webqsp:test", {"path": str(tmp_path / name), **options})

    return load_records


@pytest.fixture
def vocabularies(tmp_path):
    (tmp_path / "entities.txt").write_text("".join(f"{name}\n" for name in ENTITIES))
    (tmp_path / "relations.txt").write_text("".join(f"{name}\n" for name in RELATIONS))
    (tmp_path / "entity_name.txt").write_text("".join(f"{key}\t{name}\n" for key, name in sorted(NAMES.items())))
    return tmp_path


def test_nsm_numbers_become_the_names_used_by_rog(loaded, vocabularies):
    benchmark = loaded(nsm(), name="test_simple.json")
    named = loaded(NAMED, name="other.jsonl")
    assert benchmark.extra["layout"] == "nsm"
    assert list(benchmark.extra["graphs"]["q1"]) == list(named.extra["graphs"]["q1"])
    (question,), (same,) = benchmark.questions, named.questions
    assert (question.answers, question.topic_entities, question.candidates) == (same.answers, same.topic_entities, same.candidates)
    assert question.metadata == {"answer_ids": ["m.z"]}
    assert benchmark.extra["counts"] == {"entities_sharing_a_name": 1}


def test_entities_and_relations_are_read_as_ids_or_objects(loaded, vocabularies):
    spelled = [
        ["m.a", "people.person.children", "m.1"],
        [{"kb_id": "m.1", "text": "m.1"}, {"rel_id": 1, "text": "people.person.place"}, {"kb_id": "m.z", "text": "Zoll"}],
        [0, 1, "m.z"],
    ]
    answers = [{"kb_id": 17, "text": "m.z"}]
    changed = nsm(subgraph={"tuples": spelled, "entities": []}, entities=["m.a"], answers=answers)
    benchmark, numbered = loaded(changed), loaded(nsm(), name="numbers.json")
    assert list(benchmark.extra["graphs"]["q1"]) == list(numbered.extra["graphs"]["q1"])
    assert benchmark.questions[0].topic_entities == ("Ada",)
    assert benchmark.questions[0].metadata["answer_ids"] == ["m.z"]


def test_without_entities_txt_name_order_gives_the_numbers(loaded, vocabularies):
    with_ids = loaded(nsm(), name="a.json")
    (vocabularies / "entities.txt").unlink()
    (vocabularies / "entity_name.txt").write_text("".join(f"{key}\t{NAMES[key]}\n" for key in ENTITIES))
    assert loaded(nsm(), name="a.json").fingerprint == with_ids.fingerprint


def test_names_are_read_from_one_object_and_vocabularies_from_the_parent_folder(loaded, vocabularies):
    (vocabularies / "inner").mkdir()
    names = {key: name for key, name in NAMES.items() if name}
    (vocabularies / "entity_name.txt").unlink()
    (vocabularies / "entities_names.json").write_text(json.dumps(names))
    benchmark = loaded(nsm(answers=[{"kb_id": "m.z", "text": None}]), name="inner/test.json")
    assert benchmark.extra["graphs"]["q1"][0] == ("Ada", "people.person.children", "m.1")
    assert benchmark.questions[0].answers == ("Zoll",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"subgraph": {"tuples": [[0, 0, 4]], "entities": []}}, "bad-record"),
        ({"subgraph": {"tuples": [[0, 2, 1]], "entities": []}}, "bad-record"),
        ({"subgraph": {"tuples": [[0, -1, 1]], "entities": []}}, "bad-record"),
        ({"subgraph": {"tuples": [[0, 1]], "entities": []}}, "bad-record"),
        ({"subgraph": {"tuples": [[0, 1, True]], "entities": []}}, "bad-record"),
        ({"entities": [9]}, "bad-record"),
        ({"answers": [{"kb_id": 3, "text": None}]}, "bad-record"),
    ],
)
def test_numbers_outside_the_vocabulary_are_reported(loaded, vocabularies, changes, message):
    with raises(message) as caught:
        loaded(nsm("good"), nsm(**changes))
    assert "line 2" in caught.value.where
    assert len(loaded(nsm("good"), nsm(**changes), skip_bad=True).skipped) == 1


def test_missing_or_broken_vocabulary_is_reported(loaded, vocabularies):
    (vocabularies / "entity_name.txt").write_bytes(b"m.a\tAda\nm.z Zoll\n")
    with raises("bad-names") as caught:
        loaded(nsm())
    assert caught.value.where.endswith("entity_name.txt, line 2")
    (vocabularies / "entity_name.txt").write_bytes(b"m.a\tAda\nm.a\tBea\n")
    with raises("bad-names"):
        loaded(nsm())
    (vocabularies / "entity_name.txt").write_bytes(b"m.a\tAd\xe9\n")
    with raises("not-utf8"):
        loaded(nsm())
    (vocabularies / "relations.txt").unlink()
    with raises("missing-line-file"):
        loaded(nsm())


def test_changed_vocabulary_invalidates_the_cache(loaded, vocabularies):
    before = loaded(nsm())
    (vocabularies / "relations.txt").write_text("r.first\nr.second\n")
    after = loaded(nsm())
    assert before.extra["graphs"]["q1"][0][1] == "people.person.children"
    assert after.extra["graphs"]["q1"][0][1] == "r.first"
