"""Local causal language models: any folder or hub id that `transformers` loads, generating in batches.

Prompts are batched by length and padded on the left, with the mask and the position ids that make padding invisible.
In float32 a text generated in a batch equals the one generated alone, unless two tokens tie to the sixth digit.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from benchmarks.errors import UserError
from methods.models.weights import device_of, loading, locate

Messages = Sequence[dict[str, str]]
FALLBACK_LENGTH = 2048
"""Context length assumed of a model that does not state one."""


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
    """What a model wrote after one prompt: text without special tokens, and what it cost."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float


class CausalModel:
    """A loaded causal language model; decodes greedily.

    Args:
        config: Options.
        device: "cpu", "cuda" …; None chooses.

    Raises:
        UserError: The model cannot be loaded, or leaves no room for a prompt.
    """

    def __init__(self, config: CausalConfig, device: str | None = None) -> None:
        self.config = config
        self.device = device_of(device)
        with loading("language model", config.model):
            import torch
            from transformers import AutoModelForCausalLM, AutoTokenizer

            dtype = config.dtype or ("float32" if self.device == "cpu" else "auto")
            source = {"pretrained_model_name_or_path": locate(config.model), "revision": config.revision}
            source = {name: value for name, value in source.items() if value is not None}
            self.tokenizer: Any = AutoTokenizer.from_pretrained(**source)
            self.model: Any = AutoModelForCausalLM.from_pretrained(
                **source, dtype=dtype if dtype == "auto" else getattr(torch, dtype)
            )
        self.model.to(self.device).eval()
        ends = self.model.generation_config.eos_token_id
        ends = ends if ends is not None else self.tokenizer.eos_token_id
        self._ends: list[int] = [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
        # What pads is masked, so any id does where a model names none.
        pad = self.tokenizer.pad_token_id
        self._pad: int = pad if pad is not None else (self._ends[0] if self._ends else 0)
        self.room = self._room()

    def _room(self) -> int:
        """Longest prompt in tokens."""
        text_config = self.model.config.get_text_config()
        length = getattr(text_config, "max_position_embeddings", None) or FALLBACK_LENGTH
        room = int(length) - self.config.max_new_tokens
        if self.config.max_prompt_tokens is not None:
            room = min(room, self.config.max_prompt_tokens)
        if room < 1:
            raise UserError(
                f"max_new_tokens={self.config.max_new_tokens} leaves no room for a prompt: "
                f"the model takes {length} tokens in all",
                where=f"model {self.config.model!r}",
                try_this="lower max_new_tokens",
            )
        return room

    @property
    def chats(self) -> bool:
        """Whether the tokenizer has a chat template."""
        return bool(getattr(self.tokenizer, "chat_template", None))

    def render(self, system: str, user: str) -> str:
        """The text of a prompt: in the model's chat template where it has one, else one after the other."""
        if not self.chats:
            return f"{system}\n\n{user}" if system else user
        asked = [{"role": "user", "content": user}]
        if system:
            try:
                return self._template([{"role": "system", "content": system}, *asked])
            except Exception as error:
                # Templates refuse what they do not know by raising Jinja's error (Gemma, Mistral: no system role).
                if type(error).__name__ not in {"TemplateError", "UndefinedError"}:
                    raise
                asked = [{"role": "user", "content": f"{system}\n\n{user}"}]
        return self._template(asked)

    def _template(self, messages: Messages) -> str:
        return str(self.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True))

    def encode(self, prompt: str) -> list[int]:
        """A prompt's token ids, special tokens included once: a chat template writes its own."""
        return list(self.tokenizer(prompt, add_special_tokens=not self.chats)["input_ids"])

    def generate(self, prompts: Sequence[str]) -> list[Generation]:
        """Continue prompts greedily.

        Args:
            prompts: As `render` makes them; each at most `room` tokens long.

        Returns:
            One generation per prompt, in order.

        Raises:
            ValueError: A prompt is longer than `room`, or empty.
        """
        encoded = [self.encode(prompt) for prompt in prompts]
        for ids in encoded:
            if not 0 < len(ids) <= self.room:
                raise ValueError(f"a prompt has {len(ids)} tokens where 1 to {self.room} fit")
        # Like lengths together waste no computation on padding; the longest first shows at once if memory is short.
        order = sorted(range(len(encoded)), key=lambda place: (-len(encoded[place]), place))
        done: dict[int, Generation] = {}
        for start in range(0, len(order), self.config.batch_size):
            places = order[start : start + self.config.batch_size]
            done.update(zip(places, self._generate([encoded[place] for place in places]), strict=True))
        return [done[place] for place in range(len(encoded))]

    def _generate(self, batch: Sequence[list[int]]) -> list[Generation]:
        import torch

        started = time.perf_counter()
        width = max(len(ids) for ids in batch)
        ids = torch.tensor([[self._pad] * (width - len(row)) + row for row in batch], device=self.device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in batch], device=self.device)
        with torch.inference_mode():
            written = self.model.generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=self.config.max_new_tokens,
                do_sample=False,
                num_beams=1,
                temperature=None,
                top_p=None,
                top_k=None,
                repetition_penalty=1.0,
                pad_token_id=self._pad,
                eos_token_id=self._ends or None,
            )[:, width:].tolist()
        seconds = (time.perf_counter() - started) / len(batch)
        return [self._generation(len(ids), row, seconds) for ids, row in zip(batch, written, strict=True)]

    def _generation(self, prompt_tokens: int, written: list[int], seconds: float) -> Generation:
        # After its end a row is filled up while others go on.
        end = next((place for place, token in enumerate(written) if token in self._ends), None)
        kept = written if end is None else written[:end]
        text = self.tokenizer.decode(kept, skip_special_tokens=True)
        return Generation(text, prompt_tokens, len(kept) + (end is not None), seconds)
