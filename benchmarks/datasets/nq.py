"""Natural Questions, open-domain: real questions to a search engine with short answers, over all of Wikipedia.

Source: Kwiatkowski et al., 2019; Lee et al., 2019 (NQ-open); Karpukhin et al., 2020 (DPR,
https://github.com/facebookresearch/DPR); Petroni et al., 2021 (KILT, https://github.com/facebookresearch/KILT). The
layouts are in `nq_layouts`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import Field

from benchmarks.corpora.build import open_corpus
from benchmarks.corpus import Corpus, CorpusBuilder
from benchmarks.datasets.assembling import QuestionIds, said
from benchmarks.datasets.nq_layouts import Parsed, layout_of, parser, read
from benchmarks.registry import Benchmark, DataReference, DatasetCard, DatasetConfig, SkippedRecord, register
from benchmarks.schema import Question
from benchmarks.sources import find_files, read_records

VERSION = 1

CARD = DatasetCard(
    title="Natural Questions (open)",
    task="open-domain QA",
    description="Questions that people asked a search engine, with the short answers that annotators found in "
    "Wikipedia. dpr: DPR's splits; open: NQ-open as released and on the hub; kilt: KILT's splits, with provenance.",
    hub_id="google-research-datasets/nq_open",
    revision="5dd9790a83002ad084ddeb7c420dc716852c6f28",
    licence="CC BY-SA 3.0",
    citation="@article{kwiatkowski2019natural, title={Natural Questions: A Benchmark for Question Answering Research}, "
    "author={Kwiatkowski, Tom and Palomaki, Jennimaria and Redfield, Olivia and Collins, Michael and Parikh, Ankur and "
    "Alberti, Chris and others}, journal={Transactions of the Association for Computational Linguistics}, volume={7}, "
    "year={2019}}",
    languages=("en",),
    splits={"train": 79168, "dev": 8757, "test": 3610},
    subset_splits={"open": {"train": 87925, "test": 3610}, "kilt": {"train": 87372, "dev": 2837, "test": 1444}},
    # KILT keeps NQ's train and dev split as far as their pages are in its Wikipedia; its test questions are new.
    same_questions={
        "open:train": ("nq/dpr:train", "nq/dpr:dev"),
        "open:test": ("nq/dpr:test",),
        "kilt:train": ("nq/dpr:train", "nq/dpr:dev"),
        "kilt:dev": ("nq/dpr:test",),
    },
    metrics=("em", "f1", "has_answer@20"),
    settings=("corpus", "oracle", "distractor", "closed_book"),
    subset_settings={"open": ("closed_book", "corpus", "oracle", "distractor"), "kilt": ("corpus", "closed_book")},
    notes="What NQ-open calls dev (the hub: validation) is what DPR and nearly every paper call test: the same 3,610 "
    "questions, here test in both. NQ-open's train holds DPR's train and dev together, so train on dpr if dev is to "
    "be new. CLaRa evaluates 6,489 questions of its own selection, which it publishes as rows of its own alone. The "
    "questions bring passages only in DPR's reader files and in files with ctxs; everywhere else the option corpus "
    "names what is searched: DPR's psgs_w100.tsv (Wikipedia of 2018-12-20, 21,015,324 passages) or Atlas' "
    "Wikipedia-2021. Only KILT has ids; elsewhere a question's id is a hash of its text. KILT's test split is released "
    "without answers.",
)

FOLDERS = ("nq", "nq_open", "nq-open", "natural_questions", "natural-questions", "naturalquestions", "kilt_nq")
_NQ_OPEN_DEV = ("NQ-open.dev.jsonl", "NQ-open.dev*.jsonl")
_CONTEXTS = ("nq-open-oracle*.jsonl", "nq-open-*_total_documents_gold_at_*.jsonl")


def _dpr(split: str) -> tuple[str, ...]:
    return (
        f"nq-{split}.qa.csv",
        f"nq-{split}.qa*.csv",
        f"nq-{split}*.csv",
        f"biencoder-nq-{split}.json",
        f"biencoder-nq-{split}*.json",
        f"nq-{split}.json",
    )


FILES = {
    "dpr:train": _dpr("train"),
    "dpr:dev": _dpr("dev"),
    "dpr:test": (*_dpr("test"), *_NQ_OPEN_DEV, *_CONTEXTS),
    "open:train": ("NQ-open.train.jsonl", "NQ-open.train*.jsonl"),
    "open:test": (*_NQ_OPEN_DEV, *_CONTEXTS),
    "kilt:train": ("nq-train-kilt.jsonl", "nq-train*kilt*.jsonl"),
    "kilt:dev": ("nq-dev-kilt.jsonl", "nq-dev*kilt*.jsonl"),
    "kilt:test": ("nq-test_without_answers-kilt.jsonl", "nq-test*kilt*.jsonl"),
}
_VALIDATION = ("nq_open/validation-*.parquet",)
HUB = {"open:train": ("nq_open/train-*.parquet",), "open:test": _VALIDATION, "dpr:test": _VALIDATION}

NOTES = {
    "questions_without_ids": "{n} questions have no id in the file: each got a hash of its text",
    "repeated_questions": "{n} questions repeat the text of an earlier one: they got ~2, ~3 … behind its id",
    "questions_without_gold": "{n} questions have no gold answer in the file and cannot be scored",
    "questions_without_positives": "{n} questions have no annotated positive passage: recall leaves them out, has_answer does not",
    "repeated_contexts": "{n} contexts stand twice in one record; each counts once as a candidate",
    "positives_found_by_native_id": "{n} positives were found in the corpus by the dump's own id",
    "positives_absent": "{n} positives are not in the corpus; they stay in every denominator and cannot be found",
    "questions_with_absent_positives": "{n} questions have a positive that is not in the corpus",
}
"""What each count of `Benchmark.extra["counts"]` means, as it is said in `Benchmark.extra["notes"]`."""


class NQConfig(DatasetConfig):
    """Options of Natural Questions."""

    corpus: str | None = Field(
        None,
        description="what is searched: a corpus folder (ragmeter datasets corpus), or a dump such as psgs_w100.tsv, "
        "which is built beside itself once; the records' own contexts are no candidates then",
    )
    layout: Literal["open", "csv", "reader", "kilt", "contexts"] | None = Field(
        None, description="the file's layout, where its first record does not tell"
    )


@register("nq", card=CARD, version=VERSION, config=NQConfig, subsets=("dpr", "open", "kilt"))
def load(reference: DataReference, config: NQConfig) -> Benchmark:
    """Read a split in whichever layout its file has.

    Evidence are the contexts annotated as positive (`isgold`, `positive_ctxs`). `metadata` keeps `has_answer` (ids of
    contexts that hold an answer string), `nq_annotated_gold` and KILT's `provenance`.

    Raises:
        UserError: The file is not found, or is not what was asked for.
    """
    paths = find_files(reference, config, card=CARD, folders=FOLDERS, patterns=FILES, hub=HUB)
    layout = config.layout or layout_of(paths[0])
    skipped: list[SkippedRecord] = []
    parsed = read_records(paths, parser(layout, reference.split or "dev"), skip_bad=config.skip_bad, skipped=skipped, read=read(layout))
    counts: Counter[str] = Counter()
    builder = CorpusBuilder()
    questions, natives = [], []
    for one in _identified(parsed, paths, counts):
        questions.append(one.question)
        if config.corpus is not None:
            natives.append(one.native_ids)
        if one.passages:
            counts["repeated_contexts"] += one.repeated
            builder.add(one.passages)
    notes = [] if reference.subset != "open" else [_OPEN_NOTES[reference.split or ""]]
    corpus = builder.build()
    if config.corpus is not None:
        corpus = open_corpus(Path(config.corpus).expanduser())
        resolve = _Resolve(corpus, counts)
        questions = [resolve(question, known) for question, known in zip(questions, natives, strict=True)]
        notes.append(f"the corpus is {Path(config.corpus).name}, not the records' own contexts")
    counts["questions_without_gold"] = sum(not question.answers for question in questions)
    counts["questions_without_positives"] = sum(not question.evidence for question in questions)
    extra = {**said(counts, NOTES, *notes), "layout": layout}
    return Benchmark(reference, VERSION, CARD, questions, corpus, tuple(skipped), extra)


_OPEN_NOTES = {
    "train": "NQ-open's train file holds both train and dev of DPR",
    "test": "NQ-open's dev file is what DPR and nearly every paper call test",
}


def _identified(parsed: Iterator[Parsed], paths: Sequence[Path], counts: Counter[str]) -> Iterator[Parsed]:
    """Tell apart questions of equal text that have no ids of their own.

    Raises:
        UserError: Two records have the same native id.
    """
    ids = QuestionIds(paths)
    times: dict[str, int] = {}
    for one in parsed:
        identifier = one.question.id
        if one.has_id:
            ids.add(identifier, one.record)
        else:
            number = times[identifier] = times.get(identifier, 0) + 1
            if number > 1:
                one.question = replace(one.question, id=f"{identifier}~{number}")
        yield one
    counts["questions_without_ids"] = sum(times.values())
    counts["repeated_questions"] = sum(times.values()) - len(times)


class _Resolve:
    """Finds the positives of questions in another corpus: by content, else by the dump's own id and title."""

    def __init__(self, corpus: Corpus, counts: Counter[str]) -> None:
        self._corpus = corpus
        self._counts = counts

    def __call__(self, question: Question, natives: Mapping[str, tuple[str, str]]) -> Question:
        found = [self._find(identifier, *natives.get(identifier, ("", ""))) for identifier in question.evidence]
        absent = found.count(None)
        self._counts["positives_absent"] += absent
        self._counts["questions_with_absent_positives"] += absent > 0
        evidence = [new or old for new, old in zip(found, question.evidence, strict=True)]
        return replace(question, evidence=tuple(dict.fromkeys(evidence)), candidates=None)

    def _find(self, identifier: str, native_id: str, title: str) -> str | None:
        if identifier in self._corpus:
            return identifier
        held = self._corpus.by_native_id(native_id) if native_id else None
        # Numbers alone would also fit a dump that counts differently.
        if held is None or self._corpus.get([held])[0].title != title:
            return None
        self._counts["positives_found_by_native_id"] += 1
        return held
