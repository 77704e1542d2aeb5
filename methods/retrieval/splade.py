"""Retrieve passages with SPLADE: a masked language model gives weights to vocabulary terms, searched by an inverted index.

    w_v = max over the text's tokens i of log(1 + relu(l_iv)),  l the model's logits;   score(q, p) = Σ_v q_v · p_v

A term may have weight without occurring in the text. For every term the index has a list of passages and weights on disk;
a query reads the lists of its own terms. Scores are exact, and summed in float64 in the order of terms.

Source: Formal et al. 2022 (arXiv:2205.04733); Lassance et al. 2024, SPLADE-v3 (arXiv:2403.06789).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.files import whole
from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import Index, Ranking, Services
from methods.models.checks import check_output, truncation
from methods.models.complete import check_weights, complete, longest_input
from methods.models.embeddings import read_array
from methods.models.padding import fit_padding
from methods.models.plain_encoder import passage_prompt
from methods.models.pretrained import device_of, loading
from methods.models.remote_code import check_remote_code, remote_code_refused
from methods.models.weights import locate
from methods.registry import ModelMethodConfig, register
from methods.retrieval.ranking import Scope, best_rows, built_once, comparable, truncation_notes
from methods.work import FLOAT, Lengths, Work, encode, index

CHUNK = 2048
"""Passages encoded between two writes; constant, so that a resumed index equals one built without interruption."""
TERMS = 256
"""Approximate number of terms per passage, for estimates."""
Weighted = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]
"""Rows, terms and weights above zero, ordered by term and then row; each of shape (entries,)."""


class SpladeConfig(ModelMethodConfig):
    """Options of SPLADE."""

    model: str = Field(
        "naver/splade-v3", description="a folder or hub id of a SparseEncoder, or of a masked language model trained as SPLADE"
    )
    revision: str | None = Field(None, description="revision of a hub id")
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="dtype of the weights; 16 bits flip terms near zero")
    max_length: int | None = Field(None, ge=8, description="longest text in tokens; null: the checkpoint's own. v3 was trained with 256")
    batch_size: int = Field(16, ge=1, description="passages encoded at once; queries go one by one")
    trust_remote_code: bool = Field(False, description="run code contained in the model's repository")


class SpladeEncoder:
    """Encoder that assigns weights to vocabulary terms, using `sentence_transformers.SparseEncoder`.

    Args:
        config: Options.
        device: "cpu", "cuda" …; None chooses.

    Attributes:
        terms: Number of terms in the vocabulary.

    Raises:
        UserError: The model cannot be loaded, contains untrusted code, or is not a masked language model.
    """

    def __init__(self, config: SpladeConfig, device: str | None = None) -> None:
        self.config, self.device = config, device_of(device)
        check_remote_code(config.model, config.trust_remote_code)
        with remote_code_refused(config.model), loading("sparse encoder", config.model):
            import torch
            from sentence_transformers import SparseEncoder

            self._check_head()
            with complete("sparse encoder", config.model):
                self._model: Any = SparseEncoder(
                    locate(config.model),
                    revision=config.revision,
                    device=self.device,
                    trust_remote_code=config.trust_remote_code,
                    model_kwargs={"dtype": getattr(torch, config.dtype)},
                ).eval()
        check_weights(self._model, config.model, "sparse encoder")
        fit_padding(self._model, config.model, "sparse encoder")
        limits = (config.max_length or self._model.max_seq_length, longest_input(self._model))
        if known := [limit for limit in limits if limit is not None]:
            self._model.max_seq_length = min(known)
        self.terms = len(self._vector(""))

    def _check_head(self) -> None:
        """Refuse a model without a head, because the library would add a random one."""
        from transformers.utils import cached_file

        def file(name: str) -> str | None:
            options = {"revision": self.config.revision, "_raise_exceptions_for_missing_entries": False}
            cached: str | None = cached_file(locate(self.config.model), name, **options)
            return cached

        path = file("config.json")
        kinds = json.loads(Path(path).read_text("utf-8")).get("architectures") or [] if path else []
        if path and file("modules.json") is None and not any(kind.endswith("ForMaskedLM") for kind in kinds):
            raise UserError(
                f"{self.config.model!r} is not a sparse encoder: it has no masked language model's head",
                code="not-sparse-encoder",
                try_this="a SPLADE checkpoint",
            )

    def passages(self, texts: Sequence[str]) -> Weighted:
        """Encode passages; the rows of the result are their positions."""
        options = {"batch_size": self.config.batch_size, "show_progress_bar": False, "save_to_cpu": True}
        vectors = self._model.encode_document(list(texts), prompt=passage_prompt(self._model.prompts) or None, **options)
        vectors = vectors.coalesce()
        rows, terms = vectors.indices().numpy().astype(np.int32)
        weights = vectors.values().float().numpy()
        damaged = np.zeros(len(texts), dtype=np.float32)
        damaged[rows[~np.isfinite(weights)]] = np.nan
        check_output(damaged, self.config.model, "sparse encoder", self.config.dtype)
        order = np.lexsort((rows, terms))
        order = order[weights[order] > 0]
        return rows[order], terms[order], weights[order]

    def query(self, text: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Encode a query: ascending term ids, and their positive weights."""
        vector = self._vector(text)
        terms = np.flatnonzero(vector > 0)
        return terms, vector[terms]

    def _vector(self, text: str) -> NDArray[np.float64]:
        vectors = self._model.encode_query([text], show_progress_bar=False, convert_to_sparse_tensor=False)
        vector = np.asarray(vectors[0].double().cpu().numpy())
        check_output(vector[None], self.config.model, "sparse encoder", self.config.dtype)
        return vector

    def truncation(self, texts: Sequence[str]) -> dict[str, Any]:
        """Measure truncated passage text; see `checks.truncation`."""
        return truncation(getattr(self._model, "tokenizer", None), self._model.max_seq_length, texts)


def _work(config: SpladeConfig, lengths: Lengths) -> Work:
    """Estimate the work: encode the corpus, then every question."""
    kept = Work(bytes=2 * FLOAT * TERMS * lengths.corpus)
    return index(encode(config, lengths.corpus, lengths.passage) + kept) + encode(config, lengths.questions, lengths.question)


@register(
    "splade",
    kind="retriever",
    summary="weights of vocabulary terms by a masked language model, found through an inverted index; SPLADE-v3 by default",
    paper="Lassance et al. 2024, SPLADE-v3 (arXiv:2403.06789)",
    presets={name: {"model": f"naver/splade-v3-{name}"} for name in ("distilbert", "lexical", "doc")},
    training_data=("msmarco",),
    work=_work,
)
class Splade:
    """Retriever role: sparse term weights with an inverted index.

    Args:
        config: Options.
        services: Services; the device is used.
    """

    def __init__(self, config: SpladeConfig, services: Services) -> None:
        self.encoder = SpladeEncoder(config, services.device)

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        """Encode the corpus, or memory-map the inverted index in `folder`; an interrupted build resumes."""
        chunks = range(0, len(corpus), CHUNK)
        if folder is None:
            encoded = [self._encode(corpus, start) for start in chunks]
            lists = inverted(lambda: encoded, self.encoder.terms, lambda name, dtype, length: np.zeros(length, dtype=dtype))
        else:
            built_once(folder, len(corpus), lambda target: self._save(corpus, target))
            starts, rows, weights = (read_array(folder / f"{name}.npy", mapped=True) for name in ("starts", "rows", "weights"))
            lists = starts, rows, weights
        made = SpladeIndex(self.encoder, corpus, *lists)
        made.notes = truncation_notes(folder, corpus, self.encoder.truncation)
        return made

    def _encode(self, corpus: Corpus, start: int) -> Weighted:
        rows, terms, weights = self.encoder.passages([passage.full_text for passage in corpus[start : start + CHUNK]])
        return (rows + start).astype(np.int32), terms, weights

    def _save(self, corpus: Corpus, folder: Path) -> None:
        """Encode chunk by chunk, then sort the chunks' entries into one list per term."""
        paths = {start: folder / f"{start}.chunk" for start in range(0, len(corpus), CHUNK)}
        for start, path in paths.items():
            if not path.exists():
                whole(path, lambda partial, start=start: _write(partial, self._encode(corpus, start)))  # type: ignore[misc]

        def mapped(name: str, dtype: Any, length: int) -> NDArray[Any]:
            return np.lib.format.open_memmap(folder / f"{name}.npy", mode="w+", dtype=dtype, shape=(length,))

        for array in inverted(lambda: map(_read, paths.values()), self.encoder.terms, mapped):
            array.flush()
        for path in paths.values():
            path.unlink()


def _write(path: Path, entries: Weighted) -> None:
    with path.open("wb") as file:
        np.savez(file, rows=entries[0], terms=entries[1], weights=entries[2])


def _read(path: Path) -> Weighted:
    with np.load(path) as entries:
        return entries["rows"], entries["terms"], entries["weights"]


def inverted(chunks: Callable[[], Iterable[Weighted]], terms: int, array: Callable[[str, Any, int], Any]) -> tuple[Any, Any, Any]:
    """Build an inverted index from entries in two passes: count, then fill.

    Args:
        chunks: Entries in the order of rows, chunk by chunk; called twice.
        terms: Number of terms in the vocabulary.
        array: Function that creates an array of a name, type and length.

    Returns:
        The start of each term's list and the end of the last, shape (terms + 1,); rows and weights of all lists.
    """
    counts = sum((np.bincount(chunk[1], minlength=terms) for chunk in chunks()), np.zeros(terms, dtype=np.int64))
    starts = array("starts", np.int64, terms + 1)
    starts[1:] = np.cumsum(counts)
    length = max(1, int(counts.sum()))  # an array without rows cannot be mapped
    rows, weights = array("rows", np.int32, length), array("weights", np.float32, length)
    free = np.array(starts[:-1])
    for own, term, weight in chunks():
        number = np.bincount(term, minlength=terms)
        at = (free - np.cumsum(number) + number)[term] + np.arange(len(term))
        rows[at], weights[at] = own, weight
        free += number
    return starts, rows, weights


class SpladeIndex:
    """Inverted index: a list of passages and weights per term.

    Args:
        encoder: Encoder of the queries.
        corpus: The passages.
        starts: Start of each term's list and the end of the last, shape (terms + 1,).
        rows: Rows of the passages in the lists, ascending in each list.
        weights: Weight of the term in each of these passages.
    """

    def __init__(self, encoder: SpladeEncoder, corpus: Corpus, starts: NDArray, rows: NDArray, weights: NDArray) -> None:
        self.device = encoder.device
        self.notes: Mapping[str, Any] = {}
        self._encoder, self._scope = encoder, Scope(corpus)
        self._starts, self._rows, self._weights = starts, rows, weights

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Rank the passages that share a term with the query."""
        rankings = []
        for query in queries:
            scores, rows = self._scores(query.text), self._scope.rows_for(query)
            rows = np.arange(len(scores)) if rows is None else rows
            best = best_rows(scores[rows], k, above=0.0)
            rankings.append(self._scope.ranking(query, rows[best], scores[rows[best]]))
        return rankings

    def _scores(self, text: str) -> NDArray[np.float64]:
        """Score all passages: shape (passages,)."""
        terms, weights = self._encoder.query(text)
        lists = [slice(int(self._starts[term]), int(self._starts[term + 1])) for term in terms]
        rows = np.concatenate([np.empty(0, dtype=np.int32), *(self._rows[own] for own in lists)])
        products = [weight * self._weights[own].astype(np.float64) for weight, own in zip(weights, lists, strict=True)]
        summed = np.bincount(rows, np.concatenate([np.empty(0), *products]), minlength=len(self._scope.corpus))
        return comparable(summed.astype(np.float64))
