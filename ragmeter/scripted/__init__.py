"""The scripted LLM: knows a world and answers our own prompts rightly (`llm: {scripted: worlds/multihop:test}`).

It takes the place of a real model where a loop around an LLM is tested: with it, every such loop must work, and with
a share of its replies corrupted, none may crash. Its replies name the model
`scripted/…`, `Reply.scripted` is true for them, and a prediction that it had a part in has that name in its notes under
`scripted`.

Each prompt that it understands has a handler, a function with the decorator `answers` (`prompt_patterns.py`) in one of the
modules of this folder. A test adds its own with `WorldTruth.handle`.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any, Literal

from benchmarks import registry as datasets
from benchmarks.core.errors import UserError
from benchmarks.registry import Benchmark
from benchmarks.schema import Question
from benchmarks.worlds.dataset import WorldsConfig
from benchmarks.worlds.text import Rendering
from benchmarks.worlds.world import World, generate
from judges.llm.ask import AGAIN
from methods.models.chat import PREFLIGHT, SCRIPTED
from methods.models.endpoint import Fault, Messages
from methods.models.reply import Completion
from methods.models.scripts import ScriptedConfig, register_script
from methods.readers.prompts import PROMPTS
from ragmeter.scripted.knowledge import Shelf
from ragmeter.scripted.prompt_patterns import (
    HANDLERS,
    UNKNOWN,
    Handler,
    Request,
    Shown,
    answers,
    flat,
    handler,
    names_any,
    numbered_passages,
    steps_of,
)

NAME = f"{SCRIPTED}worlds"
"""The model's name; its prefix labels scripted rows."""
CORRUPTIONS = ("empty", "truncated", "garbage", "wrapped", "refusal")

Reading = Literal["evidence", "memory"]


class WorldTruth:
    """Oracle that knows the questions, answers and facts of synthetic worlds, and replies to prompts in place of a language model.

    Args:
        benchmarks: Loaded benchmarks of the dataset `worlds` that it knows.
        corruption: Share of replies to corrupt; which ones depends on the prompt.
        reading: With `evidence`, it answers only if the passages prove the answer (else "unknown"); with `memory`, always.
            Prompts without passages are answered from memory.
        seed: Random seed of the corruption.
        config: Options with which the benchmarks were loaded.

    Attributes:
        corrupted: Number of corrupted replies by kind.
        unrecognized: Number of prompts that no handler recognized.
    """

    def __init__(
        self,
        benchmarks: Sequence[Benchmark],
        *,
        corruption: float = 0.0,
        reading: Reading = "evidence",
        seed: int = 0,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        if not 0 <= corruption <= 1:
            raise UserError(f"corruption is a share between 0 and 1, not {corruption}", code="bad-corruption", where="corruption")
        self.benchmarks = tuple(benchmarks)
        self.corruption = corruption
        self.reading = reading
        self.seed = seed
        self._config = WorldsConfig(**(config or {}))
        self.corrupted: Counter[str] = Counter()
        self.unrecognized = 0
        self.handlers: list[Handler] = list(HANDLERS)
        self._lock = threading.Lock()

    @classmethod
    def of(cls, reference: str, config: Mapping[str, Any] | None = None, **options: Any) -> WorldTruth:
        """Create the oracle for one benchmark, given by data reference (`worlds/multihop:test`) and options.

        Raises:
            UserError: The benchmark cannot be loaded.
        """
        return cls([datasets.load(reference, dict(config or {}))], config=config, **options)

    def handle(self, handler: Handler) -> Handler:
        """Register a handler of prompts and return it, so that it can be used as a decorator; later handlers take precedence."""
        self.handlers.insert(0, handler)
        return handler

    @cached_property
    def questions(self) -> dict[str, Question]:
        """Return the questions by text, with white space collapsed."""
        return {flat(question.text): question for benchmark in self.benchmarks for question in benchmark.questions}

    @cached_property
    def steps(self) -> dict[str, str]:
        """Return the answers to single steps of questions, by the step's text with earlier answers filled in."""
        return {flat(text): answer for question in self.questions.values() for text, answer in steps_of(question)}

    @cached_property
    def worlds(self) -> dict[int, World]:
        """Return the worlds that the questions are about, by seed."""
        seeds = dict.fromkeys(q.metadata["seed"] for q in self.questions.values())
        return {seed: generate(seed, self._config.world_config) for seed in seeds}

    @property
    def rendering(self) -> Rendering:
        """Return the rendering of the worlds' texts (how explicitly they state facts)."""
        return self._config.rendering

    @cached_property
    def shelf(self) -> Shelf:
        """Return an index of the worlds' texts."""
        return Shelf(self.worlds, self.rendering)

    def question(self, text: str) -> Question | None:
        """Find the question with this text; None if it is unknown."""
        return self.questions.get(flat(text))

    def answer_to(self, text: str) -> str | None:
        """Return the answer to a question or to one of its steps; None if it is unknown."""
        question = self.question(text)
        if question is None:
            return self.steps.get(flat(text))
        if not question.answerable:
            return UNKNOWN
        return ", ".join(question.wanted) if question.answer_set else question.answers[0]

    def proven_by(self, question: Question, passages: Sequence[str]) -> bool:
        """Return whether passages prove the answer: for each fact of the question, one passage names head and tail.

        Names are searched, not sentences, so that compressed and restyled passages count by their content.
        """
        texts = [flat(passage).casefold() for passage in passages]
        for head, _, tail in question.triples:
            names = [head, *self._aliases.get(head, ())]
            tails = [tail, *self._aliases.get(tail, ())]
            if not any(names_any(text, names) and names_any(text, tails) for text in texts):
                return False
        return True

    @cached_property
    def _aliases(self) -> dict[str, tuple[str, ...]]:
        return {entity.name: entity.aliases for world in self.worlds.values() for entity in world.entities if entity.aliases}

    @cached_property
    def names_by_head(self) -> list[tuple[list[str], list[list[str]]]]:
        """Return the names in the worlds' facts, lower-cased: for every head its names, and the names of each of its tails."""
        result = []
        for world in self.worlds.values():
            names = {entity.name: [name.casefold() for name in (entity.name, *entity.aliases)] for entity in world.entities}
            tails: dict[str, list[list[str]]] = {name: [] for name in names}
            for head, _, tail in world.triples:
                tails[head].append(names.get(tail, [tail.casefold()]))
            result += [(names[head], of_head) for head, of_head in tails.items()]
        return result

    def reply(self, messages: Messages) -> Completion:
        """Reply to a conversation.

        Raises:
            Fault: No handler knows this prompt.
        """
        again = len(messages) > 2 and messages[-1]["content"].startswith(AGAIN)
        request = Request(messages[:-2] if again else messages)
        text = next((reply for h in list(self.handlers) if (reply := h(self, request)) is not None), None)
        if text is None:
            with self._lock:
                self.unrecognized += 1
            raise Fault(f"the scripted LLM does not know this prompt: {request.prompt[:80]!r}", "fail", status=400)
        # A judge that asks once more gets a reply of its own.
        prompt = f"{request.prompt}\n{messages[-1]['content']}" if again else request.prompt
        if self.is_corrupted(prompt):
            kind = CORRUPTIONS[int(draw(self.seed, "kind", prompt) * len(CORRUPTIONS))]
            with self._lock:
                self.corrupted[kind] += 1
            text = corrupt(text, kind)
        prompt_tokens = sum(len(message["content"]) for message in messages) // 4
        return Completion(text, "stop", prompt_tokens, len(text) // 4 + 1, NAME)

    def is_corrupted(self, prompt: str) -> bool:
        """Return whether the reply to this prompt is to be corrupted."""
        return draw(self.seed, "corrupt", prompt) < self.corruption


def draw(*parts: object) -> float:
    """Return a pseudo-random number in [0, 1) that depends only on its arguments."""
    digest = hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def corrupt(text: str, kind: str) -> str:
    """Corrupt a reply in the way that models fail: empty, truncated, wrong, wrapped in chatter, or a refusal."""
    match kind:
        case "empty":
            return ""
        case "truncated":
            return text[: len(text) // 2]
        case "garbage":
            return "}{ ]] \\u0000 ```json\n<|im_end|> ÿþ {'answer': [[["
        case "wrapped":
            return f"Sure! Let me think about this.\n\n```\n{text}\n```\nI hope this helps."
        case "refusal":
            return "I'm sorry, but I can't help with that."
    raise KeyError(kind)


@answers(PROMPTS["passages"])
def answer_from_passages(truth: WorldTruth, shown: Shown) -> str:
    """Reply to the chat reader's prompt with passages."""
    answer, question = truth.answer_to(shown["question"]), truth.question(shown["question"])
    if answer is None or truth.reading == "memory":
        return answer or UNKNOWN
    proven = truth.proven_by(question, numbered_passages(shown["passages"])) if question else None
    return answer if (names_any(flat(shown["passages"]).casefold(), [answer]) if proven is None else proven) else UNKNOWN


@answers(PROMPTS["closed_book"])
def answer_from_memory(truth: WorldTruth, shown: Shown) -> str:
    """Reply to the chat reader's prompt without passages."""
    return truth.answer_to(shown["question"]) or UNKNOWN


@handler
def say_ok(truth: WorldTruth, request: Request) -> str | None:
    """Reply to the short call that tests an endpoint."""
    return "ok" if request.prompt == PREFLIGHT else None


@register_script("worlds")
def worlds(config: ScriptedConfig) -> Callable[[Messages], Completion]:
    """Build the model for the option `llm: {scripted: worlds/…}`."""
    options = {"corruption": config.corruption, "reading": config.reading, "seed": config.seed}
    return WorldTruth.of(config.scripted, config.options, **options).reply


for _name in ("graph_rag", "grounding", "judges", "knowledge", "programs", "queries", "reranking", "synthesis"):
    import_module(f"ragmeter.scripted.{_name}")  # registers its handlers
