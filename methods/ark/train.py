"""Train ARK (`ragmeter train ark`): from documents and questions to a fine-tuned retriever, in stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import content_id, file_sha256, fingerprint
from benchmarks.sources import data_path
from methods.ark.alignment import AlignmentRow, Terms, aligned, kept_out, positives, row_of
from methods.ark.config import PRESETS, SIZES, STAGES, ArkTrainingConfig
from methods.ark.data import Document, Material, TrainRow, check_rows, documents_of, load_material, plan, write_rows
from methods.ark.loss import batch_of
from methods.ark.negatives import Augmented, Embedder, Mined, QuerySource, mine, query_source, random_pool, rows_of
from methods.ark.planning import needs, work_of
from methods.ark.tower import Prompts, Tower, load_tower, prompts_of
from methods.flow import in_order
from methods.models.encoder import Encoder
from methods.models.encoder_config import EncoderConfig
from methods.models.weights import weights_hash
from methods.training import Progress, TrainedStage, TrainingContext, register_training
from methods.training.loop import Loop, LoopOptions, LoopPlace, Schedule, Validate
from methods.training.material import load_data
from methods.training.model_card import RETRIEVER, write_model_card
from methods.training.ranks import accelerator, first, own, wait
from methods.training.stages import Manifest, PreparedRun, file_id, read_json, read_lines, train_stage, write_json, write_lines


def write_card(folder: Path, stage: str, config: ArkTrainingConfig, figures: Mapping[str, float], prompts: tuple[str, str]) -> None:
    """Write a checkpoint's model card."""
    facts: dict[str, object] = {
        "temperature": config.loss.temperature,
        "rows per batch": config.train.batch_size,
        "positives": "the data's evidence",
        **figures,
    }
    if config.augments and not config.makes_graphs:
        facts["augmented queries"] = "written by a large language model (recorded)"
    if config.scores:
        weights = ", ".join(f"{part.weight:g}" for part in (config.score.f, config.score.b, config.score.v))
        facts |= {"positives": f"{config.score.positives} per question", "scorer": f"`{config.score.scorer}`"}
        facts["weights of forward, backward and vector score"] = weights
    query, passage = (f"`{prompt!r}`" if prompt else "nothing" for prompt in prompts)
    write_model_card(
        folder,
        RETRIEVER,
        f"A retriever tuned with ARK ({stage})",
        "ARK (answer-centric retriever tuning with a knowledge-graph curriculum) takes as positives the chunks of a document that make "
        "the answer most likely. Negatives are what queries built from the answer's neighborhood in the document's knowledge graph "
        f"retrieve. Each stage starts from the weights of the previous one.\n\nVectors have length 1. Queries are preceded by {query}, "
        f"documents by {passage}.",
        base=[config.base],
        data=config.data,
        seed=config.seed,
        facts=facts,
    )


# Nothing random outlives a step: batches are drawn from (seed, stage, epoch) and dropout from (seed, stage, step).


@dataclass(frozen=True)
class StagePlan:
    """Data and optimization settings of a stage.

    Attributes:
        name: `stage1` …
        rows: Its training rows.
        epochs: Number of epochs.
        learning_rate: Peak learning rate.
        warm_up: Warm-up as a fraction of the steps if below 1, else as a number of steps.
    """

    name: str
    rows: Sequence[TrainRow]
    epochs: int
    learning_rate: float
    warm_up: float


def stage_plan(name: str, rows: Sequence[TrainRow], config: ArkTrainingConfig) -> StagePlan:
    """Build a stage's plan from the options; mixed stages add up their epochs and use the first one's learning rate."""
    train, position = config.train, STAGES.index(name)
    if train.curriculum == "mixed":
        return StagePlan(name, rows, sum(train.epochs), train.learning_rate[0], train.warm_up[0])
    return StagePlan(name, rows, train.epochs[position], train.learning_rate[position], train.warm_up[position])


class StageTrainer:
    """Training loop of one stage.

    Args:
        tower: The encoder with its initial weights.
        stage: Plan of the stage.
        texts: Chunk texts by id.
        config: All options.
        place: Working folder and process of the loop.
    """

    def __init__(self, tower: Tower, stage: StagePlan, texts: Mapping[str, str], config: ArkTrainingConfig, place: LoopPlace) -> None:
        self.tower, self.stage, self.texts, self.config = tower, stage, texts, config
        train = config.train
        self.plan = plan(stage.rows, train, stage.epochs, config.seed, stage.name)
        steps = len(self.plan.steps)
        schedule = Schedule(stage.learning_rate, stage.warm_up, "cosine")
        epoch, betas = max(1, steps // stage.epochs), (0.9, 0.95)
        options = LoopOptions(steps, epoch, schedule, train.weight_decay, "matrices", betas, save_every=train.save_every)
        self.loop = Loop({"encoder": tower.model}, options, self._step, place, stage.name, tower.micro)

    def _step(self, step: int) -> dict[str, float]:
        """Compute the gradient of one optimizer step."""
        batches = self.plan.steps[step]
        loss = 0.0
        for number, positions in enumerate(batches):
            for part, share in self._parts([self.stage.rows[position] for position in positions]):
                batch = batch_of(part, self.texts, self.config.loss)
                seed = (self.config.seed, self.stage.name, step, number, part[0].question_id)
                weight = share / len(batches)
                loss += weight * self.tower.backward(batch, self.config.loss.temperature, seed, weight)
        return {"loss": loss}

    def _parts(self, rows: list[TrainRow]) -> list[tuple[list[TrainRow], float]]:
        """Split a batch into parts without common candidates, with each part's share of the mean loss."""
        if any(self.config.loss.in_batch[STAGES.index(row.stage)] != "none" for row in rows):
            return [(rows, 1.0)]
        # Rows of one document share negatives, which are then encoded once.
        rows = sorted(rows, key=lambda row: (row.document_id, row.question_id, row.positive_id))
        parts: list[list[TrainRow]] = []
        texts: set[str] = set()
        for row in rows:
            wanted = {row.query, *(self.texts[identifier] for identifier in (row.positive_id, *row.negative_ids))}
            if not parts or sum(map(self.tower.length, texts | wanted)) > self.config.train.held_tokens:
                parts.append([])
                texts = set()
            parts[-1].append(row)
            texts |= wanted
        return [(part, len(part) / len(rows)) for part in parts]


DOCUMENTS = 16
"""Number of documents whose graphs and queries are processed concurrently."""


@dataclass
class Preparation:
    """Preparation of the training data in a working folder.

    Args:
        config: Options.
        material: Documents and questions.
        work: Working folder.
        terms: Score terms for chunks.
        source: Source of augmented queries; None if not needed.
        progress: Progress display.
    """

    config: ArkTrainingConfig
    material: Material
    work: Path
    terms: Terms
    source: QuerySource | None
    progress: Progress
    positives: dict[str, list[str]] = field(default_factory=dict)
    kept_out: dict[str, list[str]] = field(default_factory=dict)
    augmented: dict[str, Augmented] = field(default_factory=dict)

    def score(self, process: Any) -> None:
        """Score all chunks; with several processes, each handles its own documents."""
        if not self.config.scores:
            return
        documents = own(self.material.documents, process)
        self.progress.begin("scoring chunks", len(documents))
        for document in documents:
            self._scores(document)
            self.progress.advance()

    def run(self, manifest: Manifest, again: bool = False) -> None:
        """Compute all missing data: scores, graphs and queries.

        Args:
            manifest: Manifest that receives the counts.
            again: Whether to retry failed queries.
        """
        chunks = (
            {"role": "score", "document_id": document.id, **asdict(piece)}
            for document in self.material.documents
            for piece in document.pieces
        )
        write_lines(self.work / "chunks.jsonl", chunks)
        for document in self.material.documents:
            self._choose(document)
        if self.source is not None:
            self._augment(self.source, again)
        manifest.counts |= {"documents": len(self.material.documents), "chunks": len(self.material.texts), "questions": len(self.positives)}
        if self.source is not None:
            without = sum(not (item.large or item.small) for item in self.augmented.values())
            if self.augmented and without == len(self.augmented):
                raise UserError(
                    f"none of the {without:,} questions has augmented queries",
                    code="no-augmented-queries",
                    where="queries" if self.config.makes_graphs else f"queries.path: {self.config.queries.path}",
                    try_this="mine.source: question, if the graph gives no queries"
                    if self.config.makes_graphs
                    else "the file of these questions",
                )
            manifest.counts["questions_without_queries"] = without
        manifest.save()

    def _augment(self, source: QuerySource, again: bool) -> None:
        """Load or generate augmented queries, which other processes and later runs reuse."""
        chosen = self.work / "augmented.jsonl"
        if chosen.exists() and not again:
            rows = [Augmented(row["question_id"], tuple(row["large"]), tuple(row["small"])) for row in read_lines(chosen)]
            self.augmented.update({row.question_id: row for row in rows})
            return
        self.progress.begin("graphs and queries", len(self.material.documents))
        for made in in_order(lambda item: source.queries(item, item.questions), self.material.documents, DOCUMENTS):
            self.augmented.update(made)
            self.progress.advance()
        write_lines(chosen, map(asdict, self.augmented.values()))

    def _choose(self, document: Document) -> None:
        """Choose the positives of a document's questions, and the chunks excluded as negatives."""
        evidence = {question.id: list(question.evidence) for question in document.questions}
        scores = self._scores(document) if self.config.scores else {}
        for question_id, known in evidence.items():
            rows = scores.get(question_id)
            self.positives[question_id] = known if rows is None else positives(rows, self.config.score.positives)
            self.kept_out[question_id] = known if rows is None else kept_out(rows, known, self.config)

    def _scores(self, document: Document) -> dict[str, list[AlignmentRow]]:
        ids = [piece.id for piece in document.pieces]
        # An edited question, answer or document, or another model in the same folder, gives other scores.
        made_of = fingerprint([term.fingerprint for term in self.terms.terms], ids)
        names = {item.id: content_id("s", made_of, item.id, item.text, item.answers[0]) for item in document.questions}
        paths = {identifier: self.work / "scores" / f"{name}.jsonl" for identifier, name in names.items()}
        missing = [question for question in document.questions if not paths[question.id].exists()]
        if missing:
            tokens = self.terms.tokens(document) if self.config.penalizes_short else None
            for question, raw in zip(missing, self.terms.raw(document, missing), strict=True):
                rows = aligned(question.id, ids, raw, self.config.score, tokens)
                write_lines(paths[question.id], map(asdict, rows))
        return {identifier: [row_of(line) for line in read_lines(path)] for identifier, path in paths.items()}

    @property
    def left_out(self) -> dict[str, float]:
        """Return the numbers of questions that give no row, by reason, without zeros."""
        counts = {
            "questions_without_answer": self.material.without_answer,
            "questions_without_positive": sum(not chosen for chosen in self.positives.values()),
        }
        return {name: float(count) for name, count in counts.items() if count}

    def needs_mining(self, stage: str) -> bool:
        """Return whether a stage's negatives must be mined with an encoder."""
        return stage in SIZES and self.config.mine.source != "random"

    def train_rows(self, stage: str, encoder: Embedder | None, model: str | None) -> tuple[list[TrainRow], int]:
        """Build and save the rows of a stage; returns them and the number dropped for lack of negatives.

        Args:
            stage: The stage.
            encoder: Encoder for mining, if needed.
            model: Hash of the encoder.
        """
        results: list[TrainRow] = []
        skipped = 0
        sample = self.config.mine.sample if stage in SIZES else self.config.mine.stage1_random
        for document in self.material.documents:
            pools = self._pools(document, stage, encoder, model)
            rows, without = rows_of(document, self.positives, pools, stage, sample, self.config.seed)
            results += rows
            skipped += without
        check_rows(results, self.material.texts)
        write_rows(self.work / "train" / f"{stage}.jsonl", results)
        return results, skipped

    def _pools(self, document: Document, stage: str, encoder: Embedder | None, model: str | None) -> Mapping[str, Sequence[str]]:
        if not self.needs_mining(stage):
            return {question.id: random_pool(document, self.kept_out[question.id]) for question in document.questions}
        assert encoder is not None
        assert model is not None
        paths = {item.id: self.work / "mined" / stage / f"{file_id(item.id)}.json" for item in document.questions}
        there = {item: Mined.from_json(read_json(path)) for item, path in paths.items() if path.exists()}
        # What another encoder mined is mined again: an earlier stage may have been retrained.
        if len(there) < len(paths) or any(item.model != model for item in there.values()):
            made = mine(document, self._request(document, stage), self.kept_out, encoder, self.config.mine, stage, model)
            there = {item.question_id: item for item in made}
            for identifier, item in there.items():
                write_json(paths[identifier], asdict(item))
        return {identifier: item.negatives for identifier, item in there.items()}

    def _request(self, document: Document, stage: str) -> dict[str, Sequence[str]]:
        if self.config.mine.source == "question":
            return {question.id: (question.text,) for question in document.questions}
        return {question.id: getattr(self.augmented[question.id], SIZES[stage]) for question in document.questions}


VALIDATED_DEPTH = 5
"""Value of k for recall@k in validation."""


def held_out(config: ArkTrainingConfig) -> tuple[list[Document], int]:
    """Load the validation questions that have evidence.

    Returns:
        The documents with these questions, and the number of questions without evidence.

    Raises:
        UserError: No question of the validation data has evidence.
    """
    benchmarks = load_data(config.validation, config.validation_options, train=False)
    documents = [item for benchmark in benchmarks for item in documents_of(benchmark, "passages", lambda question: bool(question.evidence))]
    if benchmarks and not documents:
        raise UserError(
            "no validation question has evidence, so there is no recall",
            code="no-validation-evidence",
            where="validation",
            try_this="data with evidence (worlds, hotpotqa), or none",
        )
    return documents, sum(not question.evidence for benchmark in benchmarks for question in benchmark.questions)


def validator(documents: Sequence[Document], model: Any, prompts: Prompts) -> Validate:
    """Build the function that computes recall of the evidence among the passages of its document."""
    k = VALIDATED_DEPTH

    def validate() -> Mapping[str, float]:
        results = [recall for document in documents for recall in _recalls(document, model, prompts, k)]
        return {f"validation_recall@{k}": float(np.mean(results))}

    return validate


def _recalls(document: Document, model: Any, prompts: Prompts, k: int) -> list[float]:
    options: dict[str, Any] = {"normalize_embeddings": True, "show_progress_bar": False}
    passages = model.encode([piece.text for piece in document.pieces], prompt=prompts.passage or None, **options)
    queries = model.encode([question.text for question in document.questions], prompt=prompts.query or None, **options)
    best = np.argsort(-(queries @ passages.T), axis=1, kind="stable")[:, :k]
    recalls = []
    for question, positions in zip(document.questions, best.tolist(), strict=True):
        top = {document.pieces[position].id for position in positions}
        recalls.append(float(np.mean([item in top for item in question.evidence])))
    return recalls


@register_training(
    "ark",
    summary="a retriever tuned to rank the chunks first that make the answer likely, with negatives from a knowledge graph",
    stages=STAGES,
    version=2,
    paper="ARK: answer-centric retriever tuning with a knowledge-graph curriculum (2025)",
    presets=PRESETS,
    work=work_of,
    needs=needs,
)
class ArkTraining:
    """Training of ARK.

    Args:
        config: Options.
        source: Source of augmented queries that replaces the configured one.
    """

    def __init__(self, config: ArkTrainingConfig, source: QuerySource | None = None) -> None:
        self.config = config
        self._source = source

    def run(self, context: TrainingContext) -> Iterator[TrainedStage]:
        """Prepare the data, train all stages, and yield each finished one; with several processes, only the main one yields.

        Raises:
            UserError: The data must not be trained on, or the folders contain other work.
        """
        config, services = self.config, context.services
        process = accelerator(config.train.precision, services.device)
        material = load_material(config)
        terms = Terms(config, str(process.device), services.folder("alignment"), services.folder("embeddings"), services)
        source = (self._source or query_source(config, context.work, services)) if config.augments else None
        preparation = Preparation(config, material, context.work, terms, source, context.progress)
        options = config.model_dump(mode="json")
        # A file that takes another's place is another input.
        fingerprints = (*material.fingerprints, *(f"{option}: {file_sha256(data_path(name))}" for option, name in config.files.items()))
        manifest = Manifest.open(context.work, fingerprint(options, fingerprints), options)
        preparation.score(process)
        wait(process)
        with first(process):
            preparation.run(manifest, context.prepares and not any(path.is_dir() for path in (context.work / "train").glob("*")))
        parents = [config.encoder]
        for name in config.stages_of(STAGES):
            begin = partial(self._begin, name, tuple(parents), preparation, context, process)
            base = (parents[-1].model, parents[-1].revision)
            yield from train_stage(name, config, base, fingerprints, context, process, begin)
            # The card is in the folder before anyone hashes it.
            wait(process)
            update = {"model": str(context.checkpoints / name), "revision": None, "pooling": None}
            parents.append(config.encoder.model_copy(update=update))

    def _begin(
        self, name: str, parents: tuple[EncoderConfig, ...], preparation: Preparation, context: TrainingContext, process: Any, identity: str
    ) -> PreparedRun:
        """Prepare a stage that starts from the last of its parents; the first one is the base."""
        config, device = self.config, str(process.device)
        stages = config.train.stages if config.train.curriculum == "mixed" else (name,)
        miner = parents[0] if config.mine.model == "base" else parents[-1]
        with first(process):
            rows, skipped, mined_with = _mined_rows(config, stages, miner, preparation, device, context.services.folder("embeddings"))
        if not _has_negatives(rows, config):
            raise _nothing_to_train(name)
        model = load_tower(parents[-1], device)
        evaluated, longest = prompts_of(config.encoder, model), model.max_seq_length
        tower = Tower(model, prompts_of(config.encoder, model, config.train.query_instruction), config.train, process)
        hashed = fingerprint([file_sha256(context.work / "train" / f"{item}.jsonl") for item in stages])
        documents, without = held_out(config)
        validate = validator(documents, model, evaluated) if documents else None
        place = LoopPlace(context.work / "train" / name, fingerprint(identity, name, hashed), context.progress, process, validate)
        trainer = StageTrainer(tower, stage_plan(name, rows, config), preparation.material.texts, config, place)

        def save(folder: Path, figures: Mapping[str, float]) -> None:
            model.max_seq_length = longest
            model.prompts = {"query": evaluated.query, "document": evaluated.passage}
            model.save_pretrained(str(folder), create_model_card=False)
            ordered = {"steps": figures["steps"], "rows": figures["rows"], **figures}
            write_card(folder, name, config, ordered, (evaluated.query, evaluated.passage))

        texts = preparation.material.texts
        chunks = (texts[item] for row in rows for item in (row.positive_id, *row.negative_ids))
        figures = {"rows": float(len(rows)), "rows_left_out": float(skipped), **preparation.left_out}
        figures |= tower.cut((row.query for row in rows), chunks)
        figures |= {"validation_without_evidence": float(without)} if without else {}
        return PreparedRun(trainer.loop, save, figures, mined_with, hashed)


def _mined_rows(
    config: ArkTrainingConfig, stages: Sequence[str], miner: EncoderConfig, preparation: Preparation, device: str, cache: Path | None
) -> tuple[list[TrainRow], int, str | None]:
    """Build the rows of stages; returns them with the number of dropped ones and the mining encoder's hash."""
    encoder, model = None, weights_hash(miner.model, miner.revision)
    if any(map(preparation.needs_mining, stages)):
        update = {} if config.train.query_instruction else {"query_prompt": ""}
        encoder = Encoder(miner.model_copy(update=update), device, cache)
    made = [preparation.train_rows(stage, encoder, model) for stage in stages]
    return [row for rows, _ in made for row in rows], sum(skipped for _, skipped in made), model if encoder else None


def _has_negatives(rows: Sequence[TrainRow], config: ArkTrainingConfig) -> bool:
    """Return whether any row has negatives of its own, or can get some from other rows of a batch."""
    others = {row.question_id if config.loss.mask_same_question else row.positive_id for row in rows}
    shared = any(config.loss.in_batch[STAGES.index(row.stage)] != "none" for row in rows)
    return any(row.negative_ids for row in rows) or (shared and len(others) > 1 and config.train.batch_size > 1)


def _nothing_to_train(name: str) -> UserError:
    return UserError(
        f"{name} has no training row: no question has a positive with a negative",
        code="no-training-pair",
        where="data",
        try_this="use more data; or mine.source: question, if the graph gives no queries",
    )
