"""Released systems with texts that are hard to tokenize: token ids and texts equal those of the authors' own code.

`AUTHORS` holds hashes of what the code of the authors, at the commits of `benchmarks/published_prompts.yaml`, made of these texts with
the tokenizers of the golden files (`golden/ids/tokenizers` in the folder of real samples).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.core.fingerprint import fingerprint
from benchmarks.schema import Passage
from methods.api import Context
from methods.baselines.end_to_end import self_ask
from methods.baselines.end_to_end.search_r1 import TEMPLATES, SearchR1Config, search_r1
from methods.baselines.end_to_end.self_ask import released_transcript
from methods.baselines.end_to_end.self_rag import augmented, instruction
from methods.baselines.rerank.prompts import PROMPTS, Writer
from methods.baselines.rerank.rankllama import RankLlama, RankLlamaConfig
from methods.baselines.rerank.replies import LABELS
from methods.models.causal import CausalModel
from methods.models.likelihood import TextEncoder
from methods.models.local_llm import Loaded, OwnCounter
from methods.prompts import Messages, shipped
from methods.readers.ddr import DdrGenerator, DdrGeneratorConfig, DdrPrompt
from methods.readers.end_to_end import InContextRalmConfig, RalmPrompt
from tests.methods.test_released import encoder, golden, read, tokenizer_of

pytest.importorskip("torch")

__all__ = ["golden"]
ODD = (
    *(
        " leads",
        "trails ",
        "  two  gaps\t tab ",
        "line\n\nline\n",
        "crlf\r\nend\r\n",
        "e\u0301 A\u030a",
        "\u6771\u4eac\u306f\u9996\u90fd\u3002",
    ),
    *("\U0001f600\U0001f468\u200d\U0001f469", "\u0645\u0631 \u200f x", "a </s> b <s>", "<|im_start|>user\nx<|im_end|>", "[INST] y [/INST]"),
    *(
        "{question} {} $query %s",
        "[1] one [12] two",
        "1984",
        "\u201cq\u201d \u2018r\u2019 \ufb01 \uff21 &amp; <b>",
        "don\u00e2\u20ac\u2122t",
        "",
    ),
    *("Title: x Content: y", "<think>n</think> <answer>[2]</answer>", "\u00a0nb\u2028ls\x85", "Follow up: z?\nIntermediate answer: w\n#"),
)
TITLES = ("", "Bridge", "cafe\u0301 \u201ct\u201d", "[7] x")
PASSAGES = [Passage(str(number), TITLES[number % 4], text) for number, text in enumerate(ODD)]
LONG = [Passage(f"l{number}", TITLES[number % 4], "many \U0001f600 words [4] " * 200) for number in range(20)]
QUESTIONS = ("who built it?", " who\n[3] built it ", "\u6771 \u201cq\u201d don\u00e2\u20ac\u2122t?", "{question} </s> <|im_end|>", "1984? ")
FEW = QUESTIONS[1:3]
CHAT = "{% for m in messages %}{{ '[INST] ' + m['content'] + ' [/INST]' }}{% endfor %}"


def loaded(folder: Path, template: str | None = "") -> tuple[Any, OwnCounter]:
    """Return the encoder of a local model's conversations with a tokenizer, and its counter; `template` replaces the template."""
    model, weights = CausalModel.__new__(CausalModel), Loaded.__new__(Loaded)
    model.tokenizer = tokenizer_of(folder)
    if template != "":
        model.tokenizer.chat_template = template
    model.text_encoder, model.config = TextEncoder(model.tokenizer), SimpleNamespace(model="")  # type: ignore[assignment]
    weights.model, weights.decodes, weights._known = model, False, {}
    return weights, OwnCounter(weights)


def ids(weights: Any, messages: Messages | None) -> list[int]:
    return list(weights.parts(messages).ids) if messages else []


class Asked:
    """A question of a program whose model and retriever reply from lists; it records what is sent."""

    def __init__(self, text: str, config: Any, prompts: dict[str, Any], replies: list[str], results: list[list[Passage]]) -> None:
        self.text, self.config, self.prompts, self.sent = text, config, prompts, list[Messages]()
        self._replies, self._results = iter(replies), iter(results)

    async def fitted(self, messages: Callable[[int], Messages], count: int, step: str, *, raw: bool = False) -> str:
        self.sent.append(messages(count))
        return next(self._replies)

    async def search(self, query: str) -> list[Passage]:
        return next(self._results)

    async def plain(self) -> str:
        return ""

    def fallback(self, reason: str) -> None: ...

    def unusable(self, reply: str) -> None: ...


def search_r1_turns(folder: Path) -> Iterator[Any]:
    config = SearchR1Config.model_validate({"llm": {"local": "none"}, "retriever": "bm25"})
    prompts: dict[str, Any] = {name: template.load() for name, template in TEMPLATES.items()}
    prompts["search_r1_again"] = SimpleNamespace(messages=lambda **_: [{"content": ""}])
    replies = ["<think>a</think>\n<search> b </search>\n\n", "<search>c</search>", "<answer> d </answer>"]
    for template in ("", None):
        weights, _ = loaded(folder / "qwen2.5", template)
        for question in FEW:
            program: Any = Asked(question, config, prompts, replies, [PASSAGES[:11], [*PASSAGES[11:], *LONG[:2]]])
            asyncio.run(search_r1(program))
            yield from (ids(weights, messages) for messages in program.sent)


def windows(folder: Path) -> Iterator[Any]:
    weights, counter = loaded(folder / "mistral", read(folder.parent / "rank_zephyr.json")["chat_template"])
    for words in (300, 3):
        write = Writer(PROMPTS["rankzephyr"].load(), counter, context=4096, plain_references=True, passage_words=words)
        for question in FEW:
            for passages in (PASSAGES[:20], PASSAGES[20:], LONG):
                yield ids(weights, write(question, [write.shown(p) for p in passages], list(map(str, range(1, len(passages) + 1)))))


def choices(folder: Path, name: str, tokenizer: str, labels: Any, start: str = "") -> Iterator[Any]:
    template = read(folder.parent / "setwise_vicuna.json")["chat_template"] if start else ""
    weights, counter = loaded(folder / tokenizer, template)
    for most in (128, 5):
        write = Writer(PROMPTS[name].load("published"), counter, start=start, query_tokens=most, passage_tokens=most)
        for question in QUESTIONS:
            for at in range(0, len(PASSAGES), 4):
                yield ids(weights, write(question, [write.shown(passage) for passage in PASSAGES[at : at + 4]], labels))


def refined(folder: Path) -> Iterator[Any]:
    weights, counter = loaded(folder / "mistral", CHAT)
    write = Writer(PROMPTS["ddr_refiner"].load(), counter, passage_tokens=1024)
    for question in FEW:
        for text in (*ODD, LONG[0].text * 3):
            yield ids(weights, write(question, [text], ["1"]))


def generated(folder: Path) -> Iterator[Any]:
    weights, counter = loaded(folder / "mistral", CHAT)
    made, plain = DdrGenerator.__new__(DdrGenerator), [Passage(passage.id, "", passage.text) for passage in [*PASSAGES, *LONG]]
    made._write = DdrPrompt(DdrGeneratorConfig.model_validate({"llm": {"local": "none"}}))
    made._model = SimpleNamespace(room=None, counter=counter)  # type: ignore[assignment]
    for most in (4096, 256):
        made._context = most
        for question in FEW:
            for passages in (plain[:5], plain[17:18], plain[5:17], plain[-5:]):
                yield ids(weights, made._request(question, Context("q", tuple(passages)))[0])


def transcripts(folder: Path) -> Iterator[Any]:
    weights, _ = loaded(folder / "mistral", None)
    prompts = {"retrobust": shipped(Path(self_ask.__file__).parent, "retrobust")["retrobust"].load()}
    replies = [
        "\nFollow up: who is A?\nIntermediate answer: B\n",
        "\nIntermediate answer: \u6771.\nFollow up: where? \nSo the final answer is: C\n",
        "\n\n\nNothing\n",
        "\nIntermediate answer: D\nSo the final answer is: E\n# x",
    ]
    for question in QUESTIONS:
        config = SimpleNamespace(hops=5, follow_ups=True)
        program: Any = Asked(question, config, prompts, replies, [[PASSAGES[at]] for at in (5, 3, 3)])
        asyncio.run(released_transcript(program, [PASSAGES[21]]))
        yield from (ids(weights, messages) for messages in program.sent)


def pairs(folder: Path, name: str, tokenizer: str, *options: dict[str, Any]) -> Iterator[Any]:
    for own in options or ({},):
        made = encoder(name, tokenizer_of(folder / tokenizer), **own)
        for question in QUESTIONS:
            yield made.encoded(question, [made.config.text_of(passage) for passage in [*PASSAGES, LONG[0]]])


def scored_pairs(folder: Path) -> Iterator[Any]:
    made = RankLlama.__new__(RankLlama)
    made.config, made.tokenizer, made._layout = RankLlamaConfig(), tokenizer_of(folder / "mistral"), None
    for question in FEW:
        yield made.encoded(question, [made.shown(passage) for passage in [*PASSAGES, LONG[0]]])


def read_singly(folder: Path) -> Iterator[Any]:
    weights, _ = loaded(folder / "mistral", None)
    write = RalmPrompt(InContextRalmConfig(model="none"))
    for question in FEW:
        for passage in PASSAGES:
            for text in (augmented(instruction(question), passage.title, passage.text), write(question, [passage])):
                yield ids(weights, [{"role": "user", "content": text}])
        yield ids(weights, [{"role": "user", "content": write(question, PASSAGES)}])


NUMBERS = [str(number) for number in range(1, 21)]
SYSTEMS: dict[str, Callable[[Path], Iterator[Any]]] = {
    "search_r1": search_r1_turns,
    "rankzephyr": windows,
    "setwise": lambda folder: choices(folder, "setwise", "mistral", LABELS, " Passage:"),
    "rank_r1": lambda folder: choices(folder, "rank_r1", "qwen2.5", NUMBERS),
    "rank_r1_v02": lambda folder: choices(folder, "rank_r1_v02", "qwen2.5", NUMBERS),
    "ddr_refiner": refined,
    "ddr_generator": generated,
    "retrobust": transcripts,
    "qwen3_reranker": lambda folder: pairs(folder, "qwen3_reranker", "qwen3", {"max_length": 128}, {"instruction": "{doc}\n"}),
    "mxbai_reranker": lambda folder: pairs(folder, "mxbai_reranker", "qwen2.5", {"max_length": 64}, {"instruction": ""}),
    "rank1": lambda folder: pairs(folder, "rank1", "qwen2.5"),
    "rankllama": scored_pairs,
    "self_rag and in_context_ralm": read_singly,
}
AUTHORS = {
    "search_r1": "6b56088a4c3e930a",
    "rankzephyr": "31b1386e9df740c0",
    "setwise": "599c14d88a17e0b5",
    "rank_r1": "095bedebc0cf309f",
    "rank_r1_v02": "ea1f2ecf889d4ff1",
    "ddr_refiner": "e0a2b30c022ff984",
    "ddr_generator": "b89f8b50fc77b3d7",
    "retrobust": "3d960c98b8472e82",
    "qwen3_reranker": "601c5e9d55d002e1",
    "mxbai_reranker": "83f7c79d642591c3",
    "rank1": "1e603b5af4945304",
    "rankllama": "b79e7e34e5be59fd",
    "self_rag and in_context_ralm": "93546b9e4ed0e32c",
}
"""Hashes, by system."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_unusual_inputs_are_tokenized_like_the_authors_code(golden: Path, name: str, data_folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("RAGMETER_DATA", str(data_folder))
    assert fingerprint(list(SYSTEMS[name](golden / "ids" / "tokenizers"))) == AUTHORS[name]
