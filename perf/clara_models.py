"""How long CLaRa takes, part by part (table 16): compression, query, prefill, decoding; and the same model on text.

Every part is timed by itself, with the device synchronized before each stamp, after runs that do not count. Replies
have a fixed number of tokens, so that what is compared is the same work. Random weights take as long as trained ones of
the same class and size: without a checkpoint, architectures are measured, on words drawn at random.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.core.errors import unknown_name
from methods.clara.config import Adapter, ClaraConfig
from methods.clara.prompts import Request, answer, answer_from_text
from perf.measuring import made_as, synchronizer

WORDS = 900
"""Words of the vocabulary that drawn texts are made of."""
_MISTRAL = {
    "vocab_size": 32_000,
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 32_768,
    "rope_theta": 1e6,
    "sliding_window": None,
}
_PHI = {
    "vocab_size": 200_064,
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 32,
    "num_attention_heads": 24,
    "num_key_value_heads": 8,
    "max_position_embeddings": 4096,
    "partial_rotary_factor": 0.75,
    "tie_word_embeddings": True,
    "sliding_window": None,
}
_SMALL = {
    "vocab_size": 4096,
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 4096,
}
ARCHITECTURES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "mistral-7b": ("Mistral", _MISTRAL),
    "phi-4-mini": ("Phi3", _PHI),
    "small": ("Llama", _SMALL),
}
"""Class of `transformers` and configuration, by name; `small` is for a CPU."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Workload of one question.

    Attributes:
        candidates: Number of compressed documents.
        k: Number of documents that the answer is generated from.
        words: Number of words per document; a tokenizer may produce more tokens.
        question: Number of words per question.
        reply: Number of generated tokens.
        batch: Number of questions per batch.
        queries: Number of timed questions.
        warm_up: Number of batches before timing starts.
    """

    candidates: int = 20
    k: int = 5
    words: int = 256
    question: int = 16
    reply: int = 32
    batch: int = 1
    queries: int = 50
    warm_up: int = 3


PARTS = ("compression", "query", "prefill", "decode")


@dataclass
class Timings:
    """Seconds of each batch, by part of the work.

    Attributes:
        seconds: Seconds by part.
        batch: Number of questions per batch.
        tokens: Document tokens per batch, and tokens of its longest prompt.
    """

    batch: int
    seconds: dict[str, list[float]] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)

    def median_ms(self, part: str) -> float:
        """Return the median milliseconds per batch of one part; 0 if the part does not exist."""
        result = self.seconds.get(part, [])
        return 1000 * float(np.median(result)) if result else 0.0

    @property
    def decoding_ms(self) -> float:
        """Return prefill and decoding together, which the paper calls decoding."""
        return self.median_ms("prefill") + self.median_ms("decode")

    @property
    def tokens_per_second(self) -> float:
        """Return the document tokens compressed per second."""
        spent = self.median_ms("compression")
        return 1000 * self.tokens.get("compressed", 0) / spent if spent else 0.0


def random_clara(name: str, rate: int, dtype: str = "bfloat16", device: str = "cuda", *, max_length: int = 256) -> Any:
    """Create a `Clara` with random weights, of one of `ARCHITECTURES`.

    Raises:
        UserError: The architecture is unknown.
    """
    import torch
    import transformers

    from methods.clara.model import Clara

    if name not in ARCHITECTURES:
        raise unknown_name("architecture", name, ARCHITECTURES)
    kind, settings = ARCHITECTURES[name]
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = getattr(transformers, f"{kind}Config")(**settings, **special)
    with made_as(dtype, device):
        torch.manual_seed(0)
        base = transformers.AutoModelForCausalLM.from_config(config)
    base.requires_grad_(False)
    options = {"base": name, "dtype": dtype, "rate": rate, "max_length": max_length, "template": "plain", "max_prompt": 4096}
    return Clara(ClaraConfig.model_validate(options), _tokenizer(), base.eval())


def _tokenizer() -> Any:
    """A word a token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = ["<pad>", "<s>", "</s>", "<unk>", *(f"w{number}" for number in range(WORDS))]
    raw = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def _text(draw: np.random.Generator, words: int) -> str:
    return " ".join(f"w{number}" for number in draw.integers(0, WORDS, words))


@dataclass(frozen=True, slots=True)
class _Batch:
    questions: Sequence[str]
    documents: Sequence[str]


def _batches(work: Workload, seed: int) -> list[_Batch]:
    """Batches of questions with their candidates, drawn; at least one is timed."""
    draw = np.random.default_rng(seed)
    return [
        _Batch(
            [_text(draw, work.question) for _ in range(work.batch)], [_text(draw, work.words) for _ in range(work.batch * work.candidates)]
        )
        for _ in range(work.warm_up + max(1, work.queries // work.batch))
    ]


class Stopwatch:
    """Times parts of the work, with the device synchronized at both ends.

    Args:
        device: Device of the work.
        clock: Returns the time in seconds.
    """

    def __init__(self, device: str, clock: Callable[[], float] = time.perf_counter) -> None:
        self._wait, self._clock = synchronizer(device), clock
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        self._wait()
        began = self._clock()
        yield
        self._wait()
        self.seconds[part] = self.seconds.get(part, 0.0) + self._clock() - began


def measure(clara: Any, work: Workload, seed: int = 0) -> Timings:
    """Time CLaRa on random texts: compress all candidates, select k, answer from their memory."""
    from methods.clara.generator import select

    def one(batch: _Batch, watch: Stopwatch) -> dict[str, int]:
        with watch("compression"):
            memory = clara.encode(batch.documents).memory.unflatten(0, (work.batch, work.candidates))
        with watch("query"):
            query = clara.encode(batch.questions, "reasoner").memory
            chosen = select(clara.similarity(query, memory), work.k, clara.config.tau).ids
            kept = [rows[positions] for rows, positions in zip(memory, chosen, strict=True)]
        prompts = [answer(question, work.k) for question in batch.questions]
        length = _write(clara, prompts, kept, work.reply, "generator", watch)
        return {"compressed": sum(map(len, clara.compressor.ids(batch.documents))), "prompt": length}

    return _timed(one, clara, work, seed)


def measure_text(clara: Any, work: Workload, seed: int = 0, adapter: Adapter | None = None) -> Timings:
    """Time the same base model without adapters on the text of k documents in the same prompt."""

    def one(batch: _Batch, watch: Stopwatch) -> dict[str, int]:
        prompts = [
            answer_from_text(question, batch.documents[position * work.candidates :][: work.k])
            for position, question in enumerate(batch.questions)
        ]
        return {"prompt": _write(clara, prompts, None, work.reply, adapter, watch)}

    return _timed(one, clara, work, seed)


def _timed(item: Callable[[_Batch, Stopwatch], dict[str, int]], clara: Any, work: Workload, seed: int) -> Timings:
    import torch

    result = Timings(work.batch)
    with torch.inference_mode():
        for number, batch in enumerate(_batches(work, seed)):
            watch = Stopwatch(str(clara.device))
            result.tokens = item(batch, watch)
            if number >= work.warm_up:
                for part, spent in watch.seconds.items():
                    result.seconds.setdefault(part, []).append(spent)
    return result


def _write(clara: Any, prompts: Sequence[Request], memory: Any, reply: int, adapter: Adapter | None, watch: Stopwatch) -> int:
    """Write exactly so many tokens greedily; the first comes out of the prefill. Returns the prompt's length."""
    import torch

    with clara.use(adapter):
        with watch("prefill"):
            value = clara.generator.assemble(prompts, memory)
            mask = value.mask
            positions = (mask.cumsum(1) - 1).clamp(min=0)
            output = clara.base(inputs_embeds=value.embedded, attention_mask=mask, position_ids=positions, use_cache=True, logits_to_keep=1)
            token = output.logits[:, -1].argmax(-1, keepdim=True)
        position = positions[:, -1:]
        with watch("decode"):
            for _ in range(reply - 1):
                mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
                position = position + 1
                output = clara.base(
                    input_ids=token, attention_mask=mask, position_ids=position, past_key_values=output.past_key_values, use_cache=True
                )
                token = output.logits[:, -1].argmax(-1, keepdim=True)
    return int(value.mask.sum(1).max())
