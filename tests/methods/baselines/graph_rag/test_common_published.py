"""Published prompts of graph systems: the messages that the authors' code sends, and the replies that they request."""

from __future__ import annotations

import json
from pathlib import Path
from string import Template
from typing import Any

import pytest

from benchmarks.published_prompts import texts_of
from benchmarks.schema import Query
from methods.api import Usage
from methods.baselines.graph_rag.common import TEMPLATES, SystemConfig
from methods.baselines.graph_rag.graphrag import GlobalConfig, LocalConfig
from methods.baselines.graph_rag.hipporag import Hippo2Config, Hippo2Index, HippoConfig, as_triple, kept_triples
from methods.baselines.graph_rag.lightrag import LightConfig
from methods.flow import run
from methods.graphs.extraction import LLMExtractor, strings_in
from methods.graphs.knowledge_graph import EntityRecord, RelationRecord, parse
from methods.prompts import parse as template
from methods.prompts import published
from methods.registry import Component
from tests.methods.baselines.test_graph_rag import CORPUS, READS, Says, Words
from tests.support.errors import raises

TEXT = 'Łódź: "{x}" costs $5.\n'
LLM = {"llm": {"model": "m"}, "prompts": "published"}


@pytest.fixture
def prompts(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of published prompts."""
    monkeypatch.setenv("RAGMETER_DATA", str(data_folder))
    if not (folder := data_folder / "prompts").is_dir():
        pytest.skip("no prompts among the real samples")
    return folder


def asked(extractor: Any, says: Says) -> list[list[dict[str, str]]]:
    run(extractor.read_one(TEXT))
    return says.asked


def test_graphrag_extraction_prompt_equals_the_published_one(prompts: Path) -> None:
    texts = json.loads((prompts / "graphrag/extract_graph.json").read_text("utf-8"))
    says = Says('("entity"<|>A<|>PERSON<|>b)', "and one more", "N")
    first, again, check = asked(LocalConfig(gleanings=2, **LLM).reading_by(says), says)  # type: ignore[arg-type]
    expected = texts["GRAPH_EXTRACTION_PROMPT"].format(input_text=TEXT, entity_types="organization,person,geo,event")
    assert first[:1] == [{"role": "user", "content": expected}]
    assert [message["content"] for message in again[1:3]] == ['("entity"<|>A<|>PERSON<|>b)', texts["CONTINUE_PROMPT"]]
    assert [message["content"] for message in check[3:]] == ["and one more", texts["LOOP_PROMPT"]]


def test_lightrag_extraction_and_keyword_prompts_equal_the_published_ones(prompts: Path) -> None:
    texts = json.loads((prompts / "lightrag/prompts-1.1.7.json").read_text("utf-8"))
    filled = {
        "tuple_delimiter": texts["DEFAULT_TUPLE_DELIMITER"],
        "record_delimiter": texts["DEFAULT_RECORD_DELIMITER"],
        "completion_delimiter": texts["DEFAULT_COMPLETION_DELIMITER"],
        "entity_types": ",".join(texts["DEFAULT_ENTITY_TYPES"]),
        "language": texts["DEFAULT_LANGUAGE"],
    }
    examples = "\n".join(texts["entity_extraction_examples"]).format(**filled)
    config, says = LightConfig(gleanings=1, **LLM), Says("##")  # type: ignore[arg-type]
    first, again = asked(config.reading_by(says), says)  # type: ignore[arg-type]
    assert first[:1] == [{"role": "user", "content": texts["entity_extraction"].format(**filled, examples=examples, input_text=TEXT)}]
    assert again[2]["content"] == texts["entiti_continue_extraction"]
    keywords = texts["keywords_extraction"].format(query=TEXT, examples="\n".join(texts["keywords_extraction_examples"]), history="")
    assert config.template("keywords").messages(question=TEXT) == [{"role": "user", "content": keywords}]


def test_hipporag2_entity_and_triple_prompts_equal_the_published_ones(prompts: Path) -> None:
    texts = {name: json.loads((prompts / f"hipporag2/{name}.json").read_text("utf-8")) for name in ("ner", "triple_extraction")}
    values = {"passage": TEXT, "named_entity_json": json.dumps({"named_entities": ["Łódź"]})}
    says = Says('```json\n{"named_entities": ["Łódź"]}\n```', '{"triples": []}')
    made = asked(Hippo2Config(**LLM).reading_by(says), says)  # type: ignore[arg-type]
    for messages, own in zip(made, texts.values(), strict=True):
        expected = [{**turn, "content": Template(turn["content"]).substitute(values)} for turn in own["prompt_template"]]
        assert messages == expected


def test_hipporag_entity_and_triple_prompts_equal_the_published_ones(prompts: Path) -> None:
    texts = json.loads((prompts / "hipporag1/openie_extraction_instructions.json").read_text("utf-8"))
    question = json.loads((prompts / "hipporag1/named_entity_extraction_parallel.json").read_text("utf-8"))
    config, says = HippoConfig(**LLM), Says('{"named_entities": ["Łódź"]}', '{"triples": []}')  # type: ignore[arg-type]
    names, triples = asked(config.reading_by(says), says)  # type: ignore[arg-type]
    entities = texts["one_shot_passage_entities"]
    assert [message["content"] for message in names] == [
        texts["ner_instruction"],
        f"Paragraph:\n```\n{texts['one_shot_passage']}\n```\n",
        entities,
        texts["ner_user_input"].format(user_input=TEXT),
    ]
    named = json.dumps({"named_entities": ["Łódź"]})
    assert [message["content"] for message in triples] == [
        texts["openie_post_ner_instruction"],
        texts["openie_post_ner_input_one_shot"],
        texts["one_shot_passage_triples"],
        texts["openie_post_ner_frame"].replace("{passage}", TEXT).replace("{named_entity_json}", named),
    ]
    asks = [message["content"] for message in config.question_prompt().messages(text=TEXT)]
    assert asks[1:] == [question["query_prompt_one_shot_input"], question["query_prompt_one_shot_output"], f"\nQuestion: {TEXT}\n\n"]
    assert asks[0] == asks[0].strip() != ""


def test_published_prompts_need_no_placeholders_beyond_ours(prompts: Path) -> None:
    extra = {"named_entities"}
    for config in (GlobalConfig(**LLM), LightConfig(**LLM), HippoConfig(**LLM)):  # type: ignore[arg-type]
        for name in config.published.keys() & TEMPLATES.keys():
            assert config.template(name).placeholders - extra <= TEMPLATES[name].load().placeholders, name


def test_hipporag2_shows_the_published_examples_to_its_filter(prompts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = json.loads((prompts / "hipporag2/filter.json").read_text("utf-8"))["prog"]
    form = {"asked": "Q {question}\nF {fact_before_filter}", "answered": "A {fact_after_filter}"}  # stands for the file that is fetched
    keys = {"question": "question", "before": "fact_before_filter", "after": "fact_after_filter"}
    texts = {f"{short}_{n}": demo[key] for n, demo in enumerate(program["demos"]) for short, key in keys.items()}
    real = texts_of
    own = {**form, **texts, "system": program["system"]}
    monkeypatch.setattr("methods.prompts.texts_of", lambda name, fetch: own if name == "hipporag2_facts" else real(name, fetch))
    config = Hippo2Config(**LLM)  # type: ignore[arg-type]
    assert len(config.templates()) == 3
    listed = json.dumps({"fact": [["é", "is", "{b}"]]})
    expected = [program["system"]]
    for demo in program["demos"]:
        expected += [form["asked"].format(**demo), form["answered"].format(**demo)]
    made = config.template("facts").messages(question=TEXT, facts=listed)
    assert [turn["content"] for turn in made] == [*expected, form["asked"].format(question=TEXT, fact_before_filter=listed)]


@pytest.mark.parametrize("system", ["graphrag", "graphrag_global", "graphrag_drift", "lightrag", "hipporag"])
def test_released_presets_pass_the_check_before_a_run(prompts: Path, system: str) -> None:
    config = Component.of(system, {"llm": {"model": "m", "key_variable": None}, "preset": "released"}).config
    assert isinstance(config, SystemConfig)
    config.preflight()
    ours = {prompt.hash for prompt in config.model_copy(update={"prompts": None}).templates()}
    assert not {published(name).hash for name in config.published.values()} - {prompt.hash for prompt in config.templates()}
    assert ours != {prompt.hash for prompt in config.templates()}


def test_published_prompts_change_the_fingerprint_without_being_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGMETER_DATA", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("benchmarks.published_prompts.cache_home", lambda: tmp_path)
    for name in ("graphrag", "lightrag", "hipporag", "hipporag2"):
        llm = {"llm": {"model": "m"}}
        released = {"preset": "released"}
        own = ({}, {"prompts": "ours"}, {"prompt": "ours"}, {**released, "prompt": "ours"}, {**released, "prompts": "ours"})
        assert len({Component.of(name, llm | more).fingerprint for more in own}) == 1
        theirs = Component.of(name, llm | released)
        assert theirs.fingerprint == Component.of(name, llm | {"prompt": "published"}).fingerprint
        assert theirs.fingerprint != Component.of(name, llm).fingerprint
        with raises("published-prompt-missing"):
            theirs.config.preflight()


@pytest.mark.parametrize(
    ("system", "options"),
    [
        ("graphrag", {"extractor": "noun_phrases"}),
        ("lightrag", {"llm": {"scripted": "worlds/multihop:test"}}),
        ("linear_rag", {"llm": {"model": "m"}}),
    ],
)
def test_published_prompts_that_would_have_no_effect_are_refused(system: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="published"):
        Component.of(system, {**options, "prompts": "published"})


LIGHT_REPLY = """Sure, here is the list:
```
("entity"<|>"Alex"<|>"person"<|>"Alex is "calm" (often).")##
("entity"<|>"The Device"<|>"technology"<|>"A device.")**##**
("relationship"<|>"Alex"<|>"The Device"<|>"Alex reveres it."<|>"reverence, power"<|>9)##
("content_keywords"<|>"power dynamics, discovery")
```"""


def test_quoted_records_and_content_keywords_are_read_without_an_end_marker() -> None:
    read = parse(LIGHT_REPLY, quoted=True)
    assert read.entities == (
        EntityRecord("ALEX", "PERSON", 'Alex is "calm" (often).'),
        EntityRecord("THE DEVICE", "TECHNOLOGY", "A device."),
    )
    assert read.relations == (RelationRecord("ALEX", "THE DEVICE", "Alex reveres it.", 9.0, "reverence, power"),)
    assert parse(LIGHT_REPLY).relations[0].description == '"Alex reveres it."'


def test_gleaning_stops_if_the_model_replies_that_nothing_is_missing() -> None:
    loop = template("Still more?", "loop")
    for answer, calls in (("No.", 3), ("**Yes**", 4), ("", 3)):
        says = Says("a", "b", answer, "c")
        made = run(LLMExtractor(says, gleanings=2, prompts={"loop": loop}).read_one("text"))  # type: ignore[arg-type]
        assert made.model_calls == calls == len(says.asked)


SECTIONS = "[[ ## fact_after_filter ## ]]\n{}\n\n[[ ## completed ## ]]"


@pytest.mark.parametrize(
    ("reply", "kept"),
    [
        (SECTIONS.format('{"fact": [["a", "is", "b"]]}'), ["('a', 'is', 'b')"]),
        (SECTIONS.format("```json\n{\"fact\": [['a', 'is', \"b's\"]]}\n```"), ["('a', 'is', \"b's\")"]),
        (SECTIONS.format("{'fact': [['a', 'is', 'b']]}"), ["('a', 'is', 'b')"]),
        ('{"fact": [["a", "is", "b"]]}\n[[ ## completed ## ]]', ["('a', 'is', 'b')"]),
        (SECTIONS.format('{"fact": []}'), []),
        (SECTIONS.format("none of them"), None),
        ("", None),
    ],
)
def test_replies_to_the_published_filter_are_read(reply: str, kept: list[str] | None) -> None:
    assert kept_triples(reply) == kept


def test_published_filter_gets_triples_and_keeps_the_closest_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = template("options\nwhitespace: keep\n---\nuser\n$question\n$facts", "x")
    monkeypatch.setattr(Hippo2Config, "template", lambda self, name: prompt)
    says = Says(SECTIONS.format('{"fact": [["ada", "keeps", "tower"]]}'))
    made = Hippo2Index(Hippo2Config(**LLM), CORPUS, Words(), READS, Usage(), lambda *_: says, None)  # type: ignore[arg-type]
    ranking = run(made.retrieve_one(Query("q", "Who kept the Tower?"), 3))
    ((message,),) = says.asked
    shown = json.loads(message["content"].partition("\n")[2])
    assert ["ada", "kept", "tower"] in shown["fact"]
    assert ranking.notes["hipporag2"]["facts"] == ["Ada kept Tower"]
    assert ranking.notes["hipporag2"]["facts that the model changed"] == 1


def test_printed_fact_is_parsed_back_into_a_triple() -> None:
    assert as_triple(str(("a", "is", "b's"))) == ("a", "is", "b's")
    assert as_triple("a is (b") == ("a is (b",)


def test_names_under_the_published_key_are_read() -> None:
    assert strings_in('```json\n{"named_entities":\n    ["Radio City", "India"]\n}\n```') == ["Radio City", "India"]
