"""Register CLaRa as compressor, reader, retriever, reranker, and as a whole method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.models import LaterOptions
from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import FAILED, RERANKER_TRUNCATED, TRUNCATED, Answer, Context, Index, Ranking, Services, Usage
from methods.clara.checkpoint import CONFIG, model_of, needs, read_config, require_checkpoint, texts_only
from methods.clara.config import Adapter, ClaraConfig
from methods.clara.prompts import READING, ChatLayout, Request, answer, answer_from_text, messages, paraphrase
from methods.clara.store import Scores, cosines
from methods.clara.use import VERSION, CheckpointOptions, DocumentOptions, Documents, DType, Loaded, loaded
from methods.models.causal import CausalConfig
from methods.models.weights import locate, weights_hash
from methods.pipeline import DEPTH, Pipeline
from methods.prompts import OURS, Prompt, Shipped
from methods.readers.prompts import longest_prefix
from methods.registry import MethodConfig, register
from methods.retrieval.ranking import PointwiseConfig, PointwiseReranker, Rows, Scope, best_rows
from methods.training.asking import AskedOptions
from methods.work import CHARACTERS, HALF, Checkpoint, Lengths, Once, Sample, Work, ask, encode, mean, tokens, unknown, vectors

if TYPE_CHECKING:
    from torch import Tensor

    from methods.clara.model import Clara

PAPER = "He et al. 2025, CLaRa: Bridging Retrieval and Generation with Continuous Latent Reasoning (arXiv 2511.18659)"
_register = partial(register, paper=PAPER, needs=needs)


def _work_of(work: Callable[[Any, ClaraConfig, Lengths], Work]) -> Callable[[Any, Lengths], Work]:
    """Return a `work` function for parts whose checkpoint exists or is trained by the same experiment."""

    def of(config: CheckpointOptions, lengths: Lengths) -> Work:
        clara = model_of(config.model, lengths)
        if clara is None:
            return unknown(f"what {config.model} takes: it is not a checkpoint that is here or trained by this experiment")
        return work(config, clara, lengths)

    return of


def _encoded(config: Any, clara: ClaraConfig, texts: float, length: float) -> Work:
    base = Checkpoint(clara.base, clara.revision, config.dtype or clara.dtype)
    return encode(base, texts, min(length, clara.max_length) + clara.memory_tokens, causal=True)


def _documents_work(config: Any, clara: ClaraConfig, lengths: Lengths, each: float) -> Work:
    """Estimate the work of encoding the whole corpus, or `each` documents per question."""
    if not config.offline:
        return _encoded(config, clara, lengths.questions * each, lengths.passage)
    kept = vectors(Checkpoint(clara.base, clara.revision), lengths, lengths.corpus * clara.memory_tokens, HALF)
    store = _encoded(config, clara, lengths.corpus, lengths.passage) + kept
    return Work(once=(Once(store, f"memory by {config.model} of {lengths.data}"),))


def _compress_work(config: ClaraCompressorConfig, clara: ClaraConfig, lengths: Lengths) -> Work:
    return _documents_work(config, clara, lengths, lengths.handed)


def _generator(config: Any, clara: ClaraConfig) -> CausalConfig:
    options = {"model": clara.base, "revision": clara.revision, "dtype": config.dtype or clara.dtype}
    return CausalConfig.model_validate({**options, "max_new_tokens": config.max_new_tokens, "batch_size": config.batch_size})


def _read_work(config: Any, clara: ClaraConfig, lengths: Lengths) -> Work:
    """Estimate the work: answers from memory, and compression of passages that arrive as text."""
    prompt = mean([sum(map(tokens, messages(answer(item.question, 1), "."))) for item in lengths.samples])
    memory = lengths.handed * clara.memory_tokens
    read = ask(_generator(config, clara), lengths.questions, prompt + memory, memory=memory)
    return read if lengths.compressed else read + _encoded(config, clara, lengths.questions * lengths.handed, lengths.passage)


def _text_work(config: ClaraTextConfig, lengths: Lengths) -> Work:
    options = {"base": config.model, "revision": config.revision, "max_length": config.max_length, "rate": config.max_length}
    clara = model_of(config.model, lengths) or ClaraConfig.model_validate(options)

    def prompt(item: Sample) -> int:
        texts = [passage.full_text[: CHARACTERS * clara.max_length] for passage in lengths.shown_passages(item)]
        written = sum(map(tokens, messages(answer_from_text(item.question, texts), "\n".join(texts))))
        return min(written, clara.max_prompt - config.max_new_tokens)

    return ask(_generator(config, clara), lengths.questions, mean([prompt(item) for item in lengths.samples]))


def _retrieve_work(config: Any, clara: ClaraConfig, lengths: Lengths) -> Work:
    return _documents_work(config, clara, lengths, lengths.candidates) + _encoded(config, clara, lengths.questions, lengths.question)


def _rerank_work(config: ClaraRerankerConfig, clara: ClaraConfig, lengths: Lengths) -> Work:
    documents = _documents_work(config, clara, lengths, lengths.ranked(config.depth))
    return documents + _encoded(config, clara, lengths.questions, lengths.question)


def _whole_work(config: ClaraMethodConfig, clara: ClaraConfig, lengths: Lengths) -> Work:
    handed_on = replace(lengths, k=config.k or clara.k, compressed=True)
    return _retrieve_work(config, clara, lengths) + _read_work(config, clara, handed_on)


@dataclass(frozen=True, slots=True)
class DocumentMemory:
    """Memory of a question's documents, passed from compressor to reader.

    Attributes:
        vectors: float32 [k, M, h], in the order of the ranking.
        compressor: Hash of the compressor (`use.Loaded.compressor`).
    """

    vectors: Tensor
    compressor: str

    @property
    def tokens(self) -> int:
        """Return the total number of memory tokens, k·M."""
        return int(self.vectors.shape[0] * self.vectors.shape[1])


MEMORY = "clara"
"""Kind of memory that the compressor produces and the reader accepts."""


class ClaraCompressorConfig(DocumentOptions):
    """Options of the compressor."""


@_register(
    "clara_compressor",
    kind="compressor",
    summary="each passage as a few memory tokens that clara_reader answers from",
    work=_work_of(_compress_work),
)
class ClaraCompressor:
    """Compressor role: encodes passages as memory vectors with a CLaRa checkpoint.

    Args:
        config: Options with the checkpoint.
        services: Services; device and folder of memory stores are used.
    """

    memory = MEMORY

    def __init__(self, config: ClaraCompressorConfig, services: Services) -> None:
        self._loaded = loaded(config, services.device)
        self.device = str(self._loaded.clara.device)
        self._documents = Documents(self._loaded, config, services)

    def corpus_notes(self, corpus: Corpus) -> dict[str, Any]:
        """Measure how much of the passages is not compressed, for `Indexed.notes`."""
        return self._documents.truncation(corpus)

    def compress(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus, budget: int | None) -> list[Context]:
        """Return the memory of each ranking's first documents, as many as fit the budget of memory tokens."""
        each = self._loaded.clara.memory_tokens
        fitting = None if budget is None else budget // each
        return [self._context(ranking, corpus, each, fitting) for ranking in rankings]

    def _context(self, ranking: Ranking, corpus: Corpus, each: int, fitting: int | None) -> Context:
        ids = ranking.ids[:fitting]
        cut = len(ids) < len(ranking.ids)
        notes = {TRUNCATED: {"unit": "tokens", "kept": len(ids) * each, "of": len(ranking.ids) * each}} if cut else {}
        if not ids:
            return Context(ranking.query_id, notes=notes)
        memory = DocumentMemory(self._documents.of(corpus, ids), self._loaded.compressor)
        return Context(ranking.query_id, memory=memory, notes=notes)


TOO_LONG = "the question with the memory of its documents is longer than the longest prompt"
TEXT_TOO_LONG = "the question alone is longer than the longest prompt"


class WritingOptions(MethodConfig):
    """Options for generating answers greedily."""

    max_new_tokens: int = Field(64, ge=1, description="longest answer; released 64, in the compression tables 128")
    batch_size: int = Field(16, ge=1, description="prompts at once")


def checked(template: Prompt | None, clara: Clara) -> Prompt | None:
    """Check that the base model has a chat template if a user's prompt is given, and return the prompt.

    Raises:
        UserError: The base has no chat template, or supports only its own prompt format.
    """
    if template is not None and not isinstance(clara.layout, ChatLayout):
        raise UserError(
            "this base has no chat template for a prompt", code="missing-chat-template", where="option prompt", try_this="prompt: ours"
        )
    return template


class ReadingOptions(AskedOptions, WritingOptions, CheckpointOptions):
    """Options of answering with a checkpoint: prompt and answer length."""

    def checkpoint(self) -> tuple[Path, Shipped, bool]:
        folder = require_checkpoint(self.model, where="clara, option model")
        return folder, READING[getattr(self, "task", "answer")], read_config(folder)[0].joined


class ClaraReaderConfig(ReadingOptions):
    """Options of the reader from memory."""

    task: Literal["answer", "paraphrase"] = Field(
        "answer", description="paraphrase: restate the documents in other words, regardless of the question (Table 17)"
    )


@_register(
    "clara_reader", kind="reader", summary="answers from memory tokens; compresses passages that arrive as text", work=_work_of(_read_work)
)
class ClaraReader:
    """Reader role: answers from memory vectors with a CLaRa checkpoint.

    Args:
        config: Options with the checkpoint.
        services: Services; the device is used.
    """

    reads_memory = (MEMORY,)

    def __init__(self, config: ClaraReaderConfig, services: Services) -> None:
        self.config = config
        self.batch_size = 2 * config.batch_size
        self._loaded = loaded(config, services.device)
        self._clara = self._loaded.clara
        self.device = str(self._clara.device)
        self._template = checked(config.template(), self._clara)

    def read(self, queries: Sequence[Query], contexts: Sequence[Context]) -> list[Answer]:
        """Return one answer per query; a prompt that is too long has the reason under `notes["failed"]`.

        Raises:
            UserError: The memory was made by another compressor.
        """
        memory = [self._memory(context) for context in contexts]
        requests = [self._prompt(query.text, len(item)) for query, item in zip(queries, memory, strict=True)]
        room = self._clara.generator.room - self.config.max_new_tokens
        fits = [prompt is not None and self._clara.generator.length(prompt) <= room for prompt in requests]
        prompts = [prompt for prompt, fit in zip(requests, fits, strict=True) if prompt is not None and fit]
        options = [item.to(self._clara.device) for item, fit in zip(memory, fits, strict=True) if fit]
        written = iter(self._clara.generate(prompts, options, self.config.max_new_tokens, self.config.batch_size) if prompts else [])
        answers = []
        for item, prompt, fit in zip(memory, requests, fits, strict=True):
            tokens = len(item) * self._clara.memory_tokens
            if fit:
                answers.append(answered(next(written), tokens))
            else:
                # The paraphrase of an empty document is empty; it is not a failure.
                answers.append(Answer("", notes={} if prompt is None else {FAILED: TOO_LONG}))
        return answers

    def _prompt(self, question: str, documents: int) -> Request | None:
        if self.config.task == "answer":
            return replace(answer(question, documents), prompt=self._template)
        return replace(paraphrase(documents=documents), prompt=self._template) if documents else None

    def _memory(self, context: Context) -> Tensor:
        """Return the memory of a context's documents: [k, M, h]."""
        import torch

        if isinstance(context.memory, DocumentMemory):
            if context.memory.compressor != self._loaded.compressor:
                raise UserError(
                    "the memory was made by a compressor other than the reader's",
                    code="memory-compressor-mismatch",
                    where="clara_reader",
                    try_this="use the same checkpoint and dtype for clara_compressor and clara_reader",
                )
            return context.memory.vectors
        if context.memory is not None:
            raise UserError("this memory is not of clara_compressor", code="memory-not-of-clara", where="clara_reader")
        with torch.inference_mode():
            return self._clara.encode([passage.full_text for passage in context.passages]).memory


class ClaraTextConfig(LaterOptions, WritingOptions):
    """Options of the reader of text passages with CLaRa's prompt."""

    later: ClassVar[tuple[str, ...]] = ("prompt",)

    model: str = Field(
        description="a base: folder, hub id or `pocket`; or a checkpoint of CLaRa, whose base is used; if it was trained with "
        "`reads: text`, its tuned reader"
    )
    revision: str | None = Field(None, description="revision of a hub id")
    dtype: DType | None = Field(None, description="dtype of the weights; null: float32 on CPU, the base's own elsewhere")
    max_length: int = Field(256, ge=1, description="longest document in tokens; the rest is cut. A checkpoint's own value takes precedence")

    prompt: str | None = Field(
        None, description="null or `ours`; `published`: that of CLaRa's authors; or a template file with $background and $question"
    )

    def preflight(self) -> None:
        """Check that the model and the prompt file exist."""
        if self.is_checkpoint:
            read_config(Path(locate(self.model)))
        self.template()

    def template(self) -> Prompt | None:
        """Load the user's prompt; None for the shipped one."""
        return None if self.prompt in (None, OURS) else READING["answer"].load(self.prompt)

    @property
    def is_checkpoint(self) -> bool:
        """Return whether the model is a CLaRa checkpoint."""
        return (Path(locate(self.model)) / CONFIG).is_file()

    @property
    def is_tuned(self) -> bool:
        """Return whether the model is a checkpoint that was fine-tuned on text."""
        return self.is_checkpoint and texts_only(read_config(Path(locate(self.model)))[1])

    @property
    def base(self) -> ClaraConfig:
        """Return the options of the base model and its prompt format."""
        if self.is_checkpoint:
            result, _ = read_config(Path(locate(self.model)))
            return result.model_copy(update={"dtype": self.dtype}) if self.dtype else result
        options = {"base": self.model, "revision": self.revision, "dtype": self.dtype, "max_length": self.max_length}
        return ClaraConfig.model_validate({**options, "rate": self.max_length})


def _text_weights(config: ClaraTextConfig) -> str:
    base = config.base
    weights = weights_hash(config.model) if config.is_tuned else weights_hash(base.base, base.revision)
    prompt = [] if config.prompt in (None, OURS) else [READING["answer"].hash(config.prompt)]
    return fingerprint(VERSION, weights, base.max_length, base.template, base.max_prompt, *prompt)


@_register(
    "clara_text",
    kind="reader",
    summary="CLaRa's base without adapters, or tuned on text, with the same prompt and documents as text, or no documents",
    extra="models",
    checkpoint_hash=_text_weights,
    work=_text_work,
)
class ClaraText:
    """Reader role: answers from passages as text with CLaRa's prompt, as the uncompressed baseline.

    Args:
        config: Options with the model.
        services: Services; the device is used.
    """

    def __init__(self, config: ClaraTextConfig, services: Services) -> None:
        from methods.clara.model import Clara

        self.config = config
        self.batch_size = 2 * config.batch_size
        self._adapter: Adapter | None = "generator" if config.is_tuned else None
        if config.is_tuned:
            self._clara = Clara.load(Path(locate(config.model)), services.device, config.dtype)
        else:
            self._clara = Clara.open(config.base, ("generator",), services.device)
        self.device = str(self._clara.device)
        self._template = checked(config.template(), self._clara)

    def _request(self, question: str, texts: Sequence[str]) -> Request:
        return replace(answer_from_text(question, texts), prompt=self._template)

    def read(self, queries: Sequence[Query], contexts: Sequence[Context]) -> list[Answer]:
        """Return one answer per query, from as many of its best passages as fit."""
        fitted = [self._fitted(query.text, context) for query, context in zip(queries, contexts, strict=True)]
        prompts = [prompt for prompt, _ in fitted if prompt is not None]
        limits = self.config.max_new_tokens, self.config.batch_size
        written = iter(self._clara.generate(prompts, None, *limits, adapter=self._adapter) if prompts else [])
        return [
            Answer("", notes={FAILED: TEXT_TOO_LONG}) if prompt is None else answered(next(written), 0, notes) for prompt, notes in fitted
        ]

    def _fitted(self, question: str, context: Context) -> tuple[Request | None, dict[str, Any]]:
        """Return the longest prompt that fits (None if even the question does not), and notes."""
        texts = [passage.full_text for passage in context.passages]
        room = self._clara.generator.room - self.config.max_new_tokens

        def fits(count: int) -> bool:
            return self._clara.generator.length(self._request(question, texts[:count])) <= room

        kept = len(texts) if fits(len(texts)) else longest_prefix(len(texts), fits)
        if not kept and not fits(0):
            return None, {}
        notes = {TRUNCATED: {"unit": "passages", "kept": kept, "of": len(texts)}} if kept < len(texts) else {}
        return self._request(question, texts[:kept]), notes


def answered(generation: Any, memory_tokens: int, notes: dict[str, Any] | None = None) -> Answer:
    """Build an answer with its usage; text and memory tokens are counted separately."""
    usage = Usage(generation.prompt_tokens - memory_tokens, generation.completion_tokens, memory_tokens, 1)
    return Answer(generation.text.strip(), usage, notes or {})


class QueryOptions(DocumentOptions):
    """Options of roles that encode questions."""

    query_adapter: Literal["reasoner", "compressor"] = Field(
        "reasoner",
        description="adapter that encodes the question; compressor: the reasoner's initial state, for checkpoints without a reasoner",
    )


class ClaraRetrieverConfig(QueryOptions):
    """Options of the retriever."""

    offline: bool = Field(
        True,
        description="compress the whole corpus before the first question and keep the result; false: compress a question's "
        "candidates each time it is asked",
    )


class Questions:
    """Encoder of questions for CLaRa retrieval.

    Args:
        loaded: The model.
        options: Options with the adapter for questions.

    Raises:
        UserError: The checkpoint lacks the adapter.
    """

    def __init__(self, loaded: Loaded, options: QueryOptions) -> None:
        loaded.require(options.query_adapter)
        self._clara, self._adapter = loaded.clara, options.query_adapter

    def memory(self, queries: Sequence[Query]) -> list[Tensor]:
        """Encode each query as float32 [M, h] on the CPU; queries are encoded singly, so that results do not depend on the
        batch.
        """
        import torch

        with torch.inference_mode():
            return [self._clara.encode([query.text], self._adapter).memory[0].cpu() for query in queries]


@_register(
    "clara_retriever",
    kind="retriever",
    summary="passages by the cosine of compressed question and passage, from the whole corpus or from the candidates",
    work=_work_of(_retrieve_work),
)
class ClaraRetriever:
    """Retriever role: compares questions with compressed documents.

    Args:
        config: Options with the checkpoint.
        services: Services; device and folder of memory stores are used.
    """

    def __init__(self, config: ClaraRetrieverConfig, services: Services) -> None:
        model = loaded(config, services.device)
        self.documents = Documents(model, config, services)
        self.questions = Questions(model, config)
        self._offline = config.offline
        self._device = str(model.clara.device)

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        """Compress the corpus, or resume an unfinished store; without `offline`, documents are compressed on demand."""
        if self._offline:
            # Stores are shared by checkpoints that share a compressor: `folder` is of one checkpoint alone.
            self.documents.store(corpus, None if self.documents.folder(corpus) else folder)
        return ClaraIndex(self, corpus, self._offline, self._device)


class ClaraIndex:
    """Index of compressed documents, compared by cosine similarity.

    Args:
        retriever: The retriever.
        corpus: The documents.
        offline: Whether the whole corpus has been compressed.
        device: Device for comparing with the whole corpus.
    """

    def __init__(self, retriever: ClaraRetriever, corpus: Corpus, offline: bool, device: str) -> None:
        self._retriever, self._corpus, self._offline, self.device = retriever, corpus, offline, device
        self._scope = Scope(corpus)
        self.notes = retriever.documents.truncation(corpus)

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Rank documents by cosine similarity (eq 3.1).

        Raises:
            UserError: A question has no candidates, and the corpus is not compressed.
        """
        request = self._retriever.questions.memory(queries)
        allowed = [self._scope.rows_for(query) for query in queries]
        everywhere = [position for position, rows in enumerate(allowed) if rows is None]
        if everywhere and not self._offline:
            raise UserError(
                "this question has no candidates, and the corpus is not compressed",
                code="question-without-candidates",
                where=f"query {queries[everywhere[0]].id}",
                try_this="offline: true",
            )
        results: dict[int, tuple[Rows, Scores]] = {}
        if everywhere:
            store = self._retriever.documents.store(self._corpus)
            nearest = store.nearest([request[position] for position in everywhere], k, self.device)
            results.update(zip(everywhere, nearest, strict=True))
        for position, rows in enumerate(allowed):
            if rows is not None:
                results[position] = self._among(request[position], rows, k)
        return [self._scope.ranking(query, *results[position]) for position, query in enumerate(queries)]

    def _among(self, question: Tensor, rows: Rows, k: int) -> tuple[Rows, Scores]:
        """Return the k best of some documents."""
        if not len(rows):
            return rows, np.empty(0)
        if self._offline:
            scores = self._retriever.documents.store(self._corpus).scores(question, rows)
        else:
            ids = [self._corpus.ids[int(row)] for row in rows]
            scores = cosines(question, self._retriever.documents.of(self._corpus, ids))
        best = best_rows(scores, k)
        return rows[best], scores[best]


class ClaraRerankerConfig(QueryOptions, PointwiseConfig):
    """Options of the reranker."""


@_register(
    "clara_reranker", kind="reranker", summary="candidates by the cosine of compressed question and passage", work=_work_of(_rerank_work)
)
class ClaraReranker(PointwiseReranker):
    """Reranker role: reorders passages by cosine similarity in compressed space.

    Args:
        config: Options with the checkpoint.
        services: Services; device and folder of memory stores are used.
    """

    def __init__(self, config: ClaraRerankerConfig, services: Services) -> None:
        super().__init__(config.depth)
        model = loaded(config, services.device)
        self.device = str(model.clara.device)
        self._documents = Documents(model, config, services)
        self._questions = Questions(model, config)

    def corpus_notes(self, corpus: Corpus) -> dict[str, Any]:
        """Measure how much of the passages is not compressed, for `Indexed.notes`."""
        cut = self._documents.truncation(corpus)
        return {RERANKER_TRUNCATED: cut[TRUNCATED]} if cut else {}

    def scores(self, query: Query, ids: Sequence[str], corpus: Corpus) -> NDArray[np.floating]:
        """Return cosine similarities in [-1, 1], one per id."""
        if not ids:
            return np.empty(0)
        (question,) = self._questions.memory([query])
        return cosines(question, self._documents.of(corpus, ids))


class ClaraMethodConfig(ReadingOptions, ClaraRetrieverConfig):
    """Options of the whole method."""

    k: int | None = Field(None, ge=1, description="number of documents to answer from; null: as the checkpoint was trained, 5")
    depth: int = Field(DEPTH, ge=1, description="length of the ranking that is kept and scored")


@_register(
    "clara",
    kind="method",
    summary="finds and reads compressed documents with one model, from the whole corpus or among the candidates",
    work=_work_of(_whole_work),
)
def clara(config: ClaraMethodConfig, services: Services) -> Pipeline:
    """Build retriever, compressor and reader that share one CLaRa model.

    Args:
        config: Options with the checkpoint and the number of passages.
        services: Services; device and folder of memory stores are used.
    """
    supplied = config.model_dump()

    def part(kind: type[CheckpointOptions]) -> dict[str, object]:
        return {name: value for name, value in supplied.items() if name in kind.model_fields}

    k = config.k or read_config(require_checkpoint(config.model, where="clara, option model"))[0].k
    return Pipeline(
        ClaraRetriever(ClaraRetrieverConfig.model_validate(part(ClaraRetrieverConfig)), services),
        ClaraReader(ClaraReaderConfig.model_validate(part(ClaraReaderConfig)), services),
        compressor=ClaraCompressor(ClaraCompressorConfig.model_validate(part(DocumentOptions)), services),
        k=k,
        depth=config.depth,
    )
