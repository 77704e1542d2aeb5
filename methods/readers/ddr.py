"""Reader with RAG-DDR's prompt format: one passage per line, question and answer in one message, as its weights were trained.

Source: Li et al. 2025, RAG-DDR (arXiv:2410.13509).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from benchmarks.core.fingerprint import fingerprint
from benchmarks.schema import Passage, Query
from methods.api import FAILED, TRUNCATED, Answer, Context, Services
from methods.models.chat_config import ChatConfig
from methods.models.llm import LLM, asks_released, defaults, llm_hash, open_llm
from methods.prompts import OURS, Messages, shipped
from methods.readers.chat import CALL
from methods.readers.prompts import longest_prefix, prompt_tokens
from methods.registry import AskingMethodConfig, register
from methods.work import Lengths, Work, ask

NAME, PASSAGES = "ddr_generator", "passages"
TEMPLATE = shipped("methods.readers", NAME, released=(NAME,), optional=(PASSAGES,))[NAME]
RESERVED = 64
"""Tokens that the released code reserves for the chat template."""
RELEASED: dict[str, Any] = {
    "local": "meta-llama/Meta-Llama-3-8B-Instruct",
    "adapter": "OpenMatch/RAG-DDR/Gen_model_Llama3_8b",
    "dtype": "bfloat16",
    "max_tokens": 32,
}


class DdrGeneratorConfig(AskingMethodConfig):
    """Options of RAG-DDR's generator."""

    llm: Annotated[LLM, defaults(max_tokens=32)] = Field(description="the model that answers; released: an adapter of Llama-3-8B")
    context: int = Field(
        4096,
        ge=128,
        description=f"for the published prompt: tokens of question, passages and {RESERVED} for the rest; passages are cut at their ends",
    )
    prompt: str | None = Field(
        None,
        description="`ours`, `published` or a template file; null: published for a local model and for endpoints with the name "
        "of a checkpoint, else ours",
    )

    @property
    def chosen_prompt(self) -> str | None:
        """Return the option `prompt`, or the default for the selected model."""
        return self.prompt or (None if asks_released(self.llm, NAME) else OURS)

    def preflight(self) -> None:
        """Check the model and the template; download a published template."""
        super().preflight()
        DdrPrompt(self)


class DdrPrompt:
    """Builder of RAG-DDR's messages.

    Args:
        config: Options.

    Raises:
        UserError: The template is invalid, or the published one cannot be downloaded.
    """

    def __init__(self, config: DdrGeneratorConfig) -> None:
        self._prompts = {shown: TEMPLATE.load(config.chosen_prompt, shown=(PASSAGES,) if shown else ()) for shown in (False, True)}

    def __call__(self, question: str, evidence: str | None) -> Messages:
        """Build the conversation; `evidence` has one passage per line, None for no passages."""
        return self._prompts[evidence is not None].messages(question=question, passages=evidence)


def _evidence(passages: Sequence[Passage]) -> str | None:
    return "\n".join(passage.full_text for passage in passages) if passages else None


def _hash(config: DdrGeneratorConfig) -> str:
    chosen = config.chosen_prompt
    return fingerprint(llm_hash(config.llm), TEMPLATE.hash(chosen, shown=(PASSAGES,)), TEMPLATE.hash(chosen))


def _work(config: DdrGeneratorConfig, lengths: Lengths) -> Work:
    write = DdrPrompt(config.model_copy(update={"prompt": OURS}))

    def texts(question: str, passages: Sequence[Passage]) -> list[str]:
        return [message["content"] for message in write(question, _evidence(passages))]

    return ask(config.llm, lengths.questions, prompt_tokens(texts, lengths, config.llm, None))


@register(
    "ddr_generator",
    kind="reader",
    summary="RAG-DDR's generator, or any language model with its prompt format",
    version=2,
    paper="Li et al. 2025, RAG-DDR (arXiv:2410.13509)",
    presets={"released": {"llm": RELEASED}},
    checkpoint_hash=_hash,
    work=_work,
)
class DdrGenerator:
    """Reader role: asks a language model in RAG-DDR's format; the concatenated passages are truncated at the end if necessary.

    Args:
        config: Options.
        services: Services: reply cache, device and seed.
    """

    def __init__(self, config: DdrGeneratorConfig, services: Services) -> None:
        self._write = DdrPrompt(config)
        self._context = config.context if TEMPLATE.is_published(config.chosen_prompt) else None
        self._model = open_llm(config.llm, services, role="reader", known=True)
        self._notes_calls = services.cache is not None
        self.waits = isinstance(config.llm, ChatConfig)
        self.batches = self._model.batches
        self.in_flight = self._model.in_flight

    async def read_one(self, query: Query, context: Context) -> Answer:
        """Return the reply as the answer; a question whose call failed has the reason under `notes["failed"]`.

        Raises:
            Broke: No further call could succeed (key, model, endpoint).
        """
        messages, notes = self._request(query.text, context)
        reply = await self._model.ask(messages)
        notes |= {CALL: reply.key} if self._notes_calls else {}
        notes |= {FAILED: reply.failed} if reply.failed is not None else {}
        text = "" if reply.failed is not None else reply.text.strip()
        return Answer(text, reply.usage, notes, raw=reply.raw if reply.raw != text else "")

    def _request(self, question: str, context: Context) -> tuple[Messages, dict[str, object]]:
        evidence, room, counter = _evidence(context.passages), self._model.room, self._model.counter
        notes: dict[str, object] = {}
        if self._context is not None and evidence is not None:
            own, of = counter.counts([self._write(question, None)[0]["content"], evidence])
            most = max(0, self._context - RESERVED - own - 2 * counter.begin)
            evidence = counter.first(evidence, most, special=False)
            notes = {TRUNCATED: {"unit": "tokens", "kept": most, "of": of}} if of > most else {}
        messages = self._write(question, evidence)
        if room is None or counter.count(messages) <= room:
            return messages, notes
        text = evidence or ""
        spans = counter.spans(text)

        def first(tokens: int) -> Messages:
            return self._write(question, text[: spans[tokens - 1][1]] if tokens else None)

        kept = longest_prefix(len(spans), lambda tokens: counter.count(first(tokens)) <= room)
        return first(kept), {TRUNCATED: {"unit": "tokens", "kept": kept, "of": len(spans)}}
