"""Readers of triples: RoG's prompt, truncated from the bottom; and triples written as sentences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.corpus import Corpus
from benchmarks.graphs import TripleCorpus
from benchmarks.registry import load
from benchmarks.schema import Passage, Query, triple_id
from benchmarks.worlds.text import statements
from methods.api import FAILED, TRUNCATED, Answer, Context, Ranking, Services
from methods.flow import each
from methods.pipeline import assemble
from methods.readers.prompts import longest_prefix
from methods.readers.triple_text import as_statement
from methods.registry import Component
from tests.support.errors import raises
from tests.support.server import ChatRequest, OpenAIServer, Written

QUERY = Query("q", "what does jamaican people speak")
TRIPLES = tuple((f"Jamaica{n}", "location.country.languages_spoken", f"Language {n}") for n in range(40))
PASSAGES = tuple(Passage(triple_id(triple), "", " ".join(triple)) for triple in TRIPLES)
LINES = [passage.text for passage in PASSAGES]


class Server:
    """Server that records requests and replies with three lines."""

    def __init__(self) -> None:
        self.requests: list[ChatRequest] = []

    def __call__(self, request: ChatRequest) -> Written:
        self.requests.append(request)
        return Written("Jamaican English\nJamaican Creole\n", 1, 1)


@pytest.fixture
def server() -> Iterator[tuple[Server, str]]:
    kept = Server()
    with OpenAIServer("m", kept, any_model=True).running() as url:
        yield kept, url


def chat(url: str, **config: Any) -> Any:
    options = {"llm": {"model": "m", "base_url": url, "key_variable": None}, "preset": "rog", **config}
    return Component.of("chat", options).build(Services())


def block(prompt: str) -> list[str]:
    """Return the lines of a prompt that are triples."""
    return [line for line in prompt.splitlines() if "languages_spoken" in line]


def test_triples_precede_the_question_one_per_line_in_rank_order(server: tuple[Server, str]) -> None:
    kept, url = server
    (answer,) = each(chat(url), "read", [QUERY], [Context("q", PASSAGES[:3])])
    prompt = kept.requests[0].prompt
    before, _, rest = prompt.partition(LINES[0])
    assert rest == f"\n{LINES[1]}\n{LINES[2]}\n\nQuestion:\nwhat does jamaican people speak?"
    assert "one answer per line" in before
    assert "triples" in before
    assert len(kept.requests[0].messages) == 1
    assert kept.requests[0].max_tokens == 512
    assert answer.text == "Jamaican English\nJamaican Creole"


def test_prompt_without_retrieval_differs_only_by_the_triples(server: tuple[Server, str]) -> None:
    kept, url = server
    reader = chat(url)
    each(reader, "read", [QUERY, QUERY], [Context("q", PASSAGES[:1]), Context("q")])
    prompts = {len(request.prompt): request.prompt for request in kept.requests}
    without, with_triples = prompts[min(prompts)], prompts[max(prompts)]
    assert "riple" not in without
    # Every word of it stands in the other one, in the same order.
    words = iter(with_triples.replace("question from", "question. from").split())
    assert all(word in words for word in without.split())


def test_question_mark_is_not_doubled(server: tuple[Server, str]) -> None:
    kept, url = server
    each(chat(url), "read", [Query("q", "Who came? ")], [Context("q")])
    assert kept.requests[0].prompt.endswith("Question:\nWho came?")


@pytest.mark.parametrize("most", [90, 130, 200, 400, 2000])
def test_endpoint_gets_a_prefix_of_the_ranking(server: tuple[Server, str], most: int) -> None:
    kept, url = server
    (answer,) = each(chat(url, max_prompt_tokens=most), "read", [QUERY], [Context("q", PASSAGES)])
    sent = block(kept.requests[0].prompt)
    assert sent == LINES[: len(sent)]
    note = answer.notes.get(TRUNCATED)
    if len(sent) == len(LINES):
        assert note is None
    else:
        assert note == {"unit": "lines", "kept": len(sent), "of": len(LINES)}
        assert len(kept.requests[0].prompt) / 4 + 4 <= most
        more = kept.requests[0].prompt.replace("\n\nQuestion", f"\n{LINES[len(sent)]}\n\nQuestion")
        assert not sent or len(more) / 4 + 4 > most


@pytest.mark.parametrize("room", [380, 400, 600, 900])
def test_local_model_gets_a_prefix_of_the_ranking(tiny_llama: str, room: int) -> None:
    options = {"model": tiny_llama, "preset": "rog", "max_new_tokens": 4, "max_prompt_tokens": room}
    reader = Component.of("causal", options).build(Services(device="cpu"))
    prompt, notes = reader._fitted(QUERY.text, PASSAGES)
    sent = block(prompt)
    assert sent == LINES[: len(sent)]
    assert notes == ({TRUNCATED: {"unit": "lines", "kept": len(sent), "of": 40}} if len(sent) < 40 else {})
    assert len(reader._model.encode(prompt)) <= reader._model.room
    fuller, _ = reader._without_last(QUERY.text, PASSAGES[: len(sent) + 1])
    assert fuller == prompt or len(sent) == 40


def test_question_that_does_not_fit_fails_with_a_note(tiny_llama: str) -> None:
    options = {"model": tiny_llama, "preset": "rog", "max_new_tokens": 4, "max_prompt_tokens": 16}
    reader = Component.of("causal", options).build(Services(device="cpu"))
    (answer,) = each(reader, "read", [QUERY], [Context("q", PASSAGES)])
    assert FAILED in answer.notes


@given(st.integers(0, 60), st.integers(0, 60))
def test_longest_prefix_equals_a_naive_loop(count: int, most: int) -> None:
    tried: list[int] = []

    def fits(size: int) -> bool:
        tried.append(size)
        return size <= most

    assert longest_prefix(count, fits) == max(size for size in range(count + 1) if size <= most)
    assert len(tried) <= 7


LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set said = messages[0]['content'] %}"
    "{% else %}{% set rest = messages %}{% set said = false %}{% endif %}{% for m in rest %}"
    "[INST] {% if loop.index0 == 0 and said != false %}<<SYS>>\n{{ said }}\n<</SYS>>\n\n{% endif %}"
    "{{ m['content'] }} [/INST]{% endfor %}"
)


def test_only_llama_2_prompts_have_an_empty_system_block(tiny_llama: str) -> None:
    reader = Component.of("causal", {"model": tiny_llama, "preset": "rog", "max_new_tokens": 4}).build(Services(device="cpu"))
    _, plain = reader._instructions.filled(QUERY.text, reader._instructions.evidence(PASSAGES[:1]))
    assert "<<SYS>>" not in reader._fitted(QUERY.text, PASSAGES[:1])[0]
    reader._model.tokenizer.chat_template = LLAMA2
    wrapped, _ = reader._fitted(QUERY.text, PASSAGES[:1])
    by_template = reader._model.tokenizer.apply_chat_template(
        [{"role": "system", "content": ""}, {"role": "user", "content": plain}], tokenize=False
    )
    assert wrapped == by_template
    assert wrapped.startswith("[INST] <<SYS>>\n\n<</SYS>>\n\nAnswer the question")


@pytest.fixture(scope="module")
def tiny_t5(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save a T5 with random weights and a character vocabulary."""
    torch = pytest.importorskip("torch")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    raw = Tokenizer(models.BPE(unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Metaspace()
    raw.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<pad>", "</s>", "<unk>"], show_progress=False)
    raw.train_from_iterator([*LINES, "Answer the question from the triples that come with it"] * 3, trainer)
    raw.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="</s>", pad_token="<pad>", unk_token="<unk>")
    torch.manual_seed(4)
    shape = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
    folder = tmp_path_factory.mktemp("t5")
    T5ForConditionalGeneration(T5Config(vocab_size=len(tokenizer), **shape)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.slow
def test_flan_t5_reads_at_most_507_tokens_and_generates_128(tiny_t5: str) -> None:
    component = Component.of("seq2seq", {"model": tiny_t5, "preset": "rog", "batch_size": 2})
    assert component.config.model_dump()["max_new_tokens"] == 128
    component.preflight()
    reader = component.build(Services(device="cpu"))
    prompt, notes = reader._fitted(QUERY.text, PASSAGES)
    sent = block(prompt)
    assert 0 < len(sent) < 40
    assert sent == LINES[: len(sent)]
    assert notes[TRUNCATED]["kept"] == len(sent)
    assert len(reader._model.encode(prompt)) <= 507
    longer = prompt.replace("\n\nQuestion", f"\n{LINES[len(sent)]}\n\nQuestion")
    assert len(reader._model.encode(longer)) > 507
    contexts = [Context("q", PASSAGES), Context("q", PASSAGES[:2]), Context("q")]
    together = each(reader, "read", [QUERY] * 3, contexts)
    assert [Answer(a.text, a.usage, a.notes) for a in together] == [each(reader, "read", [QUERY], [c])[0] for c in contexts]
    assert all(0 < answer.usage.completion_tokens <= 128 for answer in together)
    assert FAILED in each(reader, "read", [Query("q", "word " * 900)], [Context("q", PASSAGES)])[0].notes


def test_changed_instructions_change_the_fingerprint(tiny_llama: str) -> None:
    options = {"model": tiny_llama, "max_new_tokens": 4}
    own, rog = (Component.of("causal", {**options, "reading": reading}) for reading in ("own", "triples"))
    assert own.describe()["weights"] != rog.describe()["weights"]
    assert not rog.config.follows_benchmark


def test_custom_template_is_used_and_validated(tiny_llama: str, tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("Facts: $passages\nQ: $question", "utf-8")
    options = {"model": tiny_llama, "preset": "rog", "max_new_tokens": 4, "prompt": str(mine), "chat_template": False}
    prompt, _ = Component.of("causal", options).build(Services(device="cpu"))._fitted("who", PASSAGES[:1])
    assert prompt == f"Facts: {LINES[0]}\nQ: who?"
    mine.write_text("no question", "utf-8")
    with raises("template-missing-placeholder"):
        Component.of("causal", options).preflight()


def written(triples: list[tuple[str, str, str]], **config: Any) -> list[tuple[str, str, str]]:
    corpus = TripleCorpus.of_triples(triples)
    ids = tuple(triple_id(triple) for triple in triples)
    writer = Component.of("triple_text", config).build(Services())
    (context,) = writer.compress([QUERY], [Ranking("q", ids, (1.0,) * len(ids))], corpus, None)
    return [(passage.id, passage.title, passage.text) for passage in context.passages]


MIXED = [("Jamaica", "location.country.languages_spoken", "Jamaican English"), ("Ann", "person.parent", "Bea"), ("Jamaica", "near", "Cuba")]


def test_each_form_has_each_triple_once_in_rank_order() -> None:
    ids = [triple_id(item) for item in MIXED]
    assert written(MIXED, form="line", by_head=False) == [(item, "", " ".join(triple)) for item, triple in zip(ids, MIXED, strict=True)]
    words = written(MIXED, form="words", by_head=False)
    assert [text for *_, text in words] == ["Jamaica languages spoken Jamaican English.", "Ann parent Bea.", "Jamaica near Cuba."]
    assert written(MIXED, form="statement", by_head=False)[1][2] == "Ann was a child of Bea."


def test_words_form_groups_triples_of_a_head_at_the_first_ones_rank() -> None:
    assert written(MIXED, form="words") == [
        (triple_id(MIXED[0]), "Jamaica", "Jamaica languages spoken Jamaican English. Jamaica near Cuba."),
        (triple_id(MIXED[1]), "Ann", "Ann parent Bea."),
    ]


def test_statement_form_equals_the_wording_of_worlds() -> None:
    from benchmarks.worlds.world import generate

    world = generate(10_000)
    plain = [fact for fact in world.facts if not fact.head.article and not (fact.tail and fact.tail.article)]
    assert len(plain) > 500
    assert all(as_statement(fact.triple) in statements(fact) for fact in plain)


def test_passages_that_are_not_triples_are_unchanged() -> None:
    corpus = Corpus.of([Passage("a", "Ann", "Ann came.")])
    writer = Component.of("triple_text").build(Services())
    (context,) = writer.compress([QUERY], [Ranking("q", ("a",), (1.0,))], corpus, None)
    assert context.passages == tuple(corpus.get(["a"]))


@pytest.mark.slow
def test_pocket_reader_answers_from_statements_and_hardly_from_lines() -> None:
    world = load("worlds/graph:validation", {"questions": 24, "mix": {"single": 1.0}})
    right = {form: _right(world, form) for form in ("line", "statement")}
    assert right["statement"] >= 20
    assert right["line"] <= 8


def _right(world: Any, form: str) -> int:
    method = assemble(
        Component.of("oracle_evidence"),
        Services(device="cpu"),
        reader=Component.of("pocket"),
        compressor=Component.of("triple_text", {"form": form}),
    )
    method.index(world.corpus)
    responses = {item.question_id: item.answer for item in method.answer(q.gold_query() for q in world.questions)}
    return sum(responses[question.query_id] in question.golds for question in world.questions)
