"""TREC RAG and other tracks: topics in one file, qrels in another, documents in a dump.

Source: Pradeep et al., 2024 (TREC RAG); topics and qrels as NIST and the track release them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.corpus_build import open_documents
from benchmarks.datasets import count_notes
from benchmarks.datasets.beir import NOTES as JUDGED
from benchmarks.datasets.beir import resolved
from benchmarks.io.judged import read_table, text_lines
from benchmarks.registry import Benchmark, DataReference, DatasetCard, DatasetConfig, register
from benchmarks.schema import Question
from benchmarks.sources import only_asked, own_path

VERSION = 1

CARD = DatasetCard(
    title="TREC RAG",
    task="retrieval-augmented generation",
    description="Topics of a TREC track with its qrels over a corpus of passages; for TREC RAG, the segments of MS MARCO "
    "v2.1. The part of a passage's id before # names its document, so metrics with level=documents count whole "
    "documents.",
    hub_id=None,
    revision=None,
    license="of each track",
    citation='@article{pradeep2024ragnarok, title={Ragnar{\\"o}k: A Reusable {RAG} Framework and Baselines for {TREC} 2024 '
    "Retrieval-Augmented Generation Track}, author={Pradeep, Ronak and Thakur, Nandan and Sharifymoghaddam, Sahel and Zhang, Eric and "
    "Nguyen, Ryan and Campos, Daniel and Craswell, Nick and Lin, Jimmy}, journal={arXiv:2406.16828}, year={2024}}",
    languages=("en",),
    splits={"test": None},
    metrics=("ndcg@20", "ndcg@100", "recall@100", "judged@20"),
    cluster="question",
    settings=("corpus", "closed_book"),
    notes="There are no gold answers. Topics without judgments are asked, but ranking metrics cannot score them.",
)

NOTES = {
    "topics_without_judgments": "{n} topics are not judged: metrics of ranking leave them out",
    "judged_without_topic": "{n} judged topics are not in the file of topics",
    "judgments_left_out": "{n} judgments are left out, because no corpus is named: config corpus",
    **{name: JUDGED[name] for name in ("questions_without_positives", "positives_absent")},
}
"""Note per count in `Benchmark.extra["counts"]`, shown in `Benchmark.extra["notes"]`."""


class TrecRagConfig(DatasetConfig):
    """Options of TREC topics."""

    path: str | None = Field(None, description="file of topics, one `id TAB question` per line")
    qrels: str | None = Field(None, description="the judgments, in any layout of qrels; without them, only answers can be judged")
    corpus: str | None = Field(None, description="the documents: a dump, a folder of its files, or a folder built with --layout beir")


@register("trec_rag", card=CARD, version=VERSION, config=TrecRagConfig, default_split="test")
def load(reference: DataReference, config: TrecRagConfig) -> Benchmark:
    """Load topics, and their judgments if a corpus is given.

    Raises:
        UserError: A file is missing or cannot be read, or topics and qrels have no id in common.
    """
    only_asked(reference)
    path = own_path(reference, config)
    topics = dict(_topics(path))
    corpus = Corpus.of([]) if config.corpus is None else open_documents(Path(config.corpus).expanduser())
    judged = {} if config.qrels is None else dict(read_table(Path(config.qrels).expanduser(), "qrels").values)
    if judged and topics.keys().isdisjoint(judged):
        raise UserError(
            "topics and qrels share no id",
            code="topics-and-qrels-disjoint",
            where=f"{path} and {config.qrels}",
            try_this="name the qrels of the same track",
        )
    counts = Counter(topics_without_judgments=len(topics.keys() - judged), judged_without_topic=len(judged.keys() - topics))
    if config.corpus is None:
        counts["judgments_left_out"] = sum(map(len, judged.values()))
        judged = {}
    questions = [Question(name, text, ()) for name, text in topics.items()]
    questions = [resolved(item, judged[item.id], corpus, counts) if item.id in judged else item for item in questions]
    variant = path.name.partition(".gz")[0].removesuffix(".txt").removesuffix(".tsv")
    return Benchmark(reference, VERSION, CARD, questions, corpus, extra={**count_notes(counts, NOTES), "variant": variant})


def _topics(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the id and text of each topic in a file."""
    seen: set[str] = set()
    for number, line in text_lines(path):
        if not line.strip():
            continue
        identifier, tab, text = line.partition("\t")
        identifier, text = identifier.strip(), text.strip()
        if not tab or not identifier or not text:
            raise UserError("this line is not a topic", code="line-without-topic", where=f"{path}:{number}", try_this="id TAB question")
        if identifier in seen:
            raise UserError(
                f"topic {identifier!r} occurs twice", code="duplicate-topic", where=f"{path}:{number}", try_this="keep one of the lines"
            )
        seen.add(identifier)
        yield identifier, text
    if not seen:
        raise UserError("the file has no topics", code="no-topic-in-file", where=str(path), try_this="id TAB question")
