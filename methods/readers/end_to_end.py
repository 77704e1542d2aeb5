"""Readers of systems that CLaRa is compared with: ChatQA, In-context RAG (with demonstrations), and In-context RALM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field, field_validator

from benchmarks import registry as datasets
from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.random import Draws
from benchmarks.registry import DataReference
from benchmarks.schema import Passage
from methods.api import Services
from methods.models.causal import CausalConfig, CausalModel
from methods.models.endpoint import Messages
from methods.models.weights import weights_hash
from methods.prompts import Shipped, published, published_hash, shipped
from methods.readers.chat import ChatReader, ChatReaderConfig, prompts_made_of
from methods.readers.local import CausalReader
from methods.readers.prompts import prompt_tokens, reading_work
from methods.registry import ModelMethodConfig, register
from methods.work import Lengths, Work, ask

CHATQA = Shipped("methods.readers", "chatqa", optional=frozenset({"instruction"}))
"""Prompt format of ChatQA's model card; `$passages` has an empty line after each passage."""
INSTRUCTIONS = {
    "short": "Answer the following question with a short span. The answer needs to be just in a few words.",
    "full": "Please give a full and complete answer for the question.",
}
"""Instruction before the question: for datasets with short answers, and for other datasets."""
END_OF_TURN = "<|eot_id|>"


class ChatQaConfig(CausalConfig, ModelMethodConfig):
    """Options of ChatQA."""

    model: str = Field("nvidia/Llama3-ChatQA-1.5-8B", description="a checkpoint of ChatQA")
    max_new_tokens: int = Field(64, ge=1, description="longest answer")
    instruction: str = Field("short", pattern="^(short|full)$", description="instruction before the question")
    prompt: str | None = Field(
        None, description="your own template file; null: the format of its model card", exclude_if=lambda value: value is None
    )

    def preflight(self) -> None:
        """Check the model and the template."""
        super().preflight()
        CHATQA.load(self.prompt)


def chatqa_prompt(question: str, passages: Sequence[Passage], instruction: str = "short", prompt: str | None = None) -> str:
    """Return ChatQA's prompt for a question and passages, without the beginning-of-text token."""
    shown = [f"title: {item.title}, source: {item.text}" if item.title else item.text for item in passages]
    values = {"passages": "".join(f"{text}\n\n" for text in shown), "instruction": INSTRUCTIONS[instruction], "question": question}
    return CHATQA.load(prompt).pair(**values)[1]


def _chatqa_hash(config: ChatQaConfig) -> str:
    example = chatqa_prompt("question", [Passage("", "title", "text")], config.instruction, config.prompt)
    return fingerprint(weights_hash(config.model, config.revision), example)


def _chatqa_work(config: ChatQaConfig, lengths: Lengths) -> Work:
    prompt = prompt_tokens(
        lambda q, passages: [chatqa_prompt(q, passages, config.instruction, config.prompt)], lengths, config, config.max_prompt_tokens
    )
    return ask(config, lengths.questions, prompt)


@register(
    "chatqa",
    kind="reader",
    summary="ChatQA: a model tuned to answer from contexts, in its own format",
    version=3,
    paper="Liu et al. 2025, ChatQA (arXiv:2401.10225)",
    presets={
        "paper": {"dtype": "bfloat16"},
        "released": {"dtype": "bfloat16"},
        "70b": {"model": "nvidia/Llama3-ChatQA-1.5-70B", "dtype": "bfloat16"},
    },
    checkpoint_hash=_chatqa_hash,
    work=_chatqa_work,
)
class ChatQa(CausalReader):
    """Reader role: a local ChatQA checkpoint; passages that do not fit are dropped, the last ones first.

    Args:
        config: Options.
        services: Services; the device is used.
    """

    def __init__(self, config: ChatQaConfig, services: Services) -> None:
        self._model = CausalModel(config, services.device)
        tokenizer = self._model.tokenizer
        tokenizer.chat_template = None
        # Some tokenizers begin a text by themselves, others do not; it begins once.
        begin = tokenizer.bos_token or ""
        self._begin = begin if begin and self._model.encode("a")[:1] != [tokenizer.bos_token_id] else ""
        if tokenizer.convert_tokens_to_ids(END_OF_TURN) not in (None, tokenizer.unk_token_id):
            self._model.end_at(END_OF_TURN)
        self._instruction, self._own = config.instruction, config.prompt
        self.batch_size = 2 * config.batch_size

    def _rendered(self, question: str, passages: Sequence[Passage]) -> str:
        return self._begin + chatqa_prompt(question, passages, self._instruction, self._own)


class InContextConfig(ChatReaderConfig):
    """Options of In-context RAG: model, instructions and demonstrations."""

    demonstrations: str = Field(description="training data of the demonstrations, such as hotpotqa:train; other splits are refused")
    data_options: dict[str, Any] = Field(default_factory=dict, description="options of that dataset")
    count: int = Field(3, ge=1, description="number of demonstrations")

    @field_validator("demonstrations")
    @classmethod
    def _of_training(cls, value: str) -> str:
        if DataReference.parse(value).split != "train":
            raise ValueError("demonstrations must come from training data: name the split train")
        return value


def _in_context_work(config: InContextConfig, lengths: Lengths) -> Work:
    demonstrations = config.count * (lengths.question + lengths.answer + 2 * lengths.passage)
    return reading_work(config, lengths, config.llm, before=demonstrations)


@register(
    "in_context_rag",
    kind="reader",
    summary="any language model, with demonstrations of training questions answered from passages, then the question",
    version=2,
    paper="Ram et al. 2023, In-Context Retrieval-Augmented Language Models (arXiv:2302.00083), with demonstrations",
    checkpoint_hash=prompts_made_of,
    work=_in_context_work,
)
class InContext(ChatReader):
    """Reader role: a chat reader whose prompt starts with demonstrations.

    Args:
        config: Options.
        services: As in `ChatReader`; the seed selects the demonstrations.
    """

    def __init__(self, config: InContextConfig, services: Services) -> None:
        super().__init__(config, services)
        self._turns: list[dict[str, str]] = []
        benchmark = datasets.load(config.demonstrations, config.data_options)
        fit = [q for q in benchmark.questions if q.answers and q.answerable and q.evidence and set(q.evidence) <= set(benchmark.corpus.ids)]
        for question in Draws("demonstrations", services.seed).sample(fit, config.count):
            _, user = self._instructions.filled(question.text, self._instructions.evidence(benchmark.corpus.get(question.evidence)))
            answer = ", ".join(question.wanted) if question.answer_set else question.answers[0]
            self._turns += [{"role": "user", "content": user}, {"role": "assistant", "content": answer}]

    def _messages(self, question: str, evidence: str) -> Messages:
        system, user = self._instructions.filled(question, evidence)
        messages = [*self._turns, {"role": "user", "content": user}]
        return [{"role": "system", "content": system}, *messages] if system else messages


RALM = shipped("methods.readers", "ic_ralm", "ic_ralm_closed_book", released=("ic_ralm", "ic_ralm_closed_book"))
ONE = "ic_ralm_one"
"""Name of the published prompt for a single passage."""


class InContextRalmConfig(CausalConfig, ModelMethodConfig):
    """Options of In-context RALM."""

    model: str = Field("huggyllama/llama-7b", description="causal language model; its chat template is not used")
    max_new_tokens: int = Field(10, ge=1, description="longest answer")
    prompt: str | None = Field(None, description="`published`, `ours` or a template file, of questions with passages; null: published")
    closed_book_prompt: str | None = Field(None, description="the same, for questions without passages")

    @property
    def is_published(self) -> bool:
        """Return whether the prompt with passages is the published one."""
        return RALM["ic_ralm"].is_published(self.prompt)

    def checkpoint_hash(self) -> str:
        """Return a hash of the weights and prompts."""
        own = RALM["ic_ralm"].hash(self.prompt), RALM["ic_ralm_closed_book"].hash(self.closed_book_prompt)
        return fingerprint(super().checkpoint_hash(), *own, published_hash(ONE) if self.is_published else "")

    def preflight(self) -> None:
        """Check the model and the templates; download published ones."""
        super().preflight()
        RalmPrompt(self)


class RalmPrompt:
    """Builder of In-context RALM's prompts.

    Args:
        config: Options.

    Raises:
        UserError: A template is invalid, or a published one cannot be downloaded.
    """

    def __init__(self, config: InContextRalmConfig) -> None:
        self._several = RALM["ic_ralm"].load(config.prompt)
        self._one = published(ONE) if config.is_published else None
        self._none = RALM["ic_ralm_closed_book"].load(config.closed_book_prompt)

    def __call__(self, question: str, passages: Sequence[Passage]) -> str:
        """Build the prompt; the question is lower-cased at its start and ends with a question mark."""
        question = question if question.endswith("?") else f"{question}?"
        question = question[:1].lower() + question[1:]
        if not passages:
            return self._none.pair(question=question)[1]
        if self._one is not None and len(passages) == 1:
            return self._one.pair(question=question, title=passages[0].title, text=passages[0].text)[1]
        shown = "\n\n".join(f"{passage.title}\n\n{passage.text}" for passage in passages)
        return self._several.pair(question=question, passages=shown)[1]


def _ralm_work(config: InContextRalmConfig, lengths: Lengths) -> Work:
    ours = RalmPrompt(config.model_copy(update={"prompt": "ours", "closed_book_prompt": "ours"}))
    return ask(config, lengths.questions, prompt_tokens(lambda q, some: [ours(q, some)], lengths, config, config.max_prompt_tokens))


@register(
    "in_context_ralm",
    kind="reader",
    summary="a language model that continues passages and a question, without demonstrations or a chat format, as published",
    paper="Ram et al. 2023, In-Context Retrieval-Augmented Language Models (arXiv:2302.00083)",
    work=_ralm_work,
)
class InContextRalm(CausalReader):
    """Reader role: a base model continues passages and question; the answer ends at the line break. Passages that do not fit
    are dropped, the last ones first.

    Args:
        config: Options.
        services: Services; the device is used.
    """

    _stop = ("\n",)
    _rule = "none"

    def __init__(self, config: InContextRalmConfig, services: Services) -> None:
        self._model = CausalModel(config, services.device)
        self._model.tokenizer.chat_template = None
        self._write = RalmPrompt(config)
        self.batch_size = 2 * config.batch_size

    def _rendered(self, question: str, passages: Sequence[Passage]) -> str:
        return self._write(question, passages)
