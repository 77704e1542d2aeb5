"""Local causal language models: any folder or hub id that `transformers` loads, generating in batches.

Prompts are batched by length and padded on the left, with the mask and the position ids that make padding invisible;
what the prompts of a batch begin with in common is computed once. In float32 a text generated in a batch equals the
one generated alone, unless two tokens tie to the sixth digit.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from benchmarks.errors import UserError
from methods.models.batching import UNBOUNDED, by_length
from methods.models.causal_logprobs import CausalLogprobs
from methods.models.encoding import TextEncoder
from methods.models.prefix_cache import common_prefix, rows_of, windowed
from methods.models.sampling import Sampling, sampler
from methods.models.scoring import Item, ScoringConfig, logits_only_at
from methods.models.weights import device_of, load_pretrained

Messages = Sequence[dict[str, str]]
FALLBACK_LENGTH = 2048
"""Context length assumed of a model that does not state one."""
SHARED = 32
"""Shortest common beginning of a batch that is worth a pass of its own, in tokens."""


class CausalConfig(BaseModel):
    """Options of a local language model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(description="a folder or hub id of a causal language model")
    revision: str | None = Field(None, description="revision of a hub id")
    dtype: Literal["float32", "bfloat16", "float16", "auto"] | None = Field(
        None, description="null: float32 on CPU, the checkpoint's own elsewhere"
    )
    max_new_tokens: int = Field(32, ge=1, description="longest answer")
    max_prompt_tokens: int | None = Field(None, ge=16, description="longest prompt; null: what the model has room for")
    batch_size: int = Field(8, ge=1, description="prompts generated at once")


@dataclass(frozen=True, slots=True)
class Generation:
    """What a model wrote after one prompt: text without special tokens, what it cost, and whether it came to an end."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    ended: bool = True


class CausalModel:
    """A loaded causal language model: generates, and gives log-probabilities (see `likelihood.py`).

    Args:
        config: Options.
        device: "cpu", "cuda" …; None chooses.
        share_prefixes: Whether `generate` computes once what all prompts of a batch begin with.

    Raises:
        UserError: The model cannot be loaded, or leaves no room for a prompt.
    """

    def __init__(self, config: CausalConfig, device: str | None = None, share_prefixes: bool = True) -> None:
        self.config = config
        self.device = device_of(device)
        self.tokenizer, self.model = load_pretrained(
            "language model", "AutoModelForCausalLM", config.model, config.revision, config.dtype, self.device
        )
        ends = self.model.generation_config.eos_token_id
        ends = ends if ends is not None else self.tokenizer.eos_token_id
        self._ends: list[int] = [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
        # What pads is masked, so any id does where a model names none.
        pad = self.tokenizer.pad_token_id
        self._pad: int = pad if pad is not None else (self._ends[0] if self._ends else 0)
        text_config = self.model.config.get_text_config()
        self.length = int(getattr(text_config, "max_position_embeddings", None) or FALLBACK_LENGTH)
        self.room = self._room()
        self.text_encoder = TextEncoder(self.tokenizer)
        # In a shared beginning padding stands between tokens, which windows that count columns would notice.
        self._shares = share_prefixes and not windowed(self.model)

    def _room(self) -> int:
        """Longest prompt in tokens."""
        length = self.length
        room = length - self.config.max_new_tokens
        if self.config.max_prompt_tokens is not None:
            room = min(room, self.config.max_prompt_tokens)
        if room < 1:
            raise UserError(
                f"max_new_tokens={self.config.max_new_tokens} leaves no room for a prompt: the model takes {length} tokens in all",
                where=f"model {self.config.model!r}",
                try_this="lower max_new_tokens",
            )
        return room

    def end_at(self, token: str) -> None:
        """Let a text end at a token of the vocabulary too.

        Raises:
            UserError: The vocabulary has no such token.
        """
        number = self.tokenizer.convert_tokens_to_ids(token)
        if number is None or number == self.tokenizer.unk_token_id:
            raise UserError(
                f"the vocabulary has no token {token}",
                where=f"model {self.config.model!r}",
                try_this="a model that was trained with that token",
            )
        if number not in self._ends:
            self._ends.append(number)

    @property
    def chats(self) -> bool:
        """Whether the tokenizer has a chat template."""
        return bool(getattr(self.tokenizer, "chat_template", None))

    def render(self, system: str, user: str) -> str:
        """The text of a prompt: in the model's chat template where it has one, else one after the other."""
        return self.render_chat([{"role": "system", "content": system}, {"role": "user", "content": user}])

    def render_chat(self, messages: Messages) -> str:
        """The text of a conversation that the model is to continue.

        A first message from the system goes to the head of the first user message where the template refuses or
        drops it; an empty one is left out. Without a chat template the messages stand one after the other.
        """
        system = messages[0]["content"] if messages and messages[0]["role"] == "system" else ""
        turns = [dict(message) for message in messages if message["role"] != "system"]
        if not self.chats:
            return "\n\n".join([system, *(m["content"] for m in turns)] if system else [m["content"] for m in turns])
        if not system:
            return self._template(turns)
        try:
            text = self._template([{"role": "system", "content": system}, *turns])
            if system.strip() in text:
                return text
        except Exception as error:
            # Templates refuse what they do not know by raising Jinja's error (Gemma, Mistral: no system role).
            if type(error).__name__ not in {"TemplateError", "UndefinedError"}:
                raise
        turns[0] = {**turns[0], "content": f"{system}\n\n{turns[0]['content']}"}
        return self._template(turns)

    def _template(self, messages: Messages) -> str:
        return str(self.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True))

    def encode(self, prompt: str) -> list[int]:
        """A prompt's token ids, special tokens included once: a chat template writes its own."""
        return list(self.tokenizer(prompt, add_special_tokens=not self.chats)["input_ids"])

    def prompt_room(self, target: int) -> int:
        """Longest prompt in tokens before a target that is scored: a target's last token is no input."""
        return self.length - target + 1

    def logprobs(self, items: Sequence[Item], config: ScoringConfig) -> list[list[float]]:
        """Log-probability of each token of each target, given its prompt: see `LikelihoodScorer`."""
        return CausalLogprobs(self.model, self._pad, self.device, config)(items)

    def generate(
        self,
        prompts: Sequence[str],
        starts: Sequence[str] | None = None,
        sampling: Sampling | None = None,
        seeds: Sequence[int] | None = None,
    ) -> list[Generation]:
        """Continue prompts.

        Args:
            prompts: As `render` makes them; each, with its start, at most `room` tokens long.
            starts: Texts that the answers are forced to start with (their leading space included); they are not part
                of the returned text.
            sampling: How tokens are drawn; None: greedily.
            seeds: One per prompt; None: made of `sampling.seed` and the prompt. With either, what is drawn for a
                prompt does not depend on the others.

        Returns:
            One generation per prompt, in order.

        Raises:
            ValueError: A prompt is longer than `room`, or empty; seeds without sampling.
        """
        encoded = [self.encode(prompt) for prompt in prompts]
        if starts is not None:
            forced = {start: self.text_encoder.target(start) if start else [] for start in set(starts)}
            encoded = [ids + forced[start] for ids, start in zip(encoded, starts, strict=True)]
        for ids in encoded:
            if not 0 < len(ids) <= self.room:
                raise ValueError(f"a prompt has {len(ids)} tokens where 1 to {self.room} fit")
        if seeds is not None and (sampling is None or len(seeds) != len(prompts)):
            raise ValueError("seeds belong to sampling, one per prompt")
        own = list(seeds) if seeds is not None else sampling.seeds(prompts) if sampling else []
        # Like lengths together waste no computation on padding; the longest first shows at once if memory is short.
        done: dict[int, Generation] = {}
        for places in by_length([len(ids) for ids in encoded], UNBOUNDED, self.config.batch_size):
            draws = sampler(sampling, [own[place] for place in places]) if sampling else None
            done.update(zip(places, self._generate([encoded[place] for place in places], draws), strict=True))
        return [done[place] for place in range(len(encoded))]

    def _generate(self, batch: Sequence[list[int]], draws: Any) -> list[Generation]:
        import torch

        started = time.perf_counter()
        width = max(len(ids) for ids in batch)
        common = common_prefix([ids[:-1] for ids in batch]) if self._shares and len(batch) > 1 else 0
        common = common if common >= SHARED else 0
        # The common beginning, padding, and the rest; without a common beginning padding comes first.
        gaps = [width - len(row) for row in batch]
        rows = [row[:common] + [self._pad] * gap + row[common:] for row, gap in zip(batch, gaps, strict=True)]
        masks = [[1] * common + [0] * gap + [1] * (width - gap - common) for gap in gaps]
        ids = torch.tensor(rows, device=self.device)
        lent: dict[str, Any] = {}
        with torch.inference_mode():
            if common:
                first = torch.zeros(len(batch), dtype=torch.long, device=self.device)
                with logits_only_at(self.model, first[:1], first[:1]):
                    cache = self.model(input_ids=ids[:1, :common], use_cache=True).past_key_values
                lent["past_key_values"] = rows_of(cache, first)
            written = self.model.generate(
                input_ids=ids,
                attention_mask=torch.tensor(masks, device=self.device),
                max_new_tokens=self.config.max_new_tokens,
                do_sample=False,
                num_beams=1,
                temperature=None,
                top_p=None,
                top_k=None,
                repetition_penalty=1.0,
                pad_token_id=self._pad,
                eos_token_id=self._ends or None,
                logits_processor=draws,
                **lent,
            )[:, width:].tolist()
        seconds = (time.perf_counter() - started) / len(batch)
        return [self._generation(len(ids), row, seconds) for ids, row in zip(batch, written, strict=True)]

    def _generation(self, prompt_tokens: int, written: list[int], seconds: float) -> Generation:
        # After its end a row is filled up while others go on.
        end = next((place for place, token in enumerate(written) if token in self._ends), None)
        kept = written if end is None else written[:end]
        text = self.tokenizer.decode(kept, skip_special_tokens=True)
        return Generation(text, prompt_tokens, len(kept) + (end is not None), seconds, end is not None)
