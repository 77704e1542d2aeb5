"""The rows of a stage, and held-out questions: nothing that is for testing, and no question on both sides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice
from typing import Any

from benchmarks.errors import UserError
from benchmarks.fingerprint import fingerprint
from benchmarks.registry import resolve
from methods.api import Services
from methods.clara.data_config import PoolConfig
from methods.clara.reading import instruction_rows, joint_rows, scp_rows
from methods.clara.rows import InstructionRow, JointRow, ScpRow
from methods.clara.training_config import ClaraTrainingConfig, DataOptions, Stage

Row = ScpRow | InstructionRow | JointRow


def training_rows(config: ClaraTrainingConfig, stage: Stage, services: Services) -> tuple[list[Row], list[str]]:
    """What a stage is trained on.

    Returns:
        The rows, and a fingerprint for each reference.

    Raises:
        UserError: A reference is a test split, or gives no row.
    """
    parts = [_rows(config, config.data, stage, reference, services) for reference in config.references(stage)]
    rows = [row for part in parts for row in part]
    if stage == "supervised":
        rows = [row for row in rows if isinstance(row, JointRow) and row.positives]
    if not rows:
        raise UserError(
            f"{stage} has no row to train on",
            where=f"data: {', '.join(config.references(stage))}",
            try_this="a positive document for supervised; questions with answers and documents for the others",
        )
    return rows, [fingerprint([asdict(row) for row in part]) for part in parts]


def held_out(config: ClaraTrainingConfig, stage: Stage, services: Services, rows: Sequence[Row]) -> list[JointRow]:
    """Held-out questions with the documents that a stage answers from; none where none are named.

    Pretraining reads one document at a time: its questions come with their evidence alone, where it is known.

    Args:
        config: All options.
        stage: The stage.
        services: What retrievers are built with.
        rows: What is trained on: none of it may be among them.

    Raises:
        UserError: A question is trained on, too.
    """
    data, most = config.validation, config.validate_on.questions
    alone = stage in ("scp", "instruction")
    depth = config.instruction.documents if alone else data.pool.depth
    found: list[JointRow] = []
    for reference in data.instruction if alone else data.joint:
        _require_no_test(reference, "validation")
        pool = data.pool.model_copy(update={"depth": depth})
        found += joint_rows(reference, pool, _options(data, reference), services, limit=most)
    known = {(row.question, row.documents) for row in rows if not isinstance(row, ScpRow)}
    for row in found:
        if (row.question, row.documents) in known:
            raise UserError(
                f"the question {row.question!r} is held out and trained on", where="validation", try_this="another split for validation"
            )
    if stage == "scp":
        found = [_alone(row) for row in found]
    return found[:most]


def _alone(row: JointRow) -> JointRow:
    """A question with its evidence alone; as it is where that is not known."""
    if not row.positives:
        return row
    texts = tuple(row.documents[place] for place in row.positives)
    return replace(row, documents=texts, positives=tuple(range(len(texts))))


def set_aside(config: ClaraTrainingConfig, stage: Stage, rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Part a stage's rows into those it learns from and those its curve is drawn by.

    Drawn from the seed are documents of pretraining and questions of the other stages; every row of one of them is set
    aside with it. Nothing is where `validation` names something for the stage.

    Raises:
        UserError: Nothing would be left to learn from.
    """
    data, most = config.validation, config.validate_on.held_out
    named = data.scp if stage == "scp" else data.instruction if stage == "instruction" else data.joint
    if not most or named:
        return list(rows), []

    def unit(row: Row) -> str:
        return row.document if isinstance(row, ScpRow) else row.question

    every = list(dict.fromkeys(map(unit, rows)))
    if most >= len(every):
        raise UserError(
            f"{stage} has {len(every)} documents or questions, and {most} are to be set aside",
            where="validate_on.held_out",
            try_this="a smaller number",
        )
    # By what it says and not by the stage: supervised and joint training may read the same questions.
    aside = set(sorted(every, key=lambda text: fingerprint("clara set aside", config.seed, text))[:most])
    return [row for row in rows if unit(row) not in aside], [row for row in rows if unit(row) in aside]


def held_out_pretraining(config: ClaraTrainingConfig) -> list[ScpRow]:
    """Held-out rows of pretraining; none where none are named."""
    data = config.validation
    for reference in data.scp:
        _require_no_test(reference, "validation")
    every = (row for reference in data.scp for row in scp_rows(reference, config.scp.rows, _options(data, reference)))
    return list(islice(every, config.validate_on.questions))


def _rows(config: ClaraTrainingConfig, data: DataOptions, stage: Stage, reference: str, services: Services) -> Iterable[Row]:
    _require_no_test(reference, "data")
    options = _options(data, reference)
    if stage == "scp":
        return scp_rows(reference, config.scp.rows, options)
    if stage == "instruction":
        pool: PoolConfig = data.pool.model_copy(update={"depth": config.instruction.documents})
        return instruction_rows(reference, pool, options, services)
    return joint_rows(reference, data.pool, options, services)


def _options(data: DataOptions, reference: str) -> Mapping[str, Any]:
    return resolve(reference)[0].options_in(data.options)


def _require_no_test(reference: str, where: str) -> None:
    if "test" in (resolve(reference)[0].split or "").split("+"):
        raise UserError(f"{reference} is a test split, which a training must not see", where=where, try_this="train and validation splits")
