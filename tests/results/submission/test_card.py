"""The card: what it must say, and that nothing in it can do anything."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks.core.errors import UserError
from results.submission.card import Card, card_yaml, dataset_options, parse_card

CARD = """\
method:
  name: my-method
  version: 1.10
  authors: [A. Author, "Zoë 🏔"]
  url: https://example.org/x
  parameters: 22000000
  open_weights: true
benchmark: worlds/multihop:validation
setting: normal(bm25, 5)
limit: 12
config: {seed: 10007, mix: {single: 1.0}}
models: [{role: reader, id: org/model, revision: no}]
training_data:
  - {reference: "worlds/multihop:train", seeds: 0-99}
  - {name: Wikipedia, url: "http://example.org", note: "a dump"}
settings: {k: 5, prompt: "Answer:\\nbriefly", list: [1, null, yes]}
"""


def card(text: str = CARD) -> Card:
    return parse_card(text.encode(), "card.yaml")


def refused(text: str | bytes) -> UserError:
    with pytest.raises(UserError) as caught:
        parse_card(text.encode() if isinstance(text, str) else text, "card.yaml")
    assert caught.value.where is not None
    assert caught.value.where.startswith("card.yaml")
    return caught.value


def test_a_card_says_what_was_written_and_its_types_say_what_is_a_number() -> None:
    result = card()
    assert (result.method.label, result.method.parameters, result.method.open_weights) == ("my-method@1.10", 22_000_000, True)
    assert str(result.setting) == "corpus(retriever=bm25,n=5)"
    assert result.models[0].revision == "no"
    assert result.settings["list"] == ["1", None, "yes"]
    assert dataset_options(result).model_dump()["seed"] == 10007


def test_a_card_written_out_reads_back_to_an_equal_one() -> None:
    again = parse_card(card_yaml(card()).encode(), "again.yaml")
    assert again == card()
    assert again.digest == card().digest
    assert card(CARD.replace("limit: 12", "limit: 13")).digest != again.digest


def test_a_byte_order_mark_and_windows_line_ends_change_nothing() -> None:
    assert parse_card(b"\xef\xbb\xbf" + CARD.replace("\n", "\r\n").encode(), "x") == card()


@pytest.mark.parametrize(
    ("old", "new", "what", "line", "hint"),
    [
        ("limit: 12", "limits: 12", "unknown key 'limits'", 10, "did you mean 'limit'?"),
        ("  version", "  verison", "unknown key 'verison'", 3, "did you mean 'version'?"),
        ("id: org", "name: org", "unknown key 'name'", 12, "known keys"),
        ("limit: 12", "limit: many", "limit", 10, None),
        ("my-method", "my method", "method.name", 2, None),
        ("my-method", "=cmd()", "method.name", 2, None),
        ("my-method", "<script>alert(1)</script>", "method.name", 2, None),
        ("my-method", "../../etc", "method.name", 2, None),
        ("https://example.org/x", "javascript:alert(1)", "http", 5, None),
        ("https://example.org/x", "'https://x\"onload='", "http", 5, None),
        ("limit: 12", "scores: {em: 1}", "scores are always computed here", 10, "remove it"),
        ("  parameters", "  results", "scores are always computed here", 6, "remove it"),
        ("limit: 12", "seed: -1", "seed", 10, None),
        ("normal(bm25, 5)", "normall", "unknown setting", 9, "did you mean 'normal'?"),
        ("worlds/multihop:val", "wrlds/multihop:val", "unknown dataset", 8, "did you mean 'worlds'?"),
        ("validation\nset", "dev\nset", "unknown split", 8, None),
        ("seed: 10007", "sed: 10007", "unknown key 'sed'", 11, "did you mean 'seed'?"),
        ("seed: 10007", "path: /etc/passwd", "files of the machine", 11, "remove `path`"),
        ("worlds/multihop:train", "wrlds:train", "unknown dataset", 14, "go under `name`"),
        ("name: Wikipedia, ", "", "need a `reference` or a `name`", 15, None),
        ("limit: 12", "format: 2", "format", 10, None),
        ("limit: 12", "limit: 12\nlimit: 13", "occurs twice", 11, "keep one"),
        ("limit: 12", "dataset_fingerprint: xyz", "dataset_fingerprint", 10, None),
        ("A. Author", "A.\\u202eAuthor", None, 4, None),
        ("a dump", "a\\x1b[31mdump", "invisible character U+001B", 15, "remove it"),
        ("a dump", "a\\u202edump", "invisible character U+202E", 15, "remove it"),
    ],
)
def test_a_mistake_is_named_with_its_line(old: str, new: str, what: str | None, line: int, hint: str | None) -> None:
    text = CARD.replace(old, new, 1)
    if what is None:
        assert "u202e" in card(text).method.authors[0]  # outside of quotes a backslash is a backslash
        return
    error = refused(text)
    assert what in error.what
    assert error.where is not None
    assert error.where.split(" ")[0] == f"card.yaml:{line}"
    if hint is not None:
        assert hint in (error.try_this or "")


def test_training_data_must_be_declared_even_where_there_are_none() -> None:
    cut = CARD[: CARD.index("training_data")]
    error = refused(cut)
    assert "'training_data' is missing" in error.what
    assert error.try_this == "training_data: [] means that nothing was trained"
    assert card(cut + "training_data: []").training_data == ()


LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (LAUGHS, "no aliases or anchors"),
        ("a: &a [*a]", "no aliases or anchors"),
        ("<<: *x", "no aliases or anchors"),
        ('a: !!python/object/apply:os.system ["touch pwned"]', "no tags"),
        ("a: !!python/name:os.system", "no tags"),
        ("!!set {a, b}", "no tags"),
        ("a: !custom 1", "no tags"),
        ("[" * 60_000, "deeper than"),
        ("{a: " * 50_000, "deeper than"),
        ("- " * 60_000 + "x", "deeper than"),
        ("a: 1\n---\nb: 2", "one YAML document"),
        ("a: [1", "not YAML"),
        ("a: b: c", "not YAML"),
        ("? [a, b]\n: c", "keys of the card must be text"),
        ("just text", "mapping of keys"),
        ("", "mapping of keys"),
        (b"a: \xff", "not UTF-8"),
        (b"\xff\xfea\x00", "not UTF-8"),
        ("x: " + "y" * 300_000, "longer than"),
        ("a: \x07", "not YAML"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_what_could_do_harm_is_refused_quickly(text: str | bytes, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    started = time.process_time()
    assert what in refused(text).what
    assert time.process_time() - started < 5
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_card_of_the_largest_size_is_read_in_seconds() -> None:
    ids = ", ".join(f"q{number:016x}" for number in range(12_000))
    started = time.process_time()
    result = card(CARD.replace("seeds: 0-99}", f"seeds: 0-99, question_ids: [{ids}]}}"))
    assert len(result.training_data[0].question_ids) == 12_000
    assert time.process_time() - started < 20


@pytest.mark.parametrize(
    "config",
    ["worlds: 1000000", "worlds: 100, entities: 4000", "questions: 50001", "decoys: 1e9", "candidates: 100000", "triples: 1000000"],
)
def test_card_cannot_ask_for_unbounded_work(config: str) -> None:
    error = refused(CARD.replace("seed: 10007", config))
    assert error.where == f"card.yaml:11 (config.{config.partition(':')[0]})"
    assert "at most" in error.what


def test_card_may_ask_for_as_many_worlds_as_experiments_use() -> None:
    allowed = card(CARD.replace("seed: 10007", "worlds: 200, entities: 440, questions: 5000"))
    assert dataset_options(allowed).excess() is None
