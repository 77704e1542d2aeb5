"""Choose and read the tokens that local language models generate: sampling, end tokens and stop texts.

Adding Gumbel noise to log-probabilities and taking the maximum samples from the distribution. Each row's noise comes from
its own generator on the CPU, so that other rows, the batch size and the device do not change the sample.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from methods.models.checks import check_output
from methods.models.thoughts import SPECIAL

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling options.

    Attributes:
        temperature: Above 0; 1 is the model's own distribution.
        top_p: Share of probability to sample from; 1: all.
        top_k: Number of most likely tokens to sample from; None: all.
        seed: For prompts without their own seed, the seed is derived from this one and the prompt's text.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.temperature > 0 or not 0 < self.top_p <= 1 or (self.top_k is not None and self.top_k < 1):
            raise ValueError(f"temperature must be above 0, top_p in (0, 1], top_k at least 1: {self}")

    def seeds(self, prompts: Sequence[str | Sequence[int]]) -> list[int]:
        """Return a seed per prompt, which depends only on the prompt."""
        return [int.from_bytes(hashlib.blake2b(f"{self.seed}\0{prompt}".encode(), digest_size=7).digest(), "big") for prompt in prompts]


def sampler(sampling: Sampling, seeds: Sequence[int]) -> Any:
    """Return a logits processor that makes `generate(do_sample=False)` sample with per-row seeds.

    Args:
        sampling: Sampling options.
        seeds: One per row of the batch.
    """
    import torch
    from transformers import LogitsProcessor, LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    warpers: list[Any] = [TemperatureLogitsWarper(float(sampling.temperature))]
    if sampling.top_k is not None:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        warpers.append(TopPLogitsWarper(sampling.top_p))

    class Gumbel(LogitsProcessor):
        def __init__(self) -> None:
            self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]

        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            scores = scores.float()
            for warper in warpers:
                scores = warper(input_ids, scores)
            noise = torch.empty(scores.shape, dtype=torch.float32)
            for row, generator in enumerate(self.generators):
                noise[row].exponential_(generator=generator)
            return scores - noise.log().to(scores.device)

    return LogitsProcessorList([Gumbel()])


def end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """Return the tokens that end a model's output: those of its generation configuration and that of its tokenizer.

    Fine-tuned models often keep the generation configuration of their base, whose end token they no longer write.
    """
    ends = model.generation_config.eos_token_id
    stated = [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
    return list(dict.fromkeys([*stated, *([] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id])]))


_PLAIN: Mapping[str, Any] = {
    "do_sample": False,
    "num_beams": 1,
    "num_beam_groups": 1,
    "num_return_sequences": 1,
    "return_dict_in_generate": False,
    "use_cache": True,
    "temperature": None,
    "top_p": None,
    "top_k": None,
    "penalty_alpha": None,
    "dola_layers": None,
    "guidance_scale": None,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "diversity_penalty": 0.0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "min_length": 0,
    "min_new_tokens": None,
    "max_length": None,
    "max_time": None,
    "exponential_decay_length_penalty": None,
    "sequence_bias": None,
    "watermarking_config": None,
    "prompt_lookup_num_tokens": None,
    "stop_strings": None,
    "token_healing": False,
    "forced_eos_token_id": None,
}
"""Options of `generate` that a checkpoint's own must not replace: they change tokens, depend on padding, or end a reply early.

A first token that a checkpoint forces (`forced_bos_token_id`) and tokens that it never writes (`suppress_tokens`,
`bad_words_ids`) are part of the model.
"""


def decoding(model: Any, max_new_tokens: int, pad: int, ends: Sequence[int], draws: Any = ()) -> dict[str, Any]:
    """Return `generate` options for greedy decoding that override a checkpoint's defaults.

    Args:
        model: The model, whose logits must not be NaN or infinite: `generate` would write token 0 without an error.
        max_new_tokens: Longest output.
        pad: Token after a row's end.
        ends: Tokens that end a row.
        draws: Result of `sampler`, to sample instead.
    """
    from transformers import LogitsProcessor, LogitsProcessorList

    class Finite(LogitsProcessor):
        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            largest = scores.amax(dim=-1)
            if not largest.isfinite().all():
                check_output(largest.float().cpu().numpy(), model.name_or_path, "language model", dtype_of(model), "replies")
            return scores

    limits = {"max_new_tokens": max_new_tokens, "pad_token_id": pad, "eos_token_id": list(ends) or None}
    return {**_PLAIN, **limits, "logits_processor": LogitsProcessorList([Finite(), *draws])}


def checked_logprobs(values: list[list[float]], model: Any) -> list[list[float]]:
    """Return log-probabilities of targets under a model.

    Raises:
        UserError: Some are NaN.
    """
    if any(math.isnan(sum(own)) for own in values):
        damaged = [np.where(np.isnan(own), np.nan, 0.0) for own in values]
        check_output(damaged, model.name_or_path, "language model", dtype_of(model), "log-probabilities")
    return values


def dtype_of(model: Any) -> str:
    """Return the name of a model's dtype in options."""
    return str(model.dtype).removeprefix("torch.")


def checked_seeds(
    encoded: Sequence[Sequence[int]],
    room: int,
    prompts: Sequence[str | Sequence[int]],
    sampling: Sampling | None,
    seeds: Sequence[int] | None,
) -> list[int]:
    """Check the prompts' lengths and return the seed of each prompt; [] without sampling.

    Raises:
        ValueError: A prompt is longer than `room`, or empty; seeds without sampling.
    """
    for ids in encoded:
        if not 0 < len(ids) <= room:
            raise ValueError(f"a prompt has {len(ids)} tokens, but 1 to {room} fit")
    if seeds is not None and (sampling is None or len(seeds) != len(prompts)):
        raise ValueError("seeds belong to sampling, one per prompt")
    return list(seeds) if seeds is not None else sampling.seeds(prompts) if sampling else []


class Decoder:
    """Converts a model's output tokens to text.

    Args:
        tokenizer: The tokenizer; its special tokens are left out, except those that mark a thought.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        special = set(tokenizer.all_special_tokens)
        special |= {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
        marks = special & SPECIAL
        self._dropped = sorted(special - marks, key=len, reverse=True) if marks else None

    def __call__(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        if self._dropped is None:
            return str(self._tokenizer.decode(tokens, skip_special_tokens=True))
        text = str(self._tokenizer.decode(tokens, skip_special_tokens=False))
        for token in self._dropped:
            text = text.replace(token, "")
        return text

    def read(self, written: list[int], ends: Sequence[int], stop: Sequence[str]) -> tuple[str, list[int], bool]:
        """Decode a row of generated tokens; returns its text, its tokens, and whether it is complete.

        Args:
            written: The row, padded after its end while others continue.
            ends: Tokens that end it.
            stop: Texts that end it.
        """
        end = next((position for position, token in enumerate(written) if token in ends), None)
        kept = written if end is None else written[:end]
        text = self(kept)
        if any(mark in text for mark in stop):
            low, high = 0, len(kept)  # the fewest tokens whose text holds a mark
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if any(mark in self(kept[:middle]) for mark in stop) else (middle, high)
            return before(text, stop), kept[:high], True
        return text, written if end is None else written[: end + 1], end is not None


def before(text: str, stop: Sequence[str]) -> str:
    """Return a text up to the first of the stop texts."""
    return text[: min((place for mark in stop if (place := text.find(mark)) >= 0), default=len(text))]


def stopping(tokenizer: Any, stop: Sequence[str], width: int) -> Any:
    """Return stopping criteria for `generate` that end each row after a stop text.

    Args:
        tokenizer: Tokenizer that decodes the last tokens of a row.
        stop: The stop texts.
        width: Columns of the prompts, which are not searched.
    """
    import torch
    from transformers import StoppingCriteria, StoppingCriteriaList

    tail = max(len(mark.encode()) for mark in stop) + 4

    class Stops(StoppingCriteria):
        def __call__(self, input_ids: Tensor, scores: Tensor, **_: Any) -> Tensor:
            texts = tokenizer.batch_decode(input_ids[:, max(width, input_ids.shape[1] - tail) :])
            return torch.tensor([any(mark in text for mark in stop) for text in texts], device=input_ids.device)

    return StoppingCriteriaList([Stops()])
