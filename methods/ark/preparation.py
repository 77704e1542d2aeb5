"""What is made before anything is trained: chunks, scores, positives, augmented queries; each made once and kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from methods.ark.alignment import AlignmentRow, aligned, positives, row_of
from methods.ark.config import ArkTrainingConfig
from methods.ark.knowledge import Augmented, QuerySource
from methods.ark.material import Document, Material
from methods.ark.mining import Embedder, Mined, mine, random_pool, rows_of
from methods.ark.rows import TrainRow, check_rows, write_rows
from methods.ark.terms import Terms
from methods.kept import file_id, read_json, read_lines, write_json, write_lines
from methods.manifest import Manifest
from methods.training import Progress

SIZES = {"stage2": "large", "stage3": "small"}


@dataclass
class Preparation:
    """The work folder of a training.

    Args:
        config: Options.
        material: Documents and questions.
        work: The folder.
        terms: Raw scores.
        source: Augmented queries; None where none are wanted.
        progress: Told of documents.
    """

    config: ArkTrainingConfig
    material: Material
    work: Path
    terms: Terms
    source: QuerySource | None
    progress: Progress
    positives: dict[str, list[str]] = field(default_factory=dict)
    augmented: dict[str, Augmented] = field(default_factory=dict)

    def run(self, manifest: Manifest) -> None:
        """Make what is missing."""
        chunks = (
            {"role": "score", "document_id": document.id, **asdict(piece)}
            for document in self.material.documents
            for piece in document.pieces
        )
        write_lines(self.work / "chunks.jsonl", chunks)
        self.progress.begin("scoring chunks", len(self.material.documents))
        for document in self.material.documents:
            for question_id, rows in self._scores(document).items():
                self.positives[question_id] = positives(rows, self.config.score.positives)
            self.progress.advance()
        if self.source is not None:
            self.progress.begin("graphs and queries", len(self.material.documents))
            for document in self.material.documents:
                self.augmented.update(self.source.queries(document, document.questions))
                self.progress.advance()
        manifest.counts |= {"documents": len(self.material.documents), "chunks": len(self.material.texts), "questions": len(self.positives)}
        if self.source is not None:
            without = sum(not (one.large or one.small) for one in self.augmented.values())
            manifest.counts["questions_without_queries"] = without
        manifest.save()

    def _scores(self, document: Document) -> dict[str, list[AlignmentRow]]:
        paths = {one.id: self.work / "scores" / f"{file_id(one.id)}.jsonl" for one in document.questions}
        missing = [one for one in document.questions if not paths[one.id].exists()]
        if missing:
            tokens = self.terms.tokens(document) if self.config.penalises_short else None
            ids = [piece.id for piece in document.pieces]
            for question, raw in zip(missing, self.terms.raw(document, missing), strict=True):
                rows = aligned(question.id, ids, raw, self.config.score, tokens)
                write_lines(paths[question.id], map(asdict, rows))
        return {identifier: [row_of(line) for line in read_lines(path)] for identifier, path in paths.items()}

    # -- rows ------------------------------------------------------------------------------------------------------

    def needs_mining(self, stage: str) -> bool:
        """Whether an encoder is needed for the rows of a stage."""
        return stage in SIZES and self.config.mine.source != "random"

    def rows(self, stage: str, encoder: Embedder | None, model: str | None) -> tuple[list[TrainRow], int]:
        """The rows of a stage, written to its file; and how many were left out for want of negatives.

        Args:
            stage: The stage.
            encoder: Mines, where mining is needed.
            model: Its hash.
        """
        found: list[TrainRow] = []
        skipped = 0
        sample = self.config.mine.sample if stage in SIZES else self.config.mine.stage1_random
        for document in self.material.documents:
            pools = self._pools(document, stage, encoder, model)
            rows, without = rows_of(document, self.positives, pools, stage, sample, self.config.seed)
            found += rows
            skipped += without
        check_rows(found, self.material.texts)
        write_rows(self.work / "train" / f"{stage}.jsonl", found)
        return found, skipped

    def _pools(self, document: Document, stage: str, encoder: Embedder | None, model: str | None) -> Mapping[str, Sequence[str]]:
        if not self.needs_mining(stage):
            overlap = self.config.mine.drop_overlap
            return {one.id: random_pool(document, self.positives[one.id], overlap) for one in document.questions}
        assert encoder is not None
        assert model is not None
        paths = {one.id: self.work / "mined" / stage / f"{file_id(one.id)}.json" for one in document.questions}
        there = {one: Mined.from_json(read_json(path)) for one, path in paths.items() if path.exists()}
        # What another encoder mined is mined again: a stage before may have been trained anew.
        if len(there) < len(paths) or any(one.model != model for one in there.values()):
            made = mine(document, self._asked(document, stage), self.positives, encoder, self.config.mine, stage, model)
            there = {one.question_id: one for one in made}
            for identifier, one in there.items():
                write_json(paths[identifier], asdict(one))
        return {identifier: one.negatives for identifier, one in there.items()}

    def _asked(self, document: Document, stage: str) -> dict[str, Sequence[str]]:
        if self.config.mine.source == "question":
            return {question.id: (question.text,) for question in document.questions}
        return {question.id: getattr(self.augmented[question.id], SIZES[stage]) for question in document.questions}
