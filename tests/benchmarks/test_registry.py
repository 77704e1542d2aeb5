import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from benchmarks import registry
from benchmarks.core.errors import UserError
from benchmarks.core.plugins import Registry
from benchmarks.corpus import Corpus
from benchmarks.registry import DATASETS, Benchmark, DataReference, DatasetCard, SkippedRecord, load, register, resolve
from benchmarks.schema import Passage, Question, passage_id
from benchmarks.settings import Setting
from tests.support.errors import raises
from tests.support.plugin import FILES, Plugin

WORDS = st.from_regex(r"[a-z0-9_.-]{1,6}", fullmatch=True)


@pytest.mark.slow
@given(WORDS, st.none() | WORDS, st.none() | st.lists(WORDS, min_size=1, max_size=3).map("+".join))
def test_data_reference_round_trips_through_text(name, subset, split):
    reference = DataReference(name, subset, split)
    assert DataReference.parse(str(reference)) == reference


@pytest.mark.parametrize("text", ["", "a b", "a/b/c", "a:", "a:b:c", "a:b+", "/b"])
def test_invalid_data_reference_is_refused_with_the_expected_form(text):
    with raises("not-data-reference") as caught:
        DataReference.parse(text)
    assert "name[/subset][:split]" in caught.value.try_this


def test_three_multi_hop_datasets_are_registered_with_complete_cards():
    entries = {entry.id: entry for entry in DATASETS}
    assert {"hotpotqa", "2wikimultihopqa", "musique"} <= entries.keys()
    for entry in entries.values():
        card = entry.card
        assert card.title
        assert card.license
        assert card.metrics
        if entry.id != "files":  # those of their owners
            assert card.languages
            assert card.citation.startswith("@")
        assert entry.default_split in card.splits
        if card.hub_id and card.revision is None:
            assert "not pinned yet" in card.notes
        for setting in card.settings:
            Setting.parse(setting)


def test_card_is_frozen_and_complete():
    card = next(iter(DATASETS)).card
    with pytest.raises(ValidationError):
        card.title = "other"
    for name in ("license", "citation", "languages", "splits", "metrics"):
        with pytest.raises(ValidationError):
            DatasetCard.model_validate({k: v for k, v in card.model_dump().items() if k != name})


def test_cards_name_splits_with_the_same_questions_in_full():
    named = 0
    for entry in DATASETS:
        for key, references in entry.card.same_questions.items():
            subset, _, split = key.rpartition(":")
            for text in (str(DataReference(entry.id, subset or None, split)), *references):
                assert str(resolve(text)[0]) == text
                named += 1
    assert named > 100


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("hotpotqa", "hotpotqa/distractor:dev"),
        ("hotpotqa/fullwiki", "hotpotqa/fullwiki:dev"),
        ("musique:train+dev", "musique/ans:train+dev"),
        ("2wikimultihopqa", "2wikimultihopqa:dev"),
    ],
)
def test_data_reference_is_completed_with_defaults(text, whole):
    assert str(resolve(text)[0]) == whole


@pytest.mark.parametrize(
    ("text", "nearest"),
    [("hotpot_qa", "hotpotqa"), ("hotpotqa/fulwiki", "fullwiki"), ("hotpotqa:trian", "train"), ("musique:train+dve", "dev")],
)
def test_misspelled_name_suggests_the_nearest(text, nearest):
    with pytest.raises(UserError, match=f"did you mean '{nearest}'"):
        resolve(text)


def test_2wiki_has_no_subsets():
    with raises("unknown-subset"):
        resolve("2wikimultihopqa/ans")


def test_wrong_options_are_user_errors():
    with raises("unknown-option"):
        load("hotpotqa", {"skipbad": True})
    with raises("bad-option"):
        load("hotpotqa", {"skip_bad": "perhaps"})


@pytest.fixture
def toy(monkeypatch):
    """Register a dataset of two splits for one test."""
    fresh = Registry("dataset", "benchmarks", "ragmeter.benchmarks")
    monkeypatch.setattr(registry, "DATASETS", fresh)
    card = DatasetCard(
        title="T",
        task="t",
        description="",
        hub_id=None,
        revision=None,
        license="l",
        citation="@c",
        languages=("en",),
        splits={"a": 2, "b": 2, "same": 2},
        metrics=("em",),
        settings=("corpus",),
    )

    def passage(text):
        return Passage(passage_id("", text), "", text)

    @register("toy", card=card, default_split="a")
    def load_toy(reference, config):
        name = "a" if reference.split == "same" else reference.split
        questions = [Question(f"{name}{i}", "?", ("x",), evidence=(passage(name).id,)) for i in range(2)]
        corpus = Corpus.of([passage("shared"), passage(name)])
        skipped = (SkippedRecord(name, "bad"),)
        extra = {"counts": {"odd": 1, name: 2}, "notes": (f"note {name}",), "graphs": {name: []}, "kind": name}
        return Benchmark(reference, 1, card, questions, corpus, skipped, extra)

    return load_toy


def test_joined_splits_keep_all_counts_and_notes(toy):
    both = load("toy:a+b")
    assert [q.id for q in both.questions] == ["a0", "a1", "b0", "b1"]
    assert [p.text for p in both.corpus] == ["shared", "a", "b"]
    assert [s.where for s in both.skipped] == ["a", "b"]
    assert both.extra.pop("caveats") == ("2 records that could not be read were skipped",)
    assert both.extra == {"counts": {"odd": 2, "a": 2, "b": 2}, "notes": ("note a", "note b"), "graphs": {"a": [], "b": []}, "kind": "a"}
    assert str(both.reference) == "toy:a+b"


def test_question_id_in_two_joined_splits_is_an_error(toy):
    with raises("duplicate-question"):
        load("toy:a+same")


def test_fingerprint_depends_on_content_gold_and_order(toy):
    from dataclasses import replace

    item, two = load("toy:a"), load("toy:a")
    assert item.fingerprint == two.fingerprint
    questions = list(item.questions)
    changed = [
        replace(item, version=2),
        replace(item, questions=questions[::-1]),
        replace(item, questions=questions[:1]),
        replace(item, questions=[replace(questions[0], answers=("y",)), questions[1]]),
        replace(item, questions=[replace(questions[0], evidence=()), questions[1]]),
        replace(item, corpus=Corpus.of(list(item.corpus)[::-1])),
        load("toy:b"),
    ]
    assert len({item.fingerprint, *(b.fingerprint for b in changed)}) == len(changed) + 1
    noted = replace(item, questions=[replace(q, metadata={"seen": True}) for q in questions])
    assert noted.fingerprint == item.fingerprint


def test_limit_keeps_the_first_questions_and_the_whole_corpus(toy):
    whole = load("toy:a")
    assert [q.id for q in whole.limited(1).questions] == ["a0"]
    assert whole.limited(1).corpus is whole.corpus
    assert whole.limited(None) is whole.limited(9) is whole


def test_name_registered_by_another_module_is_an_error(toy):
    with raises("duplicate-name"):
        registry.DATASETS.add(registry.DATASETS.get("toy"), "another.module")


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    plugin = Plugin(tmp_path)
    yield plugin
    plugin.forget()


ENTRY = "acme_rag-1.2.dist-info/entry_points.txt"
METADATA = {"acme_rag-1.2.dist-info/METADATA": FILES["acme_rag-1.2.dist-info/METADATA"]}


@pytest.mark.parametrize(
    ("files", "where", "cause"),
    [
        ({"acme/app.py": "x = 1\nimport lost_package\n"}, "acme/app.py:2", "lost_package"),
        ({"acme/app.py": "x = 1\nfrom acme import helper\n", "acme/helper.py": "\n\n1 / 0\n"}, "acme/helper.py:3", "ZeroDivisionError"),
        ({"acme/app.py": "\ndef (\n"}, "acme/app.py:2", "SyntaxError"),
        ({"acme/app.py": "raise SystemExit('no')\n"}, "acme/app.py:1", "no"),
        (
            {"acme/app.py": "x = 1\n", ENTRY: "[ragmeter.benchmarks]\nacme = acme.app:lost\n"},
            "acme = acme.app:lost of acme-rag 1.2",
            "lost",
        ),
        ({"acme/app.py": None}, "acme = acme.app of acme-rag 1.2", "acme.app"),
        ({"acme/app.py": None, "acme/__init__.py": None}, "acme = acme.app of acme-rag 1.2", "'acme'"),
    ],
)
def test_plugin_import_error_names_cause_and_line(plugin, files, where, cause):
    every = {"acme/__init__.py": "", ENTRY: "[ragmeter.benchmarks]\nacme = acme.app\n", **METADATA, **files}
    plugin.write({name: text for name, text in every.items() if text is not None})
    fresh = Registry("dataset", "benchmarks", "ragmeter.benchmarks")
    fresh.add(DATASETS.get("hotpotqa"), "another.module")
    with raises("plugin-cannot-be-loaded", where=where) as caught:
        fresh.get("hotpotq")
    assert "'acme'" in caught.value.what
    assert cause in caught.value.what
    assert "'hotpotqa'" in caught.value.try_this  # and the name may be misspelled
    assert fresh.get("hotpotqa").id == "hotpotqa"


def test_manually_removed_package_is_reported(plugin):
    plugin.write({ENTRY: "[ragmeter.benchmarks]\nlost = lost_acme.app\nacme = lost_acme.other\n", **METADATA})
    fresh = Registry("dataset", "benchmarks", "ragmeter.benchmarks")
    with raises("plugin-cannot-be-loaded", where="acme = lost_acme.other of acme-rag 1.2") as caught:
        fresh.get("acme")
    assert "lost (`ragmeter doctor`)" in caught.value.try_this
    assert set(fresh.broken) == {"lost", "acme"}
