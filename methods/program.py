"""Run end-to-end systems as programs: an `async` function per question that searches and asks as often as necessary.

    @register_program("two_looks", prompts=("two_looks",), calls=lambda config: 1, searches=lambda config: 2, summary="…", paper="…")
    async def two_looks(q: Session) -> str:
        seen = await q.search(q.text)
        hint = await q.ask("two_looks", question=q.text, passages=seen)
        return await q.read([*seen, *await q.search(hint)]) if hint else await q.plain()

Prompts are files of the folder `templates` next to the program (`methods/prompts.py`). A reply that cannot be used is counted
(`Session.fallback`), and the program decides how it continues.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from methods.api import FAILED, Call, Evidence, Indexed, Prediction, Services, Usage, kept
from methods.composed import Composed
from methods.flow import IN_FLIGHT, one, trace
from methods.models.bounded import between
from methods.models.causal import Generation
from methods.models.chat import ChatModel
from methods.models.chat_config import ChatConfig
from methods.models.formats import own_format
from methods.models.llm import AskingConfig, asks_released, llm_hash, open_llm
from methods.models.local_llm import LocalConfig
from methods.models.reply import READING
from methods.models.weights import locate, weights_hash
from methods.pipeline import RetrieverChoice, RetrieverPart, index_folder, indexed
from methods.prompts import OURS, PUBLISHED, Messages, Prompt, Shipped, shipped
from methods.readers.extract import short_answer
from methods.readers.prompts import PROMPTS, longest_prefix, numbered
from methods.registry import MethodConfig, register
from methods.work import Lengths, Needs, Work, all_needs, ask, needs_of

UNUSABLE, NO_REPLY, NO_ROOM, NO_END, NOTHING_FOUND = "unusable", "failed", "no_room", "no_end", "nothing_found"
"""Reasons of failed steps: an unusable reply, no reply, a prompt that is too long, an iteration limit, an empty search."""
DEEPEST = 100
"""Maximum number of passages that are stored as a question's evidence."""
INSTRUCTIONS = 200
"""Estimated prompt tokens besides question and passages, for cost estimates."""


class SearchingConfig(MethodConfig):
    """Options of all programs."""

    thinks: ClassVar[bool] = False
    """True if the program's protocol needs the model's reasoning, such as `<think>` tags."""
    retriever: RetrieverPart = Field(RetrieverChoice(id="dense"), description="retriever; a bare name stands for {id: …}")
    k: int = Field(5, ge=1, le=DEEPEST, description="passages per search")
    prompts: str | None = Field(
        None, description="folder with your own templates, named like the shipped ones; missing ones are taken from those"
    )

    def preflight(self) -> None:
        """Check that the retriever can be built and that the template folder and local models exist."""
        self.retriever.component.preflight()
        if self.prompts is not None and not Path(self.prompts).expanduser().is_dir():
            raise UserError("folder of prompts does not exist", code="missing-folder", where=f"prompts {self.prompts}")
        if model := getattr(self, "model", None):
            locate(model)


class ProgramConfig(AskingConfig, SearchingConfig):
    """Options of programs that ask a language model."""

    def preflight(self) -> None:
        """Check the language model, the retriever and the template folder."""
        AskingConfig.preflight(self)
        SearchingConfig.preflight(self)


class Session:
    """API for one question of a running program: search, prompt the model, read, and record failures.

    Attributes:
        text: The question.
        config: The program's options.
        tool: The program's own tool besides a language model (`tool=`).
        prompts: The program's templates.
        searched: Search queries so far, in order.
        fallbacks: Number of failed steps by reason.
        ended: How the program ended, if not normally: `plain`, `stopped` …
    """

    def __init__(self, system: Program, query: Query) -> None:
        self.tool: Any = system.tool
        self.config, self.prompts = system.config, system.prompts
        self.text = query.text
        self.searched: list[str] = []
        self.fallbacks: Counter[str] = Counter()
        self.ended = ""
        self.usage = Usage()
        self._lost = ""
        self._notes: dict[str, Any] = {}
        self._system, self._query = system, query
        self._found: dict[str, None] = {}

    async def search(self, text: str, k: int | None = None) -> list[Passage]:
        """Retrieve the best k passages for a query among the passages that the question may use."""
        self.searched.append(text)
        if self._system.retrieve is None or self._query.candidates == ():
            return []
        query = replace(self._query, id=f"{self._query.id}~{len(self.searched)}", text=text)
        ranking = await self._system.retrieve(query, k or self.config.k)
        self.usage += replace(ranking.usage, seconds={})  # a program is one stage
        self._found.update(dict.fromkeys(ranking.ids))
        self._notes |= ranking.notes
        return self._system.corpus.get(ranking.ids)

    async def ask(self, name: str, passages: Sequence[Passage] = (), **values: str) -> str:
        """Fill a template, call the language model, and return its reply without the reasoning; "" and a counted failure if
        there is none.

        Args:
            name: Name of the template.
            passages: Values of `$passages`, numbered; the last ones are left out if the prompt is too long.
            values: Values of the other placeholders.
        """
        prompt = self._system.prompts[name]

        def messages(count: int) -> Messages:
            return prompt.messages(**values, passages=numbered(passages[:count]) or "(none)")

        return await self.fitted(messages, len(passages), name)

    async def fitted(self, messages: Callable[[int], Messages], count: int, step: str, *, raw: bool = False) -> str:
        """Send the longest prompt that fits the model and return the reply; `messages(n)` builds the conversation with n
        passages, n ≤ `count`. With `raw`, the reply includes the reasoning.
        """
        model = self._system.model
        assert model is not None
        if (room := model.room) is not None:
            count = longest_prefix(count, lambda some: model.counter.count(messages(some)) <= room)
            if not count and model.counter.count(messages(0)) > room:
                self.fallback(NO_ROOM)
                return ""
        reply = await model.ask(messages(count), step=step, raw=raw)
        self.usage += reply.usage
        if reply.failed is not None:
            self.no_reply(reply.failed)
        return reply.text

    async def read(self, passages: Sequence[Passage]) -> str:
        """Answer the question from passages with the default prompt of the reader `chat`, or with the only prompt that the
        model supports.
        """
        own = own_format(self.config.llm.local) if isinstance(self.config.llm, LocalConfig) else None
        if own is not None:
            return short_answer(await self.fitted(lambda some: _user(own.answer_prompt(self.text, passages[:some])), len(passages), "read"))

        def messages(count: int) -> Messages:
            shown = numbered(passages[:count])
            return PROMPTS["passages" if shown else "closed_book"].load().messages(question=self.text, passages=shown)

        return short_answer(await self.fitted(messages, len(passages), "read"))

    async def plain(self) -> str:
        """Answer by ordinary retrieve-and-read because the program reached no answer, and record this in the notes."""
        self.ended = "plain"
        return await self.read(await self.search(self.text))

    def fallback(self, reason: str) -> None:
        """Count a failed step under one of the module's reasons."""
        self.fallbacks[reason] += 1

    def no_reply(self, reason: str) -> None:
        """Count a call without a reply; the reason is that of the question's failure if it gets no answer."""
        self._lost = reason
        self.fallback(NO_REPLY)

    def unusable(self, reply: str) -> None:
        """Count a reply that does not contain what the prompt asked for; an empty reply was counted before."""
        if reply:
            self.fallback(UNUSABLE)

    def wrote(self, generation: Generation, prompt: str, step: str) -> str:
        """Record text generated by the program's own model (not `llm`) as a call of this question, and return the text."""
        cost = generation.prompt_tokens, generation.completion_tokens
        trace().calls.append(Call(self._system.name, step, kept(prompt), kept(generation.text), *cost, generation.seconds))
        self.usage += Usage(*cost, model_calls=1)
        return generation.text

    def prediction(self, answer: str) -> Prediction:
        """Build the prediction from this answer and the session's evidence, usage and notes."""
        ids = list(self._found)[:DEEPEST]
        note: dict[str, Any] = {"searches": self.searched}
        note |= {"fallbacks": dict(sorted(self.fallbacks.items()))} if self.fallbacks else {}
        note |= {"ended": self.ended} if self.ended else {}
        failed = {FAILED: self._lost} if not answer and self._lost else {}
        evidence = tuple(Evidence(identifier, 1 / rank) for rank, identifier in enumerate(ids, 1))
        return Prediction(self._query.id, answer, evidence, self.usage, {**self._notes, self._system.name: note, **failed})


def _user(text: str) -> Messages:
    return [{"role": "user", "content": text}]


class Program(Composed):
    """A whole system that runs an `async` program once per question.

    Args:
        name: Its id.
        answer: The program.
        config: Options.
        services: Services for the retriever, whose index it shares; the program uses the cache of replies, device and seed.
        prompts: Its templates.
        tool: Tool built from options and services, besides the language model.
    """

    def __init__(
        self,
        name: str,
        answer: Callable[[Session], Awaitable[str]],
        config: Any,
        services: Services,
        prompts: Mapping[str, Prompt],
        tool: Callable[[Any, Services], Any] | None,
    ) -> None:
        super().__init__()
        self.name, self.config, self.prompts = name, config, prompts
        self.model: ChatModel | None = None
        if hasattr(config, "llm"):
            self.model = open_llm(config.llm, services, role=name, thinks=config.thinks)
        self.tool = tool(config, services) if tool else None
        self.in_flight = self.model.in_flight if self.model else IN_FLIGHT
        self.waits = isinstance(main(config), ChatConfig)
        self.retrieve: Callable[..., Awaitable[Any]] | None = None
        self.corpus = Corpus.of(())
        self._answer, self._services = answer, services
        self._retriever = config.retriever.component.build(services)

    def index(self, corpus: Corpus) -> Indexed:
        """Build the index of the retriever, or reopen it."""
        folder = index_folder(self.config.retriever.component, corpus, self._services)
        index, cost = indexed(self._retriever, corpus, folder)
        self.corpus, self.retrieve = corpus, one(index, "retrieve") if index is not None else None
        self._indexes = () if index is None else (index,)
        return cost

    async def answer_one(self, query: Query) -> Prediction:
        """Run the program.

        Raises:
            Broke: All further calls would fail (key, model, endpoint).
        """
        session = Session(self, query)
        return session.prediction(await self._answer(session))


def main(options: Any) -> Any:
    """Return the options of the program's main model: `llm`, the endpoint that serves a checkpoint, or the program's own model."""
    return getattr(options, "llm", None) or getattr(options, "served", None) or options


def register_program(
    identifier: str,
    *,
    summary: str,
    config: type[SearchingConfig],
    calls: Callable[[Any], float],
    searches: Callable[[Any], float],
    prompts: Sequence[str] = (),
    released: Sequence[str] = (),
    tool: Callable[[Any, Services], Any] | None = None,
    models: Callable[[Any], Sequence[Any]] = lambda config: (),
    extra: str = "llm",
    **more: Any,
) -> Callable[[Callable[[Session], Awaitable[str]]], Callable[[Session], Awaitable[str]]]:
    """Register a program as a method; decorates the `async` function.

    Args:
        identifier, summary, config, extra: As in `register`, like all other keywords.
        calls: Function from options to the maximum model calls per question.
        searches: Function from options to the maximum searches per question.
        prompts: Names of the templates, files of the folder `templates` next to the program.
        released: Templates that the published prompt of the same name replaces by default.
        tool: Function from options and services to `Session.tool`.
        models: Function from options to the options of the tool's models, each with `model` and `revision`.
    """

    def decorate(answer: Callable[[Session], Awaitable[str]]) -> Callable[[Session], Awaitable[str]]:
        templates = shipped(Path(answer.__code__.co_filename).parent, *prompts, released=released)

        def loaded(options: Any) -> dict[str, Prompt]:
            return {name: template.load_from(options.prompts, prompt_of(options, template)) for name, template in templates.items()}

        def made_of(options: Any) -> str:
            texts = [template.hash_from(options.prompts, prompt_of(options, template)) for template in templates.values()] + [
                PROMPTS[name].load().hash for name in ("passages", "closed_book")
            ]
            own = llm_hash(options.llm) if hasattr(options, "llm") else weights_hash(options.model, options.revision)
            others = [weights_hash(item.model, item.revision) for item in models(options)]
            return fingerprint(options.retriever.component.fingerprint, texts, own, others, READING)

        def work(options: Any, lengths: Lengths) -> Work:
            prompt = INSTRUCTIONS + lengths.question + options.k * lengths.passage
            searching = options.retriever.component.work(replace(lengths, questions=lengths.questions * searches(options)))
            return searching + ask(main(options), lengths.questions * calls(options), prompt)

        def needs(options: Any) -> Needs | None:
            return all_needs((options.retriever.component.needs, needs_of(main(options), *models(options))))

        def build(options: Any, services: Services) -> Program:
            return Program(identifier, answer, options, services, loaded(options), tool)

        build.__module__, build.__wrapped__ = answer.__module__, answer  # type: ignore[attr-defined]
        facts: dict[str, Any] = {"checkpoint_hash": made_of, "work": work, "needs": needs, "extra": extra, **more}
        register(identifier, kind="method", summary=summary, config=config, **facts)(build)
        return answer

    return decorate


def prompt_of(options: Any, template: Shipped) -> str | None:
    """Return the prompt that a program uses: the value of its option `prompt`, or the default for the model.

    A file replaces the program's first prompt; the other prompts are then ours.
    """
    if not template.released:
        return None
    prompt: str | None = options.prompt
    if prompt is None:
        return PUBLISHED if asks_released(options.llm, template.published) else OURS
    return prompt if prompt in (OURS, PUBLISHED) or template.name == options.opening else OURS


def tagged(reply: str, tag: str) -> str | None:
    """Return the text between the first pair of tags, ignoring case; None if one is missing."""
    match = between(reply, f"<{tag}>", f"</{tag}>")
    return match[1].strip() if match else None


def behind(reply: str, mark: str) -> str | None:
    """Return the text after the last mark such as "So the answer is:", stripped; None if there is none.

    Markdown around the mark is ignored, and so is everything from a further question on, which models add in the form of an
    example. "Answer:" at the beginning of a line is a mark, too.

    Args:
        reply: The reply.
        mark: Pattern of the mark that ends with " is", in lower case: "answer is".
    """
    noun = mark.removesuffix(" is")
    # The colon is matched possessively: of "So the answer is:", cut there, it must not become the answer.
    verb = r"\s+(?:is|was|would be)(?![\w'’])(?:[*_]{1,3}(?=[\s:：]))?(?:\s*[:：])?+"
    label = rf"^[\s>#*_-]{{0,8}}(?:so,? )?(?:the )?(?:final )?{noun}[*_]{{0,3}}\s?[:：]"
    pattern = rf"(?:\b{noun}[*_]{{0,3}}{verb}|{label})(?:[*_]{{1,3}}(?=\s))?\s*(?=[*_]{{0,3}}[^\s*_])(\S.*)"
    matches = list(re.finditer(pattern, reply, re.IGNORECASE | re.MULTILINE))
    further = _FURTHER.search(reply, matches[0].end()) if matches else None
    texts = [match[1].strip() for match in matches if further is None or match.start() < further.start()]
    return short_answer(texts[-1]) if texts else None


_FURTHER = re.compile(r"^[ \t>#*_]{0,10}(?:q|question)[*_]{0,3}[ \t]*\d{0,3}[ \t]*[:：]", re.IGNORECASE | re.MULTILINE)
