"""Late interaction (ColBERT): one vector per token; each query token is matched with its most similar passage token.

    score(q, p) = Σ over the query's tokens of max over the passage's tokens of their inner product

Through `sentence_transformers.MultiVectorEncoder`, which reads the checkpoints of ColBERT and PyLate.

Source: Santhanam et al. 2022, ColBERTv2 (arXiv:2112.01488).
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.models import FrozenModel
from methods.models.checks import check_output, truncation
from methods.models.complete import check_weights, complete, longest_input
from methods.models.padding import fit_padding
from methods.models.plain_encoder import passage_prompt
from methods.models.pretrained import device_of, load_pretrained, loading
from methods.models.remote_code import check_models, remote_code_refused
from methods.models.weights import locate

if TYPE_CHECKING:
    from torch import Tensor, nn

TokenVectors = NDArray[np.float32]
"""Shape (tokens, dimension), each row of length 1."""


class LateInteractionConfig(FrozenModel):
    """Options of a late-interaction encoder."""

    model: str = Field("colbert-ir/colbertv2.0", description="a folder or hub id of a ColBERT-style model")
    revision: str | None = Field(None, description="revision of a hub id")
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="dtype of the weights")
    batch_size: int = Field(32, ge=1, description="passages encoded at once; queries go one by one")
    trust_remote_code: bool = Field(False, description="run code contained in the model's repository")


class LateInteraction:
    """A loaded late-interaction encoder; markers, query expansion and masks are the model's own.

    Args:
        config: Options.
        device: "cpu", "cuda" …; None chooses.

    Raises:
        UserError: The model cannot be loaded, contains untrusted code, or has no projection layer.
    """

    def __init__(self, config: LateInteractionConfig, device: str | None = None) -> None:
        self.config = config
        self.device = device_of(device)
        check_models(config)
        with remote_code_refused(config.model), loading("late-interaction encoder", config.model):
            import torch

            try:
                from sentence_transformers import MultiVectorEncoder
            except ImportError as error:
                raise UserError(
                    "late interaction needs a sentence-transformers that has MultiVectorEncoder",
                    code="sentence-transformers-too-old",
                    try_this="pip install -U sentence-transformers",
                ) from error
            self._check_projection()
            with complete("late-interaction encoder", config.model, pooler=False):
                self._model: Any = MultiVectorEncoder(
                    locate(config.model),
                    revision=config.revision,
                    device=self.device,
                    trust_remote_code=config.trust_remote_code,
                    model_kwargs={"dtype": getattr(torch, config.dtype)},
                )
        check_weights(self._model, config.model, "late-interaction encoder")
        fit_padding(self._model, config.model, "late-interaction encoder")
        self._model.to(getattr(torch, config.dtype)).eval()

    def _check_projection(self) -> None:
        """Refuse a model without a projection; the library would add a random one."""
        from transformers.utils import cached_file

        results = {
            name: cached_file(locate(self.config.model), name, revision=self.config.revision, _raise_exceptions_for_missing_entries=False)
            for name in ("modules.json", "config.json")
        }
        if results["modules.json"] is not None:
            return
        path = results["config.json"]
        kinds = json.loads(Path(path).read_text(encoding="utf-8")).get("architectures") or [] if path else []
        if path and not any(kind == "HF_ColBERT" or kind.endswith("ForRetrieval") for kind in kinds):
            raise UserError(
                f"{self.config.model!r} is not a late-interaction model: it has no projection of token vectors",
                code="not-late-interaction",
                try_this="name a ColBERT or PyLate checkpoint",
            )

    def passages(self, texts: Sequence[str]) -> list[TokenVectors]:
        """Encode passages: one matrix per passage."""
        encode = partial(self._model.encode_document, prompt=passage_prompt(self._model.prompts) or None)
        return self._vectors(encode, texts, self.config.batch_size)

    def queries(self, texts: Sequence[str]) -> list[TokenVectors]:
        """Encode queries one by one, so that results do not depend on the batch: one matrix per query."""
        return [matrix for text in texts for matrix in self._vectors(self._model.encode_query, [text], 1)]

    def _vectors(self, encode: Callable[..., Sequence[Tensor]], texts: Sequence[str], batch_size: int) -> list[TokenVectors]:
        if not len(texts):
            return []
        matrices = encode(list(texts), batch_size=batch_size, show_progress_bar=False)
        vectors = [matrix.float().cpu().numpy() for matrix in matrices]
        check_output(vectors, self.config.model, "late-interaction encoder", self.config.dtype, "matrices")
        return vectors

    def truncation(self, texts: Sequence[str]) -> dict[str, Any]:
        """Measure truncated passage text; see `checks.truncation`."""
        limit = getattr(self._model[0], "document_length", None) or self._model.max_seq_length
        return truncation(getattr(self._model, "tokenizer", None), limit, texts)


def max_sim(query: TokenVectors, passages: Sequence[TokenVectors]) -> NDArray[np.float64]:
    """Compute the MaxSim score of each passage, shape (passages,); −∞ for a passage without tokens."""
    scores = np.full(len(passages), -np.inf)
    filled = [position for position, passage in enumerate(passages) if len(passage)]
    if filled and len(query):
        tokens = np.concatenate([passages[position] for position in filled])
        starts = np.cumsum([0, *(len(passages[position]) for position in filled)])[:-1]
        scores[filled] = np.maximum.reduceat(query @ tokens.T, starts, axis=1).sum(axis=0, dtype=np.float64)
    return scores


# dense   first token's hidden state, length 1;                            score: inner product
# sparse  relu(w · h) per token, the largest per token id;                 score: Σ over shared ids of the product
# multi   W · h for every token but the first, each of length 1;           score: mean over the query's tokens of the
# largest inner product with the passage's
# all     weighted sum of the three
#
# Source: Chen et al. 2024, BGE M3-Embedding (arXiv:2402.03216).


Mode = Literal["dense", "sparse", "multi"]
MODES: tuple[Mode, ...] = ("dense", "sparse", "multi")


class M3Config(FrozenModel):
    """Options of BGE-M3."""

    model: str = Field("BAAI/bge-m3", description="a folder or hub id that also contains sparse_linear and colbert_linear")
    revision: str | None = Field(None, description="revision of a hub id")
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="dtype of the weights")
    max_length: int = Field(1024, ge=8, description="longest text in tokens; the library's default of 512 cuts chunks of 512 words")
    batch_size: int = Field(16, ge=1, description="texts encoded at once")
    weights: dict[Mode, float] = Field(
        {"dense": 1.0, "sparse": 0.3, "multi": 1.0},
        description="weight of each mode in the sum; ARK: 1, 0.3, 1; the library: 1, 1, 1, divided by their sum",
    )


@dataclass(frozen=True, slots=True)
class M3Vectors:
    """The three representations of one text by BGE-M3: dense, sparse and multi-vector.

    Attributes:
        dense: Shape (d,), of length 1.
        tokens, weights: Sparse representation: ascending token ids and their weights (> 0), shape (ids,).
        multi: Shape (tokens, e), each row of length 1.
    """

    dense: NDArray[np.float32]
    tokens: NDArray[np.int64]
    weights: NDArray[np.float32]
    multi: NDArray[np.float32]


class M3Encoder:
    """BGE-M3 with its sparse and multi-vector heads.

    Args:
        config: Options.
        device: "cpu", "cuda" …; None chooses.

    Raises:
        UserError: The model or one of its heads cannot be loaded.
    """

    def __init__(self, config: M3Config, device: str | None = None) -> None:
        self.config = config
        self.device = device_of(device)
        self._tokenizer, self._model = load_pretrained(
            "encoder", "AutoModel", config.model, config.revision, config.dtype, self.device, padding_side="right"
        )
        self._length = min(config.max_length, longest_input(self._model) or config.max_length)
        dtype = self._model.dtype
        with loading("encoder", config.model):
            self._sparse = self._head("sparse_linear").to(self.device, dtype).eval()
            self._multi = self._head("colbert_linear").to(self.device, dtype).eval()
        for head in (self._sparse, self._multi):
            check_weights(head, config.model, "encoder")
        tokenizer = self._tokenizer
        special = (tokenizer.cls_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id)
        self._unused = [token for token in special if token is not None]

    def _head(self, name: str) -> nn.Linear:
        """Load a linear layer from its file: safetensors, else a pickle with only tensors."""
        import torch
        from transformers.utils import cached_file

        folder = locate(self.config.model)
        for suffix in (".safetensors", ".pt"):
            result = cached_file(folder, name + suffix, revision=self.config.revision, _raise_exceptions_for_missing_entries=False)
            if result is None:
                continue
            if suffix == ".pt":
                try:
                    state = torch.load(result, map_location="cpu", weights_only=True)
                except pickle.UnpicklingError as error:
                    raise UserError(
                        f"{name}.pt contains more than tensors, and unpickling it could run code",
                        code="unsafe-weights",
                        where=str(result),
                        try_this="if you trust the file, convert it to safetensors",
                    ) from error
            else:
                from safetensors.torch import load_file

                state = load_file(result)
            head = torch.nn.Linear(state["weight"].shape[1], state["weight"].shape[0], bias="bias" in state)
            head.load_state_dict(state)
            return head
        raise UserError(
            f"the encoder {self.config.model!r} lacks {name}.pt",
            code="encoder-file-missing",
            where=str(Path(folder)),
            try_this="fetch the whole repository, or use the encoder preset bge-m3, which only has dense vectors",
        )

    def encode(self, texts: Sequence[str]) -> list[M3Vectors]:
        """Encode queries or passages; BGE-M3 uses no prompts."""
        import torch

        encoded = [self._tokenizer(text, truncation=True, max_length=self._length) for text in texts]
        order = sorted(range(len(texts)), key=lambda position: (-len(encoded[position]["input_ids"]), position))
        done: dict[int, M3Vectors] = {}
        for start in range(0, len(order), self.config.batch_size):
            positions = order[start : start + self.config.batch_size]
            batch = self._tokenizer.pad([encoded[position] for position in positions], return_tensors="pt").to(self.device)
            with torch.inference_mode():
                hidden = self._model(**batch).last_hidden_state
                weights = torch.relu(self._sparse(hidden)).squeeze(-1).float().cpu().numpy()
                multi = torch.nn.functional.normalize(self._multi(hidden[:, 1:]).float(), dim=-1).cpu().numpy()
                dense = torch.nn.functional.normalize(hidden[:, 0].float(), dim=-1).cpu().numpy()
            for output in (dense, weights, multi):
                check_output(output, self.config.model, "encoder", self.config.dtype)
            ids, lengths = batch["input_ids"].cpu().numpy(), batch["attention_mask"].sum(dim=1).tolist()
            for row, (position, length) in enumerate(zip(positions, lengths, strict=True)):
                # Padded on the right: the first `length` positions are the text.
                tokens, most = self._lexical(ids[row, :length], weights[row, :length])
                done[position] = M3Vectors(dense[row].copy(), tokens, most, multi[row, : length - 1].copy())
        return [done[position] for position in range(len(texts))]

    def truncation(self, texts: Sequence[str]) -> dict[str, Any]:
        """Measure truncated text; see `checks.truncation`."""
        return truncation(self._tokenizer, self._length, texts)

    def _lexical(self, ids: NDArray[np.int64], weights: NDArray) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return each id once with the largest of its weights."""
        tokens, where = np.unique(ids, return_inverse=True)
        most = np.zeros(len(tokens), dtype=np.float32)
        np.maximum.at(most, where, weights)
        kept = (most > 0) & ~np.isin(tokens, self._unused)
        return tokens[kept], most[kept]

    def scores(self, queries: Sequence[M3Vectors], passages: Sequence[M3Vectors], modes: Sequence[Mode] = MODES) -> NDArray[np.float64]:
        """Compute the weighted sum of the modes' scores: shape (queries, passages)."""
        weights = self.config.weights
        total = np.zeros((len(queries), len(passages)))
        for mode in modes:
            total += weights.get(mode, 0.0) * SCORES[mode](queries, passages)
        return total


def dense_scores(queries: Sequence[M3Vectors], passages: Sequence[M3Vectors]) -> NDArray[np.float64]:
    """Compute inner products of the dense vectors: shape (queries, passages)."""
    if not queries or not passages:
        return np.zeros((len(queries), len(passages)))
    left, right = (np.stack([item.dense for item in items]).astype(np.float64) for items in (queries, passages))
    return left @ right.T


def sparse_scores(queries: Sequence[M3Vectors], passages: Sequence[M3Vectors]) -> NDArray[np.float64]:
    """Compute inner products of the sparse token weights: shape (queries, passages)."""
    from scipy.sparse import csr_array

    if not queries or not passages:
        return np.zeros((len(queries), len(passages)))
    width = 1 + max((int(item.tokens.max(initial=0)) for item in (*queries, *passages)), default=0)

    def matrix(items: Sequence[M3Vectors]) -> Any:
        rows = np.cumsum([0, *(len(item.tokens) for item in items)])
        values = np.concatenate([item.weights for item in items]).astype(np.float64)
        return csr_array((values, np.concatenate([item.tokens for item in items]), rows), shape=(len(items), width))

    return np.asarray((matrix(queries) @ matrix(passages).T).toarray())


def multi_scores(queries: Sequence[M3Vectors], passages: Sequence[M3Vectors]) -> NDArray[np.float64]:
    """Compute the mean over a query's tokens of the maximum inner product with a passage's tokens: shape (queries, passages)."""
    scores = np.zeros((len(queries), len(passages)))
    if not queries or not passages:
        return scores
    tokens = np.concatenate([item.multi for item in passages])
    starts = np.cumsum([0, *(len(item.multi) for item in passages)])[:-1]
    for row, query in enumerate(queries):
        if len(query.multi):
            # Every passage has at least its end token, so no segment is empty.
            scores[row] = np.maximum.reduceat(query.multi @ tokens.T, starts, axis=1).mean(axis=0, dtype=np.float64)
    return scores


SCORES = {"dense": dense_scores, "sparse": sparse_scores, "multi": multi_scores}
