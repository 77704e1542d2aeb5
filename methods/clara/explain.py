"""Explain CLaRa on a question (`ragmeter method explain clara`): document ranking, words that memory vectors represent, and
answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from benchmarks.core.errors import MissingPackage, UserError
from benchmarks.core.random import Draws
from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Question
from methods.api import Context, Services
from methods.clara.checkpoint import read_config, require_checkpoint
from methods.clara.config import Adapter
from methods.clara.methods import ClaraReader, ClaraReaderConfig, ClaraRetriever, ClaraRetrieverConfig, DocumentMemory, QueryOptions
from methods.clara.prompts import PARAPHRASES, paraphrase
from methods.clara.use import loaded
from methods.flow import each
from methods.registry import Explanation, Table, numbers, register_explainer, shortened
from methods.retrieval.ranking import Scope

# For a question's documents `ragmeter method explain clara --set paraphrase=true` shows it; as a table it is the experiment
# `clara/table17`: dataset `rephrased`, and `clara_reader` with `task: paraphrase`.
#
# Source: paper, table 17; one document at a time, the longest reply 128 tokens.


MAX_NEW_TOKENS = 128


@dataclass(frozen=True, slots=True)
class Rephrased:
    """A document and its paraphrase from memory.

    Attributes:
        document: The text that was compressed.
        text: The text written from its memory alone.
        wording: Number of the instruction's wording.
    """

    document: str
    text: str
    wording: int


def paraphrase_from_memory(
    clara: Any, documents: Sequence[str], *, seed: int = 0, max_new_tokens: int = MAX_NEW_TOKENS, batch_size: int = 16
) -> list[Rephrased]:
    """Generate paraphrases of documents from their memory vectors.

    Args:
        clara: A `Clara`.
        documents: The documents' texts.
        seed: Random seed for the instruction's wording; each document's wording is independent of the others.
        max_new_tokens: Maximum reply length, which limits the paraphrase.
        batch_size: Batch size.
    """
    import torch

    if not documents:
        return []
    wordings = [Draws("clara fidelity", seed, document).below(PARAPHRASES) for document in documents]
    with torch.inference_mode():
        memory = clara.encode(documents).memory
    prompts = [paraphrase(wording) for wording in wordings]
    written = clara.generate(prompts, memory.unsqueeze(1), max_new_tokens, batch_size)
    return [Rephrased(document, reply.text, wording) for document, reply, wording in zip(documents, written, wordings, strict=True)]


# Memory is made of states behind the final norm, so the output layer reads it as it is; a second norm would be wrong.
#
# Source: paper, table 1 and the case study of section 3; nostalgebraist 2020.


TOP = 50
"""Number of nearest tokens per memory vector (paper: 50)."""
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Topics:
    """Words that a text's memory vectors represent (logit lens).

    Attributes:
        positions: Words per memory token, best first.
    """

    positions: tuple[tuple[str, ...], ...]

    @property
    def union(self) -> tuple[str, ...]:
        """Return all distinct words, in order of position."""
        return tuple(dict.fromkeys(word for words in self.positions for word in words))

    def result(self, question: str, documents: Iterable[str]) -> tuple[str, ...]:
        """Return the words that also occur in the documents but not in the question: what the reasoner adds (table 1)."""
        query, written = _spelled([question]), _spelled(documents)
        return tuple(word for word in self.union if word.casefold() in written - query)


def topics(clara: Any, texts: Sequence[str], adapter: Adapter = "reasoner", top: int = TOP) -> list[Topics]:
    """Decode the memory vectors of texts to their most likely words.

    Args:
        clara: A `Clara`.
        texts: Questions (reasoner), or documents (compressor).
        adapter: Adapter that encodes the texts.
        top: Number of tokens per vector, before non-words are removed.
    """
    import torch

    with torch.inference_mode():
        memory = clara.encode(texts, adapter).memory
        head = clara.base.get_output_embeddings()
        logits = head(memory.to(head.weight.dtype))
        # Tokens that were added, and rows that only pad the vocabulary, are not words of the base.
        known = min(logits.shape[-1], clara.tokens.first)
        ids = logits[..., :known].float().topk(min(top, known), dim=-1).indices.tolist()
    return [Topics(tuple(_decode_words(clara.tokenizer, position) for position in text)) for text in ids]


def _spelled(texts: Iterable[str]) -> set[str]:
    """Return the whole words of texts."""
    return {word for text in texts for word in _WORD.findall(text.casefold())}


def _decode_words(tokenizer: Any, ids: Sequence[int]) -> tuple[str, ...]:
    """Decode tokens to words, without special tokens, blanks, punctuation and single characters."""
    special = set(tokenizer.all_special_ids)
    texts = (tokenizer.decode([identifier]).strip() for identifier in ids if identifier not in special)
    return tuple(dict.fromkeys(text for text in texts if len(text) > 1 and _WORD.search(text) and "\ufffd" not in text))


WORDS = 12
"""Maximum number of words per memory token in a table."""


class ClaraExplainConfig(QueryOptions):
    """Options of the explanation: checkpoint and amount of output."""

    checkpoint: str = Field(description="folder of a checkpoint that `ragmeter train clara` made, or `clara-pocket`, which ships")
    model: str = Field("", description="the same as checkpoint, under the name that experiments use")
    k: int | None = Field(None, ge=1, description="number of documents to answer from; null: as the checkpoint was trained")
    shown: int = Field(20, ge=1, description="documents in the table")
    top: int = Field(TOP, ge=1, description="words considered per memory token; paper 50")
    max_new_tokens: int = Field(64, ge=1, description="longest answer")
    paraphrase: bool = Field(False, description="paraphrase the retrieved documents from their memory only (paper, table 19)")

    @model_validator(mode="before")
    @classmethod
    def _either_word(cls, value: Any) -> Any:
        """Accept `checkpoint`, as in other explainers, as well as `model`."""
        named = {"checkpoint", "model"} & set(value) if isinstance(value, Mapping) else set()
        if len(named) == 2:
            raise UserError(
                "checkpoint and model are two names of the same option",
                code="checkpoint-and-model",
                where="--set",
                try_this="give one of them: --set checkpoint=FOLDER",
            )
        if not named:
            return value
        folder = value[named.pop()]
        # Always a string, so that an error about the folder has one location.
        return {**value, "checkpoint": folder, "model": str(folder)}

    def preflight(self) -> None:
        """Check that the checkpoint exists and its base model is the one it was trained on."""
        read_config(require_checkpoint(self.checkpoint, where="clara, option checkpoint"))


@register_explainer("clara", summary="shows the ranking with its cosines, the words that each memory token stands for, and the answer")
def explain(question: Question, corpus: Corpus, config: ClaraExplainConfig, services: Services) -> Explanation:
    """Rank a question's candidates (the whole corpus if it has none), and answer from the best ones."""
    model = loaded(config, services.device)
    query = question.query()
    everywhere = Scope(corpus).rows_for(query) is None
    options = {name: value for name, value in config.model_dump().items() if name in QueryOptions.model_fields}
    result = ClaraRetrieverConfig.model_validate({**options, "offline": everywhere or config.offline})
    retriever = ClaraRetriever(result, services)
    k = config.k or model.clara.config.k
    (ranking,) = each(retriever.index(corpus), "retrieve", [query], max(k, config.shown, 100))
    ids = ranking.ids[:k]
    memory = DocumentMemory(retriever.documents.of(corpus, ids), model.compressor) if ids else None
    written = {"model": config.model, "dtype": config.dtype, "max_new_tokens": config.max_new_tokens}
    reader = ClaraReader(ClaraReaderConfig.model_validate(written), services)
    (answer,) = reader.read([query], [Context(query.id, memory=memory)])
    (request,) = topics(model.clara, [question.text], config.query_adapter, config.top)
    gold = [passage.full_text for passage in corpus.get(item for item in question.evidence if item in corpus)]
    added = request.result(question.text, gold)
    shown = corpus.get(ranking.ids[: config.shown])
    tables = (
        _ranking(question, shown, ranking.scores, k),
        _positions(request, set(added)),
        *([_documents(shown[:k], topics(model.clara, [p.full_text for p in shown[:k]], "compressor", config.top))] if shown else []),
    )
    if config.paraphrase and shown:
        tables += (_rephrased([p.full_text for p in shown[:k]], model.clara),)
    return Explanation(_summary(question, ranking.ids, answer.text, k, added), tables)


def _rephrased(documents: Sequence[str], clara: Any) -> Table:
    rows = tuple((rank, item.document, item.text) for rank, item in enumerate(paraphrase_from_memory(clara, documents), 1))
    return Table("Documents paraphrased from their memory alone", ("rank", "document", "rephrased"), rows)


def _ranking(question: Question, shown: Sequence[Passage], scores: Sequence[float], k: int) -> Table:
    rows = tuple(
        (
            rank,
            *numbers([score]),
            "read" if rank <= k else "",
            "evidence" if item.id in question.evidence else "",
            shortened(item.full_text, 100),
        )
        for rank, (item, score) in enumerate(zip(shown, scores, strict=False), 1)
    )
    return Table("Documents by their memory", ("rank", "cosine", "", "gold", "text"), rows, "of flattened memory, eq. 3.1")


def _positions(query: Topics, added: set[str]) -> Table:
    rows = tuple(
        (position, ", ".join(words[:WORDS]), ", ".join(word for word in words if word in added))
        for position, words in enumerate(query.positions, 1)
    )
    return Table(
        "What the question's memory stands for",
        ("memory token", "words", "new, and of the evidence"),
        rows,
        "tokens of highest logit, without special tokens, punctuation and single characters",
    )


def _documents(shown: Sequence[Passage], results: Sequence[Topics]) -> Table:
    rows = tuple(
        (rank, position, ", ".join(words[:WORDS]))
        for rank, item in enumerate(results, 1)
        for position, words in enumerate(item.positions, 1)
    )
    return Table("What the memory of the documents read stands for", ("rank", "memory token", "words"), rows)


def _summary(question: Question, ids: Sequence[str], answer: str, k: int, added: Sequence[str]) -> str:
    gold = [position for position, item in enumerate(ids, 1) if item in question.evidence]
    summary = f"Of {len(question.evidence)} documents of evidence {sum(rank <= k for rank in gold)} are read"
    ranks = f", at rank {', '.join(map(str, gold))} of {len(ids)}" if gold else ""
    evidence = f" {summary}{ranks}." if question.evidence else ""
    words = f" Its memory adds {', '.join(added[:WORDS])}." if added else ""
    expected = f" ({'; '.join(question.answers)})" if question.answers else ""
    return f"“{shortened(question.text)}” – {answer or 'no answer'}{expected}.{evidence}{words}"


Projection = Literal["pca", "tsne"]
SIZE, MARGIN, LEGEND = 640, 20, 44
_STYLE = (
    "text{font:13px sans-serif;fill:#222}circle{fill-opacity:.55}.document{fill:#2171b5}.memory{fill:#d94801}.frame{fill:none;stroke:#bbb}"
)


@dataclass(frozen=True, slots=True)
class States:
    """Mean hidden states of documents and of their memory.

    Attributes:
        documents: Means over the document's tokens, shape (n, h).
        memory: Means over the memory tokens, shape (n, h).
    """

    documents: NDArray[np.float64]
    memory: NDArray[np.float64]

    @property
    def distance(self) -> float:
        """Return the mean squared distance between both means, divided by the width: the quantity of the alignment loss (eq
        2.2).
        """
        return float(((self.documents - self.memory) ** 2).mean()) if len(self.documents) else 0.0


def states(clara: Any, texts: Sequence[str]) -> States:
    """Encode documents and compute both means."""
    import torch

    with torch.inference_mode():
        result = clara.encode(texts)
    return States(*(item.cpu().double().numpy() for item in (result.document_mean, result.memory_mean)))


def projected(points: NDArray[np.float64], projection: Projection, seed: int = 0) -> NDArray[np.float64]:
    """Project points to two dimensions.

    Args:
        points: Shape (n, h).
        projection: `pca`, or `tsne` (scikit-learn).
        seed: Random seed of t-SNE.

    Returns:
        Shape (n, 2).

    Raises:
        MissingPackage: scikit-learn is not installed.
    """
    centered = points - points.mean(axis=0)
    if projection == "tsne" and len(points) > 2:
        try:
            from sklearn.manifold import TSNE
        except ImportError as error:
            raise MissingPackage("scikit-learn", "models", "t-SNE") from error
        # Half of the points are of one kind: the default of 30 neighbors needs more than 30 points.
        neighbors = min(30.0, (len(points) - 1) / 3)
        return np.asarray(TSNE(2, perplexity=neighbors, init="pca", random_state=seed).fit_transform(centered), float)
    left, scale, _ = np.linalg.svd(centered, full_matrices=False)
    plane = np.zeros((len(points), 2))
    shown = min(2, len(scale))
    plane[:, :shown] = left[:, :shown] * scale[:shown]
    # The sign of a direction means nothing: the largest coordinate is made positive, so that pictures are alike.
    largest = np.abs(plane).argmax(axis=0)
    return plane * np.where(plane[largest, range(2)] < 0, -1, 1)


def svg(result: States, projection: Projection = "tsne", seed: int = 0) -> str:
    """Draw the states of documents and memory as an SVG scatter plot; deterministic."""
    count = len(result.documents)
    plane = projected(np.concatenate([result.documents, result.memory]), projection, seed) if count else np.zeros((0, 2))
    low, high = (plane.min(axis=0), plane.max(axis=0)) if count else (np.zeros(2), np.ones(2))
    spread = np.where(high > low, high - low, 1.0)
    positions = MARGIN + (plane - low) / spread * (SIZE - 2 * MARGIN)
    dots = "".join(
        f'<circle class="{"document" if row < count else "memory"}" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>'
        for row, (x, y) in enumerate(positions)
    )
    name = {"pca": "principal components", "tsne": "t-SNE"}[projection]
    legend = "".join(
        f'<circle class="{kind}" cx="{x}" cy="{SIZE + 20}" r="5"/><text x="{x + 12}" y="{SIZE + 25}">{label}</text>'
        for x, kind, label in ((MARGIN, "document", "documents"), (MARGIN + 130, "memory", "their memory"))
    )
    summary = f"{count:,} documents, {name}, mean squared distance {result.distance:.3g}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {SIZE + LEGEND}" width="{SIZE}" '
        f'height="{SIZE + LEGEND}"><style>{_STYLE}</style><rect class="frame" x="1" y="1" width="{SIZE - 2}" '
        f'height="{SIZE - 2}"/>{dots}{legend}<text x="{MARGIN + 260}" y="{SIZE + 25}">{summary}</text></svg>\n'
    )
