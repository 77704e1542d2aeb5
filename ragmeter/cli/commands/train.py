"""`train`, `explain`, `compress`, `synthesise`: checkpoints from data, and what a method did with a question."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args, overload

import yaml
from pydantic import BaseModel, ValidationError
from rich.text import Text

from benchmarks import registry
from benchmarks import registry as datasets
from benchmarks.core.errors import (
    UserError,
    counted,
    first_error,
    in_words,
    make_folder,
    require_writable,
    told_of,
    unknown_name,
    unwritable,
)
from benchmarks.core.random import Draws
from benchmarks.corpus import CARD as CORPUS_CARD
from benchmarks.corpus import Corpus
from benchmarks.corpus_build import open_corpus
from benchmarks.io import hub
from benchmarks.schema import Question
from benchmarks.worlds.dataset import WorldsConfig
from methods.api import Services
from methods.clara import explain as picture
from methods.clara.config import MIXES, Mix, ScpDataConfig, Type
from methods.clara.methods import DocumentOptions, Documents, Loaded, loaded
from methods.clara.rows import ScpRow, write_rows
from methods.clara.store import Written
from methods.clara.synthesis import Document, StateFile, Statistics, Synthesis, SynthesisConfig, of_rows, of_synthesis, outlook
from methods.clara.synthetic import world_rows
from methods.models.chat import ChatModel
from methods.models.reply_cache import shared
from methods.registry import EXPLAINERS, Explanation, require_extra
from methods.training import TRAININGS, TrainedStage, TrainingConfig, TrainingEntry
from methods.training.stages import write_json
from ragmeter import yaml_source
from ragmeter.cli.commands.list import option_rows, options_given
from ragmeter.console import PROSE, emit, err, listing, out
from ragmeter.runner.loop import Interrupted
from ragmeter.runner.progress import TrainingProgress
from ragmeter.runner.rewriting import refusal, settings
from ragmeter.runner.tasks import require_device
from ragmeter.runner.training import Job
from results import store_folder
from results.checkpoints import Checkpoint
from results.redaction import echoed, without_secrets
from results.store import Store

# -- `compress`: a corpus as memory on disk, before anything is asked --


@dataclass(frozen=True)
class CompressRequest:
    """What is to be compressed, by what, and where it goes."""

    source: str
    model: str
    output: Path | None
    dtype: str | None
    memory_dtype: str | None
    device: str | None
    config: str | None = None
    path: Path | None = None

    def options(self) -> DocumentOptions:
        """The checkpoint and types, checked.

        Raises:
            UserError: One is not right.
        """
        try:
            found = DocumentOptions.model_validate(
                {"model": self.model, "dtype": self.dtype, "memory_dtype": self.memory_dtype, "offline": True}
            )
        except ValidationError as error:
            place, what = told_of(error)
            raise UserError(what, where=f"--{place.replace('_', '-')}" if place else None) from None
        found.preflight()
        return found

    def corpus(self) -> Corpus:
        """The documents."""
        folder = Path(self.source)
        if (folder / CORPUS_CARD).is_file():
            return Corpus.open(folder)
        return datasets.load(self.source, options_given(self.config, self.path)).corpus


@dataclass(frozen=True)
class Drawing:
    """A picture that is wanted."""

    path: Path
    projection: str
    documents: int
    seed: int

    def check(self) -> picture.Projection:
        """Its projection.

        Raises:
            UserError: There is none such, or the file cannot be written.
        """
        if self.projection not in get_args(picture.Projection):
            raise unknown_name("projection", self.projection, get_args(picture.Projection), where="--projection")
        if not self.path.parent.is_dir():
            raise UserError("there is no such folder", where=str(self.path.parent), try_this="another --picture")
        return "pca" if self.projection == "pca" else "tsne"


def compress(request: CompressRequest, drawing: Drawing | None, folder: Path | None, as_json: bool, quiet: bool) -> None:
    """Compress a corpus, or go on with it, and say what that came to."""
    if quiet or as_json:
        hub.be_quiet()
    if drawing is not None:
        drawing.check()
    require_device(request.device)
    options = request.options()
    corpus = request.corpus()
    if request.output is not None:
        make_folder(request.output)
    services = Services(artefacts=Store(store_folder(folder)).artefacts, device=request.device)
    model = loaded(options, request.device)
    documents = Documents(model, options, services)
    target = request.output or documents.folder(corpus)
    assert target is not None
    last: list[Written] = []
    with TrainingProgress(quiet=quiet or as_json) as progress:
        progress.begin("compressing documents", len(corpus))
        shown = 0

        def told(written: Written) -> None:
            nonlocal shown
            progress.advance(written.documents - shown)
            progress.log({"tokens/s": written.tokens_per_second})
            shown = written.documents
            last[:] = [written]

        try:
            found = documents.store(corpus, target, told)
        except KeyboardInterrupt:
            raise Interrupted(f"the same command goes on where this was: {target}") from None
    distance = None if drawing is None else _draw(drawing, model, corpus)
    written = last[0] if last else Written(len(found), len(found), 0, 0, 0.0)
    identity = found.identity
    value = {
        "folder": str(target),
        **asdict(identity),
        "fingerprint": identity.fingerprint,
        "bytes_per_document": identity.bytes_per_document,
        "bytes": found.bytes,
        "compressed_now": written.fresh,
        "tokens": written.tokens,
        "seconds": written.seconds,
        "tokens_per_second": written.tokens_per_second,
        "picture": None if drawing is None else str(drawing.path),
        "mean_squared_distance": distance,
    }

    def show() -> None:
        state = f"{written.fresh:,} compressed now" if written.fresh else "all were there already"
        out.print(Text(f"{counted(len(found), 'document')} in {target}: {state}"), soft_wrap=True)
        rows = [
            ("memory tokens", f"{identity.memory_tokens} of {identity.hidden_size} numbers, {identity.dtype}"),
            ("size", f"{identity.bytes_per_document / 1024:,.1f} KiB a document, {found.bytes / 2**20:,.1f} MiB in all"),
        ]
        if written.fresh:
            rows.append(("speed", f"{written.tokens_per_second:,.0f} tokens/s, {written.seconds:,.1f} s"))
        if drawing is not None:
            rows.append(("picture", f"{drawing.path}, mean squared distance {distance:.4g}"))
        listing(("", ""), rows, empty="")

    emit(value, as_json, show)


def _draw(drawing: Drawing, model: Loaded, corpus: Corpus) -> float:
    """Draw states of some documents. Returns the mean squared distance of both means."""
    places = sorted(Draws("clara picture", drawing.seed).sample(range(len(corpus)), drawing.documents))
    found = picture.states(model.clara, [corpus[place].full_text for place in places])
    try:
        drawing.path.write_text(picture.svg(found, drawing.check(), drawing.seed), "utf-8")
    except OSError as error:
        raise unwritable(error, drawing.path, what="the picture") from None
    return found.distance


# -- `synthesise clara`: rows of pretraining by a chat model, or by the truth of worlds --


AGAIN = "the same command goes on"
BY = ("llm", "worlds")


@dataclass(frozen=True)
class SynthesisRequest:
    """What the command line says."""

    data: str
    output: Path
    by: str
    mix: str
    documents: int | None
    seed: int
    options: tuple[str, ...]
    config: str | None
    path: Path | None
    dry_run: bool

    @property
    def types(self) -> tuple[Type, ...]:
        """The types of rows.

        Raises:
            UserError: There is no such mix, or it is empty.
        """
        if self.mix not in MIXES or self.mix == "none":
            raise unknown_name("mix", self.mix, [one for one in MIXES if one != "none"], where="--mix")
        return MIXES[cast(Mix, self.mix)]


def clara(request: SynthesisRequest, folder: Path | None, as_json: bool, quiet: bool) -> int:
    """Write rows; returns 1 where there is none, or something could not be finished."""
    if request.output.is_dir():
        raise UserError("this is a folder", where=str(request.output), try_this="name a file")
    types = request.types
    if not request.dry_run:
        require_writable(request.output)
    if as_json or quiet:
        hub.be_quiet()
    if request.by == "worlds":
        return _by_worlds(request, as_json)
    if request.by != "llm":
        raise unknown_name("writer", request.by, BY, where="--by")
    config = _config(request.options)
    store = Store(store_folder(folder))
    with StateFile(request.output.with_suffix(".states.jsonl")) as states:
        synthesis = Synthesis(config, states, cache=store.cache)
        documents = _documents(request)
        wanted = outlook(synthesis, documents, types)
        if request.dry_run:
            emit({"file": str(request.output), "outlook": asdict(wanted)}, as_json, lambda: out.print(Text(str(wanted))))
            return 0
        if not (quiet or as_json):
            err.print(Text(str(wanted)))
        if wanted.done < wanted.loops and not (store.cache.exists() and shared(store.cache).holds(config.model)):
            cast(ChatModel, synthesis.model).preflight()
        _run(synthesis, documents, types, quiet or as_json)
        _write(request.output, synthesis.rows(documents, types))
        return _report(request, of_synthesis(synthesis, documents, types), synthesis, as_json)


def _run(synthesis: Synthesis, documents: Sequence[Document], types: tuple[Type, ...], quiet: bool) -> None:
    with TrainingProgress(quiet=quiet) as progress:
        try:
            synthesis.run(documents, types, progress)
        except KeyboardInterrupt:
            raise Interrupted(AGAIN) from None


def _write(path: Path, rows: Any) -> None:
    try:
        write_rows(path, rows)
    except OSError as error:
        raise unwritable(error, path, try_this=AGAIN) from error


def _by_worlds(request: SynthesisRequest, as_json: bool) -> int:
    reference, entry = registry.resolve(request.data, where="DATA")
    config = registry.options_of(entry, options_given(request.config, request.path))
    if not isinstance(config, WorldsConfig):
        raise UserError(f"{reference} is no world", where="--by worlds", try_this="worlds/…:train, or --by llm")
    if request.options:
        raise UserError("options of no model", where="--set", try_this="--by llm")
    _refuse_test(reference.split or "", request.data)
    data = ScpDataConfig(mix=cast(Mix, request.mix), documents=request.documents, seed=request.seed)
    parts = [replace(reference, split=split) for split in (reference.split or "").split("+")]
    rows: list[ScpRow] = [row for part in parts for row in world_rows(part, config, data)]
    if request.dry_run:
        value = {"file": str(request.output), "rows": len(rows)}
        emit(value, as_json, lambda: out.print(Text(f"{len(rows):,} rows, and no call")))
        return 0
    _write(request.output, rows)
    return _report(request, of_rows(rows), None, as_json)


def _config(options: Sequence[str]) -> SynthesisConfig:
    try:
        return SynthesisConfig.model_validate(settings(options))
    except ValidationError as error:
        raise refusal(error, "the model", SynthesisConfig) from None


# -- documents --


class _Passages(Sequence[Document]):
    """Passages of a corpus as documents, read when they are needed."""

    def __init__(self, corpus: Corpus, rows: Sequence[int]) -> None:
        self._corpus, self._rows = corpus, rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> Document: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Document]: ...
    def __getitem__(self, place: int | slice) -> Document | Sequence[Document]:
        if isinstance(place, slice):
            return _Passages(self._corpus, self._rows[place])
        passage = self._corpus[self._rows[place]]
        return Document(passage.id, passage.full_text)


def _documents(request: SynthesisRequest) -> Sequence[Document]:
    """The documents asked for, in the corpus' order.

    Raises:
        UserError: There are none, or they are a test's.
    """
    if request.data.startswith(("/", ".", "~")):
        corpus = open_corpus(Path(request.data).expanduser())
    else:
        reference, _ = registry.resolve(request.data, where="DATA")
        _refuse_test(reference.split or "", request.data)
        corpus = registry.load(reference, options_given(request.config, request.path)).corpus
    if not len(corpus):
        raise UserError("there is no document", where=request.data)
    rows: Sequence[int] = range(len(corpus))
    if request.documents is not None and request.documents < len(rows):
        rows = sorted(Draws("clara documents", request.seed).sample(rows, request.documents))
    return _Passages(corpus, rows)


def _refuse_test(split: str, data: str) -> None:
    if "test" in split.split("+"):
        raise UserError(f"{data} is a test split, which a training must not see", where="DATA", try_this="train and validation splits")


# -- report --


def _report(request: SynthesisRequest, found: Statistics, synthesis: Synthesis | None, as_json: bool) -> int:
    put_aside = {} if synthesis is None else dict(synthesis.put_aside)
    value = {
        "file": str(request.output),
        "data": request.data,
        "by": request.by,
        "mix": request.mix,
        "types": {kind: one.to_json() for kind, one in found.items()},
    }
    write_json(request.output.with_suffix(".statistics.json"), value)
    emit(value | {"put_aside": put_aside}, as_json, lambda: _show(request.output, found, put_aside))
    unfinished = any(one.unfinished for one in found.values())
    return 1 if unfinished or not any(one.documents for one in found.values()) else 0


def _show(path: Path, found: Statistics, put_aside: dict[str, int]) -> None:
    out.print(Text(str(path)), soft_wrap=True)

    def mean(value: float | None) -> str:
        return "–" if value is None else f"{value:.2f}"

    figures = {
        "documents": [f"{one.documents:,}" for one in found.values()],
        **{
            name.replace("_", " "): [mean(one.to_json()[f"{name}_per_document"]) for one in found.values()]
            for name in ("pairs", "input_words", "output_words")
        },
        "uncovered": [f"{one.uncovered:,}" for one in found.values()],
        "without pairs": [f"{one.covered_without_pairs:,}" for one in found.values()],
        "unfinished": [f"{one.unfinished:,}" for one in found.values()],
    }
    lines = [(name, *values) for name, values in figures.items()]
    listing(("", *found), lines if found else [], empty="nothing was made")
    scripted = {name for one in found.values() for name in one.by}
    if scripted:
        out.print(Text(f"by {', '.join(sorted(scripted))}"))
    for reason, number in put_aside.items():
        err.print(Text(f"{number:,} put aside: {reason}; {AGAIN}"))


# -- `train` and `explain`: checkpoints from data, and what a method did with a question --


@dataclass(frozen=True)
class TrainRequest:
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


def train(request: TrainRequest, folder: Path | None, as_json: bool, quiet: bool) -> None:
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


def configured(entry: TrainingEntry, request: TrainRequest) -> TrainingConfig:
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
        _draw_explanation(found, picture)
    emit(asdict(found), as_json, lambda: _show_stages(found, picture))


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


def _draw_explanation(found: Explanation, picture: Path) -> None:
    if found.picture is None:
        raise UserError("there is nothing to draw for this question", where="--picture", try_this="leave it out")
    try:
        picture.write_text(found.picture, "utf-8")
    except OSError as error:
        raise unwritable(error, picture, what="the picture") from None


def _show_stages(found: Explanation, picture: Path | None) -> None:
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
