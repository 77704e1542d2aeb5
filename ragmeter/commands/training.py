"""`train` and `explain`: checkpoints from data, and what a method did with a question."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from rich.text import Text

from benchmarks import registry as datasets
from benchmarks.errors import UserError, unknown_name, unwritable
from benchmarks.schema import Question
from benchmarks.wording import first_error, in_words
from methods.api import Services
from methods.explaining import EXPLAINERS, Explanation
from methods.registry import require_extra
from methods.training import TRAININGS, TrainedStage, TrainingConfig, TrainingEntry
from ragmeter import yaml_source
from ragmeter.commands.listing import option_rows
from ragmeter.console import PROSE, emit, err, listing, out
from ragmeter.given_options import refusal
from ragmeter.progress import TrainingProgress
from ragmeter.run_loop import Interrupted
from ragmeter.tasks import require_device
from ragmeter.training_job import Job
from results import store_folder
from results.checkpoints import Checkpoint
from results.redaction import echoed, without_secrets
from results.store import Store


@dataclass(frozen=True)
class Request:
    """What was asked to be trained, and how."""

    name: str | None
    data: str | None
    graph: str | None
    base: str | None
    preset: str | None
    config: Path | None
    options: Sequence[str]
    stage: str | None
    output: Path | None
    device: str | None


def listed(as_json: bool) -> None:
    """List what can be trained."""
    rows = [(entry.id, ", ".join(entry.stages), ", ".join(entry.presets), entry.summary) for entry in TRAININGS]
    value = [{"id": e.id, "stages": list(e.stages), "presets": list(e.presets), "summary": e.summary, "paper": e.paper} for e in TRAININGS]
    emit(value, as_json, lambda: listing(("training", "stages", "presets", "summary"), rows, empty="none"))


def options(name: str, as_json: bool) -> None:
    """List a training's options, nested ones with dots."""
    entry = TRAININGS.get(name)
    found = list(nested_options(entry.config))
    rows = [(one["name"], one["type"], json.dumps(one["default"]), one["description"]) for one in found]
    emit(found, as_json, lambda: _options(rows))


def _options(rows: Sequence[Sequence[str]]) -> None:
    listing(("option", "type", "default", ""), rows, empty="it has no options", below=PROSE)


def nested_options(config: type[BaseModel], prefix: str = "") -> list[dict[str, Any]]:
    """Options of a config class and of the config classes in it."""
    found: list[dict[str, Any]] = []
    described = {one["name"]: one for one in option_rows(config)}
    for name, field in config.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            found += nested_options(inner, f"{prefix}{name}.")
        else:
            default = None if field.is_required() else field.get_default(call_default_factory=True)
            found.append({**described[name], "name": prefix + name, "default": _json(default)})
    return found


def _json(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))


def train(request: Request, folder: Path | None, as_json: bool, quiet: bool) -> None:
    """Train, and enter each stage's checkpoint into the store."""
    entry = TRAININGS.get(request.name or "")
    if request.stage is not None and request.stage not in entry.stages:
        raise unknown_name(f"stage of {entry.id}", request.stage, entry.stages, where="--stage")
    require_extra(entry.extra, f"training {entry.id}")
    require_device(request.device)
    config = configured(entry, request)
    planned = config.stages_of(entry.stages)
    if request.stage is not None and request.stage not in planned:
        raise UserError(
            f"with these options {entry.id} trains {', '.join(planned)}, and not {request.stage}",
            where="--stage",
            try_this=f"a stage of these, or options that train it, as in --set 'stages=[{request.stage}]'",
        )
    config.preflight()
    store = Store(store_folder(folder))
    config.reach(store.cache)
    job = Job(entry, config, store, request.output, request.device)
    # Of several processes (`accelerate launch`, `torchrun`) the first alone speaks and reports stages.
    first = os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"
    with TrainingProgress(quiet=quiet or as_json or not first) as progress:
        try:
            trained = job.run(progress, until=request.stage)
        except KeyboardInterrupt:
            raise Interrupted(f"the same command goes on where this was: {job.work}") from None
    if not first:
        return
    lines = [_line(stage, checkpoint) for stage, checkpoint in trained]
    last = trained[-1][1] if trained else None
    value = {"training": entry.id, "work": str(job.work), "stages": [one.to_json() for _, one in trained]}

    def show() -> None:
        listing(("stage", "checkpoint", "", "figures"), lines, empty="nothing was trained")
        if last is not None:
            out.print(Text(f"the last one: {last.path}"))

    emit(value, as_json, show)


def configured(entry: TrainingEntry, request: Request) -> TrainingConfig:
    """The options that a request means: preset, below a file, below what the command line says.

    Raises:
        UserError: An option is unknown or of the wrong type; the message names file and line, or the flag.
    """
    source = None
    given: dict[str, Any] = {}
    if request.config is not None:
        try:
            text = request.config.read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"this file cannot be read: {error}", where=str(request.config)) from None
        source = yaml_source.read(text, str(request.config))
        if not isinstance(source.value, Mapping):
            raise UserError("a file of options is a mapping of keys", where=f"{request.config}:1")
        given = dict(source.value)
    for key, value in (("preset", request.preset), ("base", request.base)):
        if value is not None:
            given[key] = value
    for key, names in (("data", request.data), ("graph", request.graph)):
        if names is not None:
            given[key] = [one.strip() for one in names.split(",") if one.strip()]
    for text in request.options:
        _set(given, text)
    try:
        return entry.validate(given)
    except ValidationError as error:
        if source is not None:
            raise yaml_source.explain(error, entry.config, source) from None
        raise _explained(error, entry) from None


def _set(given: dict[str, Any], text: str) -> None:
    """Lay one `key.key=value` into nested options."""
    path, mark, value = text.partition("=")
    if not mark or not path:
        raise UserError(f"{echoed(text)} sets nothing", where="--set", try_this="--set key=value")
    *parents, last = path.strip().split(".")
    inner = given
    for parent in parents:
        inner[parent] = dict(inner[parent]) if isinstance(inner.get(parent), Mapping) else {}
        inner = inner[parent]
    try:
        inner[last] = yaml.safe_load(value) if value else ""
    except yaml.YAMLError:
        inner[last] = value


_EXAMPLES = {
    "data": "--data REF, such as worlds/long:train",
    "graph": "--graph REF, such as webqsp:train",
    "base": "--base FOLDER, or a model's id on the hub",
}
"""How options that are flags of their own are given."""


def _explained(error: ValidationError, entry: TrainingEntry) -> UserError:
    first = first_error(error)
    option = ".".join(map(str, first["loc"])) or entry.id
    known = [one["name"] for one in nested_options(entry.config)]
    if first["type"] == "extra_forbidden":
        return unknown_name(f"option of {entry.id}", without_secrets(option), known, where="--set, --data, --graph or --base")
    if first["type"] == "missing":
        flag = _EXAMPLES.get(option, f"--set {option}=…")
        also = f"; `ragmeter train {entry.id} --options` lists all"
        return UserError(f"training {entry.id} needs {option}", where=flag.split()[0], try_this=flag + also)
    return UserError(f"option {option} of {entry.id}: {without_secrets(in_words(first))}", where="--set, --data, --graph or --base")


def _line(stage: TrainedStage, checkpoint: Checkpoint) -> tuple[str, ...]:
    figures = ", ".join(f"{name} {value:.4g}" for name, value in stage.figures.items())
    return stage.stage, checkpoint.sha256[:12], "trained" if stage.fresh else "was there", figures


# -- explain -------------------------------------------------------------------------------------------------------


def explain(
    name: str,
    wanted: str,
    reference: str,
    options: Sequence[str],
    picture: Path | None,
    device: str | None,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Show what a method does with one question."""
    entry = EXPLAINERS.get(name)
    require_device(device)
    given: dict[str, Any] = {}
    for text in options:
        _set(given, text)
    try:
        config = entry.config.model_validate(given)
    except ValidationError as error:
        raise refusal(error, name, entry.config) from None
    config.preflight()
    benchmark = datasets.load(reference)
    store = Store(store_folder(folder))
    services = Services(artefacts=store.artefacts, device=device, cache=store.cache)
    with err.status(f"{name} explains", spinner="dots"):
        found = entry.explain(_question(benchmark.questions, wanted, reference), benchmark.corpus, config, services)
    if picture is not None:
        _draw(found, picture)
    emit(asdict(found), as_json, lambda: _show(found, picture))


def _question(questions: Sequence[Question], wanted: str, reference: str) -> Question:
    flat = " ".join(wanted.split()).casefold()
    found = [one for one in questions if one.id == wanted]
    found = found or [one for one in questions if " ".join(one.text.split()).casefold().startswith(flat)]
    if not found:
        raise unknown_name("question", wanted, [one.id for one in questions], where=reference)
    if len(found) > 1:
        raise UserError(
            f"{len(found)} questions of {reference} begin so",
            where=wanted,
            try_this="name its id: " + ", ".join(one.id for one in found[:3]),
        )
    return found[0]


def _draw(found: Explanation, picture: Path) -> None:
    if found.picture is None:
        raise UserError("there is nothing to draw for this question", where="--picture", try_this="leave it out")
    try:
        picture.write_text(found.picture, "utf-8")
    except OSError as error:
        raise unwritable(error, picture, what="the picture") from None


def _show(found: Explanation, picture: Path | None) -> None:
    out.print(Text(found.summary))
    for table in found.tables:
        out.print()
        out.print(Text(table.title, style="bold"))
        listing(table.columns, table.rows, empty="nothing")
        if table.note:
            out.print(Text(table.note, style="dim"))
    if picture is not None:
        out.print()
        out.print(Text(f"picture: {picture}"))
