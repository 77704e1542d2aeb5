from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.core.errors import UserError
from ragmeter import experiment, yaml_source
from ragmeter.cli import app
from tests.support.errors import raises

GOOD = """\
name: mine
benchmarks:
  - {id: worlds/multihop, split: test, setting: distractor, limit: 5}
methods:
  - id: bm25
    config: {k1: 1.2}
  - id: hybrid
    name: fused
metrics: [em, recall@5]
reference: fused
profiles:
  tiny:
    limit: 2
    methods: [{id: bm25, reader: retrieval_only}]
    reference: null
"""


def complaint(text: str, **options: str) -> UserError:
    with pytest.raises(UserError) as caught:
        experiment.parse(text, "x.yaml", **options)
    return caught.value


def test_valid_file_is_read_completely() -> None:
    result = experiment.parse(GOOD, "x.yaml")
    assert [method.name for method in result.methods] == ["bm25", "fused"]
    assert str(result.benchmarks[0].reference) == "worlds/multihop:test"
    assert result.benchmarks[0].limit == 5
    assert [str(metric) for metric in result.metrics or ()] == ["em(rules=squad)#v2", "recall@5#v2"]
    assert result.reference == "fused"


def test_first_method_that_is_not_a_control_is_the_default_reference() -> None:
    text = GOOD.replace("reference: fused\n", "").replace("- id: bm25", "- id: gold_answer").replace("    config: {k1: 1.2}\n", "")
    assert experiment.parse(text, "x.yaml").reference == "fused"


def test_profile_overrides_the_file() -> None:
    result = experiment.parse(GOOD, "x.yaml", profile="tiny")
    assert [method.name for method in result.methods] == ["bm25 + retrieval_only"]
    assert result.benchmarks[0].limit == 2


@pytest.mark.parametrize(
    ("old", "new", "what", "line", "hint"),
    [
        ("benchmarks:", "benchmark:", "unknown key 'benchmark'|'benchmarks' is missing", 2, "benchmarks"),
        ("limit: 5", "limt: 5", "unknown key 'limt'", 3, "did you mean 'limit'"),
        ("limit: 5", "limit: many", "benchmarks.0.limit", 3, None),
        ("limit: 5", "limit: 0", "must be at least 1", 3, None),
        ("{k1: 1.2}", "{stemer: null}", "unknown key 'stemer'", 6, "did you mean 'stemmer'"),
        ("{k1: 1.2}", "{k1: much}", "k1", 6, None),
        ("- id: bm25", "- id: bm52", "unknown method 'bm52'", 5, "did you mean 'bm25'"),
        ("worlds/multihop", "worlds/multihopp", "unknown subset", 3, "did you mean 'multihop'"),
        ("worlds/multihop", "world/multihop", "unknown dataset 'world'", 3, "did you mean 'worlds'"),
        ("split: test", "split: tests", "unknown split", 3, "did you mean 'test'"),
        ("setting: distractor", "setting: distracted", "unknown setting", 3, "did you mean 'distractor'"),
        ("recall@5", "recal@5", "unknown metric 'recal'", 9, "did you mean 'recall'"),
        ("recall@5", "recall", "recall needs k", 9, "recall@5"),
        ("reference: fused", "reference: fussed", "unknown method 'fussed'", 10, "did you mean 'fused'"),
        ("name: fused", "name: bm25", "two methods are called 'bm25'", 7, "name"),
        ("name: fused", "reader: bm25", "'bm25' is a retriever, not a reader", 8, "--kind reader"),
        ("- id: bm25", "- id: extractive", "'extractive' is a reader and cannot answer alone", 5, None),
        ("distractor", '"corpus(retriever=extractive)"', "'extractive' is a reader, not a retriever", 3, "--kind"),
        ("distractor", '"corpus(retriever=bm52)"', "unknown method 'bm52'", 3, "did you mean 'bm25'"),
        ("    name: fused", "    budget: 9", "option budget needs a compressor", 7, "compressor"),
        ("{k1: 1.2}", "{}\n  - {id: idk, reader: extractive}", "'idk' answers by itself and takes no reader", 7, None),
        ("{k1: 1.2}", "{}\n  - {id: idk, k: 3}", "'idk' answers by itself and takes no k", 7, "remove `k`"),
        ("[em, recall@5]", "[]", "metrics", 9, None),
    ],
)
def test_mistake_is_reported_with_line_and_remedy(old: str, new: str, what: str, line: int, hint: str | None) -> None:
    text = GOOD.replace(old, new, 1)
    if "extractive" in new:
        text = text.replace("    config: {k1: 1.2}\n", "")
    error = complaint(text)
    assert re.search(what, error.what), error.what
    assert error.where is not None
    assert error.where.startswith("x.yaml:")
    assert f"x.yaml:{line}" in error.where or (old == "benchmarks:" and "x.yaml:1" in error.where), error.where
    if hint:
        assert hint in str(error.try_this)


def test_mistake_in_a_profile_is_reported_with_its_line() -> None:
    error = complaint(GOOD.replace("reader: retrieval_only", "raeder: x"), profile="tiny")
    assert "x.yaml:14" in str(error.where)
    assert "did you mean 'reader'" in str(error.try_this)


def test_unknown_profile_suggests_the_nearest() -> None:
    assert "did you mean 'tiny'" in str(complaint(GOOD, profile="tyni").try_this)


def test_malformed_yaml_is_reported_with_its_line() -> None:
    error = complaint("name: x\nmethods: [\n")
    assert "not YAML" in error.what
    assert re.search(r"x\.yaml:[23]", str(error.where))


def test_duplicate_key_is_an_error() -> None:
    assert "x.yaml:2" in str(complaint("name: a\nname: b\n").where)


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just words"])
def test_document_other_than_a_mapping_is_refused(text: str) -> None:
    assert "mapping" in complaint(text).what


def test_misspelled_and_missing_required_keys_have_distinct_errors() -> None:
    error = complaint(GOOD.replace("name: mine", "nmae: mine"))
    assert "unknown key 'nmae'" in error.what
    assert error.try_this == "did you mean 'name'?"
    error = complaint(GOOD.replace("name: mine\n", ""))
    assert "'name' is missing" in error.what
    assert "the experiment's name in the store" in str(error.try_this)


def test_missing_file_and_unknown_shipped_name_list_existing_ones() -> None:
    with raises("missing-file"):
        experiment.load("nowhere/x.yaml")
    with pytest.raises(UserError) as caught:
        experiment.load("demmo")
    assert "demo" in str(caught.value.try_this)


@pytest.mark.slow
def test_experiments_are_listed_by_the_names_accepted_by_run(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["list", "experiments", "--json", "--store", str(tmp_path)])
    listed = [load["name"] for load in json.loads(done.stdout)["shipped"]]
    assert listed == list(experiment.shipped())


def test_line_numbers_are_those_of_the_file() -> None:
    source = yaml_source.read("a: 1\nb:\n  - c: 2\n    d: 3\n", "f")
    assert source.where(("b", 0, "d")) == "f:4 (b.0.d)"
    assert source.where(("b", 0, "missing")) == "f:3 (b.0.missing)"


KEY = "sk-abcdefghijklmnopqrstuvwxyz123456"


@pytest.mark.parametrize(
    "line",
    [
        f"key_variable: {KEY}",
        "key_variable: Zm9vYmFyZm9vYmFyZm9v+YmFy",
        f"base_url: 'http://user:{KEY}@host/v1'",
        "base_url: 'http://host/v1?k=Zm9vYmFyZm9vYmFyZm9vYmFy'",
        f"temperature: {KEY}",
        f"temperature: {{a: [{KEY}]}}",
        f"{KEY}: 1",
        "key_variable: hf_abcdefghijklmnopqrstuvwxyz",
    ],
)
def test_misplaced_api_key_is_never_printed(line: str) -> None:
    chat = f"    reader:\n      id: chat\n      config:\n        llm:\n          model: m\n          {line}"
    text = GOOD.replace("    config: {k1: 1.2}", chat)
    error = complaint(text)
    assert error.exit_code == 2
    response = str(error)
    assert "[hidden]" in response
    assert not any(part in response for part in ("abcdefghijklm", "Zm9vYmFy"))


def test_other_invalid_values_are_quoted() -> None:
    config = "    reader: {id: chat, config: {llm: {model: m, base_url: 'localhost:8000', max_tokens: 0}}}"
    assert "got 'localhost:8000'" in str(complaint(GOOD.replace("    config: {k1: 1.2}", config)))


@pytest.mark.parametrize(
    ("rows", "reference"),
    [("{id: bm25, name: words}, {id: random}", "words"), ("{id: bm25, name: random}, {id: random, name: bm25}", "bm25")],
)
def test_reference_names_a_row_or_the_only_row_of_a_method(rows, reference):
    text = f"name: x\nreference: bm25\nbenchmarks: [{{id: worlds/multihop}}]\nmethods: [{rows}]\n"
    assert experiment.parse(f"{text}primary: {{metric: em, method: bm25}}\n", "x.yaml").reference == reference


def test_reference_to_one_of_several_rows_of_a_method_is_refused():
    text = "name: x\nreference: bm25\nbenchmarks: [{id: worlds/multihop}]\nmethods: [{id: bm25, name: a}, {id: bm25, name: b, k: 3}]\n"
    with raises("ambiguous-row", where="x.yaml:2"):
        experiment.parse(text, "x.yaml")
