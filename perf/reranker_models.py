"""How long a reranker takes for one query (SARK, figure 6): measured on real checkpoints, or on architectures alone.

A query's time is from its candidates to their order, with the device synchronized before and after. Random weights
take as long as trained ones of the same class and size, so the figure can be measured where no weights are: then token
ids are drawn instead of made from text, and tokenizing is not part of the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from benchmarks.core.errors import unknown_name
from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import Ranking, Reranker
from perf.measuring import made_as, synchronizer

Family = Literal["encoder", "sark", "llm_pointwise", "llm_listwise"]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of each query."""

    seconds: tuple[float, ...]

    @property
    def ms_per_query(self) -> float:
        """Return the mean milliseconds per query."""
        return 1000 * sum(self.seconds) / len(self.seconds)

    @property
    def queries_per_second(self) -> float:
        """Return queries per second if they run one after another."""
        return len(self.seconds) / sum(self.seconds)

    def percentile(self, share: float) -> float:
        """Return the milliseconds within which this share of the queries finished."""
        return float(np.percentile(np.array(self.seconds) * 1000, share))


def measure(
    work: Callable[[int], object],
    queries: int,
    *,
    warm_up: int = 1,
    synchronize: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Timing:
    """Time each query separately.

    Args:
        work: Reranks the query with this number.
        queries: Number of timed queries.
        warm_up: Number of queries before timing starts.
        synchronize: Waits until the device has finished.
        clock: Returns the time in seconds.
    """
    for number in range(warm_up):
        work(number % queries)
    seconds = []
    for number in range(queries):
        synchronize()
        start = clock()
        work(number)
        synchronize()
        seconds.append(clock() - start)
    return Timing(tuple(seconds))


def measure_reranker(reranker: Reranker, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus, device: str) -> Timing:
    """Time a reranker as a pipeline calls it, one query at a time, including tokenizing and sorting."""
    return measure(
        lambda number: reranker.rerank([queries[number]], [rankings[number]], corpus), len(queries), synchronize=synchronizer(device)
    )


@dataclass(frozen=True, slots=True)
class Architecture:
    """Reranker architecture without weights.

    Attributes:
        family: How it ranks: `encoder` and `llm_pointwise` score a pair with their own class's head, `sark` with the
            head of two layers on the first token, `llm_listwise` is asked for the order of windows, as RankGPT asks.
        model: Class of `transformers`; its configuration's class is named alike.
        config: The configuration that its published weights have.
        tokens: Longest pair that it reads; None: as the workload says.
    """

    family: Family
    model: str
    config: Mapping[str, Any] = field(default_factory=dict)
    tokens: int | None = None


_XLM_R = {
    "vocab_size": 250_002,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "pad_token_id": 1,
}
_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
_MINILM = {"vocab_size": 30_522, "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
_LLAMA = {
    "vocab_size": 32_000,
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "intermediate_size": 11_008,
    "pad_token_id": 0,
}
_QWEN = {
    "vocab_size": 152_064,
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18_944,
    "max_position_embeddings": 32_768,
    "tie_word_embeddings": False,
}

ARCHITECTURES: Mapping[str, Architecture] = {
    "minilm-l6": Architecture("encoder", "BertForSequenceClassification", _MINILM),
    "minilm-l12": Architecture("encoder", "BertForSequenceClassification", {**_MINILM, "num_hidden_layers": 12}),
    "bge-base": Architecture("encoder", "XLMRobertaForSequenceClassification", _XLM_R),
    "bge-large": Architecture("encoder", "XLMRobertaForSequenceClassification", {**_XLM_R, **_LARGE}),
    "sark-minilm": Architecture("sark", "BertModel", _MINILM),
    "sark-base": Architecture("sark", "XLMRobertaModel", _XLM_R),
    "rankllama-7b": Architecture("llm_pointwise", "LlamaForSequenceClassification", _LLAMA, tokens=196),
    "rankgpt-7b": Architecture("llm_listwise", "Qwen2ForCausalLM", _QWEN),
}
"""What figure 6 compares. mGTE has no stand-in: its class comes with its own repository's code."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Workload of one query.

    Attributes:
        candidates: Number of passages to rerank.
        pair_tokens: Tokens of query and passage together: a passage of 100 words has about 150.
        passage_tokens: Of a passage alone, for prompts that hold many.
        batch: Number of pairs per batch.
        answer_tokens: Tokens that a language model writes to order a window of 20.
    """

    candidates: int = 50
    pair_tokens: int = 168
    passage_tokens: int = 148
    batch: int = 64
    answer_tokens: int = 100


def windows(candidates: int, size: int = 20, step: int = 10) -> list[tuple[int, int]]:
    """Return the windows in which listwise reranking goes through a list from tail to head, as (start, end).

    Source: rank_llm's rule: the start is clamped at 0, and the window that touches it is the last.
    """
    results = []
    end = candidates
    while end > 0:
        start = max(0, end - size)
        results.append((start, end))
        if start == 0:
            break
        end -= step
    return results


class StandIn:
    """Reranker with random weights, for timing.

    Args:
        architecture: The architecture.
        dtype: Name of a torch type.
        device: Device to run on.
        seed: Random seed of weights and token ids.
    """

    def __init__(self, architecture: Architecture, dtype: str, device: str, seed: int = 0) -> None:
        import torch

        self.architecture, self.device, self._seed = architecture, device, seed
        torch.manual_seed(seed)
        with made_as(dtype, device):
            self.model = _made(architecture)
        self.model.eval()

    def rerank(self, number: int, work: Workload) -> list[int]:
        """Return the order of the candidates of the query with this number, best first."""
        import torch

        with torch.inference_mode():
            if self.architecture.family == "llm_listwise":
                return self._by_windows(number, work)
            scores = self._scores(number, work)
        return torch.argsort(scores, descending=True, stable=True).tolist()

    def _ids(self, number: int, rows: int, tokens: int) -> Any:
        import torch

        draw = torch.Generator().manual_seed(self._seed + number)
        # The first ids are special tokens: a drawn padding would end a sequence early.
        return torch.randint(5, self.architecture.config["vocab_size"], (rows, tokens), generator=draw)

    def _scores(self, number: int, work: Workload) -> Any:
        """Scores of all pairs, a batch at a time: shape (candidates,), on the CPU."""
        import torch

        tokens = min(work.pair_tokens, self.architecture.tokens or work.pair_tokens)
        ids = self._ids(number, work.candidates, tokens)
        results = []
        for batch in ids.split(work.batch):
            value = batch.to(self.device)
            results.append(self.model(input_ids=value, attention_mask=torch.ones_like(value)).logits[:, 0].float().cpu())
        return torch.cat(results) if results else torch.zeros(0)

    def _by_windows(self, number: int, work: Workload) -> list[int]:
        """One call after the other, each over the winners of the one before and ten more.

        What random weights write orders nothing, so every window keeps its order, as after a reply that cannot be
        read; the calls are what costs time.
        """
        import torch

        for start, end in windows(work.candidates):
            ids = self._ids(number * work.candidates + start, 1, (end - start) * work.passage_tokens).to(self.device)
            self.model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                pad_token_id=0,
                max_new_tokens=work.answer_tokens,
                min_new_tokens=work.answer_tokens,
            )
        return list(range(work.candidates))


def stand_in(name: str, dtype: str, device: str) -> StandIn:
    """Create a reranker of one of `ARCHITECTURES` with random weights.

    Raises:
        UserError: The architecture is unknown.
    """
    if name not in ARCHITECTURES:
        raise unknown_name("architecture", name, ARCHITECTURES)
    return StandIn(ARCHITECTURES[name], dtype, device)


def measure_stand_in(model: StandIn, queries: int, work: Workload) -> Timing:
    """Time a reranker with random weights."""
    return measure(lambda number: model.rerank(number, work), queries, synchronize=synchronizer(model.device))


def parameters(architecture: Architecture) -> int:
    """Count an architecture's weights without allocating them."""
    with made_as("float32", "meta"):
        return sum(weights.numel() for weights in _made(architecture).parameters())


def _made(architecture: Architecture) -> Any:
    import transformers

    kind = architecture.model.partition("For")[0].removesuffix("Model")
    labels = {"num_labels": 1} if architecture.model.endswith("ForSequenceClassification") else {}
    config = getattr(transformers, f"{kind}Config")(**architecture.config, **labels)
    encoder = getattr(transformers, architecture.model)
    if architecture.family != "sark":
        return encoder(config)
    return _with_head(encoder(config, add_pooling_layer=False), config.hidden_size)


def _with_head(encoder: Any, width: int, hidden: int = 256) -> Any:
    """SARK's model (its equation 4): two layers on the first token's last hidden state."""
    from types import SimpleNamespace

    import torch

    class WithHead(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = encoder
            self.head = torch.nn.Sequential(torch.nn.Linear(width, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 1))

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            states = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            return SimpleNamespace(logits=self.head(states[:, 0]))

    return WithHead()
