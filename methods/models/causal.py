"""Run local causal language models in batches: any folder or hub id that `transformers` loads.

Prompts are batched by length and padded on the left, with a mask and position ids that make padding invisible; the
common prefix of a batch's prompts is computed once. In float32, a text generated in a batch equals the text generated
alone, unless two tokens tie to the sixth digit.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.models import FrozenModel
from methods.models.causal_logprobs import CausalLogprobs, common_prefix, rows_of, windowed
from methods.models.decoding import Decoder, Sampling, checked_logprobs, checked_seeds, decoding, end_tokens, sampler, stopping
from methods.models.likelihood import UNBOUNDED, Item, ScoringConfig, TextEncoder, by_length, logits_only_at
from methods.models.pretrained import device_of, load_pretrained

if TYPE_CHECKING:
    pass


Messages = Sequence[dict[str, str]]
FALLBACK_LENGTH = 2048
"""Assumed context length of a model that does not state one."""
SHARED = 32
"""Shortest common prefix of a batch that is worth a separate pass, in tokens."""


class CausalConfig(FrozenModel):
    """Options of a local language model."""

    model: str = Field(description="a folder or hub id of a causal language model")
    revision: str | None = Field(None, description="revision of a hub id")
    dtype: Literal["float32", "bfloat16", "float16", "auto"] | None = Field(
        None, description="null: float32 on CPU, the checkpoint's own elsewhere"
    )
    max_new_tokens: int = Field(32, ge=1, description="longest answer")
    max_prompt_tokens: int | None = Field(None, ge=16, description="longest prompt; null: the model's own limit")
    batch_size: int = Field(8, ge=1, description="prompts generated at once")


@dataclass(frozen=True, slots=True)
class Generation:
    """Generated text of one prompt: text, cost, whether it is complete, and all tokens.

    The text has no special tokens except those that mark a thought.
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    ended: bool = True
    tokens: tuple[int, ...] = ()


NO_THINKING: Mapping[str, Any] = {"enable_thinking": False, "thinking": False}
"""Template variables that disable thinking (Qwen3, GLM, SmolLM3; DeepSeek, Granite)."""


def template_variables(tokenizer: Any, wanted: Mapping[str, Any], where: str | None = None) -> dict[str, Any]:
    """Return those of the given variables that a model's chat template uses.

    Args:
        tokenizer: Tokenizer with the `chat_template`.
        wanted: Variables with their values.
        where: Name of the option with the variables; if given, the template must use each of them.

    Raises:
        UserError: The template lacks a variable of the option.
    """
    text = str(getattr(tokenizer, "chat_template", None) or "")
    known = {name: value for name, value in wanted.items() if re.search(rf"(?<![\w.'\"]){re.escape(name)}(?![\w'\"])", text)}
    if where is not None and (unknown := sorted(wanted.keys() - known.keys())):
        raise UserError(
            f"the model's chat template does not know the variable {unknown[0]!r}",
            code="unknown-template-variable",
            where=f"{where}.{unknown[0]}",
            try_this="leave it out",
        )
    return known


QUIET = {"enable_thinking": False}
"""Template variables that disable thinking; templates without them ignore them."""


def chat_text(tokenizer: Any, messages: Messages, variables: Mapping[str, Any] | None = None, joined: str = "\n\n") -> str:
    """Return the text of a conversation for a model to continue.

    If the template refuses or drops a first system message, the message is put before the first user message, with `joined`
    between them; an empty one is left out. Without a chat template, messages are written one after the other.
    """
    system = messages[0]["content"] if messages and messages[0]["role"] == "system" else ""
    turns = [dict(message) for message in messages if message["role"] != "system"]

    def template(some: Sequence[Mapping[str, Any]]) -> str:
        return str(tokenizer.apply_chat_template(list(some), tokenize=False, add_generation_prompt=True, **(variables or {})))

    if not getattr(tokenizer, "chat_template", None):
        return "\n\n".join([system, *(m["content"] for m in turns)] if system else [m["content"] for m in turns])
    from jinja2 import TemplateError

    if system:
        # Templates refuse unsupported messages by raising Jinja's error (Gemma, Mistral: no system role).
        with suppress(TemplateError):
            text = template([{"role": "system", "content": system}, *turns])
            if system.strip() in text and _shows(text, turns):
                return text
        turns[0] = {**turns[0], "content": f"{system}{joined}{turns[0]['content']}"}
    problem = "it leaves out the last message"
    try:
        text = template(turns)
        if not _shows(text, turns):  # templates of models that also see images take a list of parts
            text = template([{"role": turn["role"], "content": [{"type": "text", "text": turn["content"]}]} for turn in turns])
        if _shows(text, turns):
            return text
    except TemplateError as error:
        problem = str(error)
    raise UserError(
        f"the model's chat template cannot be used: {problem}",
        code="chat-template-failed",
        where=f"model {getattr(tokenizer, 'name_or_path', '')!r}",
        try_this="correct its chat_template.jinja, or name a model with another template",
    )


def _shows(text: str, turns: Messages) -> bool:
    """Return whether a text holds the last message, white space aside, which some templates change."""
    return "".join(turns[-1]["content"].split()) in "".join(text.split())


class CausalModel:
    """A loaded causal language model, for generation and log-probabilities (see `causal_logprobs.py`).

    Args:
        config: Options.
        device: "cpu", "cuda" …; None chooses.
        share_prefixes: Whether `generate` computes the common prefix of a batch's prompts once.
        own: Whether to load separate weights that the caller may change; otherwise equal models share weights.

    Raises:
        UserError: The model cannot be loaded, or leaves no room for a prompt.
    """

    def __init__(self, config: CausalConfig, device: str | None = None, share_prefixes: bool = True, own: bool = False) -> None:
        self.config = config
        self.device = device_of(device)
        self.tokenizer, self.model = load_pretrained(
            "language model", "AutoModelForCausalLM", config.model, config.revision, config.dtype, self.device, own=own
        )
        self._ends = end_tokens(self.model, self.tokenizer)
        # Padding is masked, so any id works if a model names none.
        pad = self.tokenizer.pad_token_id
        self._pad: int = pad if pad is not None else (self._ends[0] if self._ends else 0)
        text_config = self.model.config.get_text_config()
        self.length = int(getattr(text_config, "max_position_embeddings", None) or FALLBACK_LENGTH)
        self.room = self._room()
        self.text_encoder = TextEncoder(self.tokenizer)
        self._text = Decoder(self.tokenizer)
        # With a shared prefix, padding is between tokens, which changes windows that count columns.
        self._shares = share_prefixes and not windowed(self.model)

    def _room(self) -> int:
        """Return the longest prompt in tokens."""
        length = self.length
        room = length - self.config.max_new_tokens
        if self.config.max_prompt_tokens is not None:
            room = min(room, self.config.max_prompt_tokens)
        if room < 1:
            raise UserError(
                f"max_new_tokens={self.config.max_new_tokens} leaves no room for a prompt: the model's limit is {length} tokens in total",
                code="max-new-tokens-too-large",
                where=f"model {self.config.model!r}",
                try_this="lower max_new_tokens",
            )
        return room

    def end_at(self, token: str) -> None:
        """Add a token at which generation stops.

        Raises:
            UserError: The vocabulary does not have the token.
        """
        number = self.tokenizer.convert_tokens_to_ids(token)
        if number is None or number == self.tokenizer.unk_token_id:
            raise UserError(
                f"the vocabulary has no token {token}",
                code="vocabulary-token-missing",
                where=f"model {self.config.model!r}",
                try_this="a model that was trained with that token",
            )
        if number not in self._ends:
            self._ends.append(number)

    def render(self, system: str, user: str, variables: Mapping[str, Any] | None = None) -> str:
        """Return the text of a prompt: in the model's chat template if it has one, else the messages one after the other."""
        return self.render_chat([{"role": "system", "content": system}, {"role": "user", "content": user}], variables)

    def render_chat(self, messages: Messages, variables: Mapping[str, Any] | None = None) -> str:
        """Return the text of a conversation for the model to continue; see `chat_text`."""
        return chat_text(self.tokenizer, messages, variables)

    def encode(self, prompt: str) -> list[int]:
        """Return a prompt's token ids, with the tokenizer's initial special tokens unless a chat template wrote them."""
        return self.text_encoder.prompts([prompt])[0]

    def prompt_room(self, target: int) -> int:
        """Return the longest prompt in tokens before a scored target, whose last token is not an input."""
        return self.length - target + 1

    def logprobs(self, items: Sequence[Item], config: ScoringConfig) -> list[list[float]]:
        """Return the log-probability of each token of each target, given its prompt; see `LikelihoodScorer`."""
        return checked_logprobs(CausalLogprobs(self.model, self._pad, self.device, config)(items), self.model)

    def generate(
        self,
        prompts: Sequence[str | Sequence[int]],
        sampling: Sampling | None = None,
        seeds: Sequence[int] | None = None,
        stop: Sequence[str] = (),
    ) -> list[Generation]:
        """Generate continuations of prompts in batches.

        Args:
            prompts: Texts from `render`, or their token ids; each at most `room` tokens long.
            sampling: Sampling options; None: greedy.
            seeds: One per prompt; None: derived from `sampling.seed` and the prompt. Samples of a prompt do not depend
                on the other prompts.
            stop: Texts at which a continuation ends; they are not part of the returned text.

        Returns:
            One generation per prompt, in order.

        Raises:
            ValueError: A prompt is longer than `room`, or empty; seeds without sampling.
        """
        encoded = [self.encode(prompt) if isinstance(prompt, str) else list(prompt) for prompt in prompts]
        own = checked_seeds(encoded, self.room, prompts, sampling, seeds)
        # Batches of similar lengths save padding; the longest come first to show immediately if memory is too small.
        done: dict[int, Generation] = {}
        for positions in by_length([len(ids) for ids in encoded], UNBOUNDED, self.config.batch_size):
            draws = sampler(sampling, [own[position] for position in positions]) if sampling else ()
            done.update(zip(positions, self._generate([encoded[position] for position in positions], draws, stop), strict=True))
        return [done[position] for position in range(len(encoded))]

    def _generate(self, batch: Sequence[list[int]], draws: Any, stop: Sequence[str]) -> list[Generation]:
        import torch

        started = time.perf_counter()
        width = max(len(ids) for ids in batch)
        common = common_prefix([ids[:-1] for ids in batch]) if self._shares and len(batch) > 1 else 0
        common = common if common >= SHARED else 0
        # The common prefix, padding, and the rest; without a common prefix, padding comes first.
        gaps = [width - len(row) for row in batch]
        rows = [row[:common] + [self._pad] * gap + row[common:] for row, gap in zip(batch, gaps, strict=True)]
        masks = [[1] * common + [0] * gap + [1] * (width - gap - common) for gap in gaps]
        ids = torch.tensor(rows, device=self.device)
        shared: dict[str, Any] = {}
        with torch.inference_mode():
            if common:
                first = torch.zeros(len(batch), dtype=torch.long, device=self.device)
                with logits_only_at(self.model, first[:1], first[:1]):
                    cache = self.model(input_ids=ids[:1, :common], use_cache=True).past_key_values
                shared["past_key_values"] = rows_of(cache, first)
            written = self.model.generate(
                input_ids=ids,
                attention_mask=torch.tensor(masks, device=self.device),
                **decoding(self.model, self.config.max_new_tokens, self._pad, self._ends, draws),
                stopping_criteria=stopping(self.tokenizer, stop, width) if stop else None,
                **shared,
            )[:, width:].tolist()
        seconds = (time.perf_counter() - started) / len(batch)
        return [self._generation(len(ids), row, seconds, stop) for ids, row in zip(batch, written, strict=True)]

    def _generation(self, prompt_tokens: int, written: list[int], seconds: float, stop: Sequence[str]) -> Generation:
        text, tokens, ended = self._text.read(written, self._ends, stop)
        return Generation(text, prompt_tokens, len(tokens), seconds, ended, tuple(tokens))
