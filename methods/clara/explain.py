"""`ragmeter explain clara`: how documents rank for a question, what its memory stands for, what is answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, model_validator

from benchmarks.corpus import Corpus
from benchmarks.errors import UserError
from benchmarks.schema import Passage, Question
from methods.api import Context, Services
from methods.baselines.ranking import Scope
from methods.clara.checkpoint import read_config, require_checkpoint
from methods.clara.compressing import DocumentMemory
from methods.clara.fidelity import retell
from methods.clara.probe import TOP, Topics, topics
from methods.clara.reader import ClaraReader, ClaraReaderConfig
from methods.clara.retriever import ClaraRetriever, ClaraRetrieverConfig, QueryOptions
from methods.clara.use import loaded
from methods.explaining import Explanation, Table, numbers, register_explainer, shortened

WORDS = 12
"""Words of a memory token in a table."""


class ClaraExplainConfig(QueryOptions):
    """Whose ranking is shown, and how much of it."""

    checkpoint: str = Field(description="folder of a checkpoint that `ragmeter train clara` made, or `clara-pocket`, which ships")
    model: str = Field("", description="the same as checkpoint, by the word of CLaRa's options in experiments")
    k: int | None = Field(None, ge=1, description="documents answered from; null: as the checkpoint was trained")
    shown: int = Field(20, ge=1, description="documents in the table")
    top: int = Field(TOP, ge=1, description="tokens looked at for each memory token; paper 50")
    max_new_tokens: int = Field(64, ge=1, description="longest answer")
    retell: bool = Field(False, description="tell the documents read in other words from their memory alone (paper, table 19)")

    @model_validator(mode="before")
    @classmethod
    def _either_word(cls, given: Any) -> Any:
        """Every approach explains a `checkpoint`; CLaRa's parts, which all take a `model`, are built from this, too."""
        named = {"checkpoint", "model"} & set(given) if isinstance(given, Mapping) else set()
        if len(named) == 2:
            raise UserError(
                "checkpoint and model are two words for the same folder",
                where="--set",
                try_this="give one of them: --set checkpoint=FOLDER",
            )
        if not named:
            return given
        folder = given[named.pop()]
        # A text in any case, so that what is wrong with the folder is said of one word alone.
        return {**given, "checkpoint": folder, "model": str(folder)}

    def preflight(self) -> None:
        """Check that there is such a checkpoint, and its base the one that it was trained on."""
        read_config(require_checkpoint(self.checkpoint, where="clara, option checkpoint"))


@register_explainer(
    "clara", summary="the ranking with its cosines, the words that each memory token stands for, and the answer", config=ClaraExplainConfig
)
def explain(question: Question, corpus: Corpus, config: ClaraExplainConfig, services: Services) -> Explanation:
    """Rank a question's candidates, or the whole corpus where it has none, and answer from the best."""
    model = loaded(config, services.device)
    query = question.query()
    everywhere = Scope(corpus).rows(query) is None
    options = {name: value for name, value in config.model_dump().items() if name in QueryOptions.model_fields}
    found = ClaraRetrieverConfig.model_validate({**options, "offline": everywhere or config.offline})
    retriever = ClaraRetriever(found, services)
    k = config.k or model.clara.config.k
    (ranking,) = retriever.index(corpus).retrieve([query], max(k, config.shown, 100))
    ids = ranking.ids[:k]
    memory = DocumentMemory(retriever.documents.of(corpus, ids), model.compressor) if ids else None
    written = {"model": config.model, "dtype": config.dtype, "max_new_tokens": config.max_new_tokens}
    reader = ClaraReader(ClaraReaderConfig.model_validate(written), services)
    (answer,) = reader.read([query], [Context(query.id, memory=memory)])
    (asked,) = topics(model.clara, [question.text], config.query_adapter, config.top)
    gold = [passage.full_text for passage in corpus.get(one for one in question.evidence if one in corpus)]
    added = asked.found(question.text, gold)
    shown = corpus.get(ranking.ids[: config.shown])
    tables = (
        _ranking(question, shown, ranking.scores, k),
        _positions(asked, set(added)),
        *([_documents(shown[:k], topics(model.clara, [p.full_text for p in shown[:k]], "compressor", config.top))] if shown else []),
    )
    if config.retell and shown:
        tables += (_retold([p.full_text for p in shown[:k]], model.clara),)
    return Explanation(_summary(question, ranking.ids, answer.text, k, added), tables)


def _retold(documents: Sequence[str], clara: Any) -> Table:
    rows = tuple((rank, one.document, one.text) for rank, one in enumerate(retell(clara, documents), 1))
    return Table("Documents told again from their memory alone", ("rank", "document", "retold"), rows)


def _ranking(question: Question, shown: Sequence[Passage], scores: Sequence[float], k: int) -> Table:
    rows = tuple(
        (
            rank,
            *numbers([score]),
            "read" if rank <= k else "",
            "evidence" if one.id in question.evidence else "",
            shortened(one.full_text, 100),
        )
        for rank, (one, score) in enumerate(zip(shown, scores, strict=False), 1)
    )
    return Table("Documents by their memory", ("rank", "cosine", "", "gold", "text"), rows, "of flattened memory, eq. 3.1")


def _positions(asked: Topics, added: set[str]) -> Table:
    rows = tuple(
        (place, ", ".join(words[:WORDS]), ", ".join(word for word in words if word in added))
        for place, words in enumerate(asked.positions, 1)
    )
    return Table(
        "What the question's memory stands for",
        ("memory token", "words", "new, and of the evidence"),
        rows,
        "tokens of highest logit, without special tokens, punctuation and single characters",
    )


def _documents(shown: Sequence[Passage], found: Sequence[Topics]) -> Table:
    rows = tuple(
        (rank, place, ", ".join(words[:WORDS])) for rank, one in enumerate(found, 1) for place, words in enumerate(one.positions, 1)
    )
    return Table("What the memory of the documents read stands for", ("rank", "memory token", "words"), rows)


def _summary(question: Question, ids: Sequence[str], answer: str, k: int, added: Sequence[str]) -> str:
    gold = [place for place, one in enumerate(ids, 1) if one in question.evidence]
    told = f"Of {len(question.evidence)} documents of evidence {sum(rank <= k for rank in gold)} are read"
    ranks = f", at rank {', '.join(map(str, gold))} of {len(ids)}" if gold else ""
    evidence = f" {told}{ranks}." if question.evidence else ""
    words = f" Its memory adds {', '.join(added[:WORDS])}." if added else ""
    expected = f" ({'; '.join(question.answers)})" if question.answers else ""
    return f"“{shortened(question.text)}” – {answer or 'no answer'}{expected}.{evidence}{words}"
