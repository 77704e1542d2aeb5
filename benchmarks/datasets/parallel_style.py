"""Probe for style bias from parallel texts: the query is a text in one style, and the target is its counterpart in another
style among neighboring texts.

A ranker that judges content finds the target in every style, so a drop from one style to another measures style bias. The texts
are human-written, and no training data is needed. `bible` reads verse-aligned chapters, `own` any records of parallel texts
(`styles.parallel`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.corpus import CorpusBuilder
from benchmarks.datasets import count_notes
from benchmarks.registry import Benchmark, DataReference, DatasetCard, DatasetConfig, SkippedRecord, register
from benchmarks.schema import Passage, Question
from benchmarks.sources import find_file
from benchmarks.styles import FORMAL
from benchmarks.styles.pairs import Fields, Parallel, Rewriting, read_parallel
from benchmarks.text import tokens

VERSION = 1

CARD = DatasetCard(
    title="Parallel styles",
    task="reranking",
    description="The same texts in several styles, aligned one to one. Each question is a text in one style. Its candidates "
    "are the texts of the same record (a chapter's verses) in the formal style, and its positive is the text "
    "with the same content. bible: chapters in four English translations; own: your own records.",
    hub_id=None,
    revision=None,
    license="public domain (bible)",
    citation="@article{carlson2018bible, title={Evaluating prose style transfer with the Bible}, author={Carlson, "
    "Keith and Riddell, Allen and Rockmore, Daniel}, journal={Royal Society Open Science}, volume={5}, number={10}, "
    "year={2018}}",
    languages=("en",),
    splits={"train": None, "test": None},
    metrics=("recall@5", "mrr@10", "recall@1"),
    cluster="question",
    settings=("distractor", "corpus"),
    notes="Only ranking metrics can be scored, because there are no gold answers. `Benchmark.extra['pairs']` contains the texts "
    "of the other versions. The dataset styled with `rewriter: own` uses the same questions with candidates of mixed "
    "versions.",
)

FOLDERS = ("parallel_style", "sark_style", "bible")
FILES = {"bible:test": ("bible*.jsonl",), "own:train": ("parallel*train*.jsonl",), "own:test": ("parallel*.jsonl",)}

BIBLE = {FORMAL: "styles.KJV", "query": "styles.WEB", "ylt": "styles.YLT", "bbe": "styles.BBE"}
OWN = {style: style for style in (FORMAL, "informal")}

NOTES = {
    "repeated_passages": "{n} texts occur twice in one record; each counts once as a candidate",
    "blank_texts": "{n} texts are blank in one version: they are neither asked for nor paired",
    "shared_texts": "{n} texts have two different texts in another version; the first is their pair",
}


class ParallelConfig(DatasetConfig):
    """Options of parallel texts."""

    styles: dict[str, str] = Field(
        default={},
        description="field of each style; dots lead into objects. One style is `formal`; questions come from `query`, or from "
        "the first other style if there is no `query`. Empty: bible: KJV formal, WEB query, YLT and BBE; own: "
        "formal, informal",
    )
    id: str | None = Field("id", description="field of a record's id; null: the record's number in the file")
    title: str | None = Field(None, description="field of the title that all texts of a record share")
    hardest: int | None = Field(
        None, ge=1, description="number of questions per record, chosen by word overlap with another of its texts; null: all"
    )


@register("parallel_style", card=CARD, version=VERSION, config=ParallelConfig, subsets=("bible", "own"), default_split="test")
def load(reference: DataReference, config: ParallelConfig) -> Benchmark:
    """Load records of parallel texts; `extra["pairs"]` has a `Rewriting` for every text that is not formal.

    Raises:
        UserError: The file is not found, lacks a style, or its styles are not parallel.
    """
    patterns = {split: names for split, names in FILES.items() if split.startswith(f"{reference.subset}:")}
    path = find_file(reference, config, folders=FOLDERS, patterns=patterns)
    styles = dict(config.styles) or (BIBLE if reference.subset == "bible" else OWN)
    fields = Fields(styles, config.id, config.title)
    query = "query" if "query" in styles else next(style for style in styles if style != FORMAL)
    skipped: list[SkippedRecord] = []
    counts, builder, questions = Counter[str](), CorpusBuilder(), list[Question]()
    pairs: dict[tuple[str, str], Rewriting] = {}
    positions: dict[str, str] = {}
    for record in read_parallel(path, fields, skip_bad=config.skip_bad, skipped=skipped):
        if record.id in positions:
            raise UserError(
                f"record id {record.id!r} occurs twice", code="duplicate-record", where=str(path), try_this="remove one of them"
            )
        positions[record.id] = record.id
        builder.add(passage for passage in record.formal if passage.text.strip())
        questions += _hardest(_questions(record, query, counts), record.formal, config.hardest)
        for rewriting in record.rewritings("people"):
            if rewriting.style != "query":
                known = pairs.setdefault((rewriting.formal.id, rewriting.style), rewriting)
                counts["shared_texts"] += known.styled != rewriting.styled
    extra = {**count_notes(counts, NOTES), "pairs": tuple(pairs.values())}
    return Benchmark(reference, VERSION, CARD, questions, builder.build(), tuple(skipped), extra)


def _hardest(questions: list[Question], formal: Sequence[Passage], most: int | None) -> list[Question]:
    """Return the questions whose evidence is most similar to another formal text, by the Jaccard index of their words."""
    if most is None or len(questions) <= most:
        return questions
    words = {passage.id: frozenset(tokens(passage.text)) for passage in formal}

    def nearest(question: Question) -> float:
        (own,) = question.evidence
        similar = (len(words[own] & words[other]) / max(1, len(words[own] | words[other])) for other in words if other != own)
        return max(similar, default=0.0)

    kept = sorted(range(len(questions)), key=lambda position: -nearest(questions[position]))[:most]
    return [questions[position] for position in sorted(kept)]


def _questions(record: Parallel, query: str, counts: Counter[str]) -> list[Question]:
    formal = record.formal
    there = [passage.id for passage in formal if passage.text.strip()]
    candidates = tuple(dict.fromkeys(there))
    counts["repeated_passages"] += len(there) - len(candidates)
    counts["blank_texts"] += sum(not text.strip() for texts in record.texts.values() for text in texts)
    return [
        Question(f"{record.id}:{number}", text.strip(), (), evidence=(passage.id,), candidates=candidates, metadata={"record": record.id})
        for number, (text, passage) in enumerate(zip(record.texts[query], formal, strict=True), 1)
        if text.strip() and passage.text.strip()
    ]
