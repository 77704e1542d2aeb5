"""`ragmeter train`: an approach is trained stage after stage; and the checkpoints that training made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from benchmarks.core.errors import UserError, first_error, in_words, unknown_name
from ragmeter.cli import completion
from ragmeter.cli.errors import WRONG
from ragmeter.cli.options import App, Common, ConfigOption, DeviceOption, ProcessesOption, SetOption, argument, option, show_options
from ragmeter.show.console import err, listing, out

if TYPE_CHECKING:
    from methods.training import Prepared, TrainingConfig, TrainingEntry
    from results.store.checkpoints import Checkpoint

app = App(default="run", help="Train an approach, stage after stage; list and check checkpoints.")
checkpoints_app = App(default="list", help="Trained checkpoints: list them, add a folder, shrink one, check them.")
app.add_typer(checkpoints_app, name="checkpoints")


@app.command(plugin=True)
def run(
    common: Common,
    name: Annotated[str | None, argument("Training to run (default: list trainings)", completion.trainings)] = None,
    data: Annotated[list[str] | None, option("Training data, e.g. worlds/long:train; repeatable.", completes=completion.references)] = None,
    graph: Annotated[
        list[str] | None, option("Graph to pretrain on, e.g. webqsp:train+validation; repeatable.", completes=completion.references)
    ] = None,
    base: Annotated[str | None, option("Base model: a folder or hub id.")] = None,
    preset: Annotated[str | None, option("Preset: paper, released …", completes=completion.presets)] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    stage: Annotated[str | None, option("Stop after this stage.", completes=completion.stages)] = None,
    output: Annotated[Path | None, option("Folder for the checkpoints (default: checkpoints/ in the store)", "--output", "-o")] = None,
    device: DeviceOption = None,
    processes: ProcessesOption = None,
    prepare: Annotated[bool, option("Prepare data, replies and rows in this process without training.", "--prepare")] = False,
    dry_run: Annotated[bool, option("Estimate the cost without training; exit with 2 if a prerequisite is missing.", "--dry-run")] = False,
) -> int:
    """Train an approach and add each stage's checkpoint to the store; resumes if interrupted."""
    from methods.registry import require_extra
    from methods.training import TRAININGS
    from ragmeter.cli.config_options import given_options
    from ragmeter.plan.timeout import group_timeout
    from ragmeter.runner.loop import stoppable
    from ragmeter.runner.progress import TrainingProgress
    from ragmeter.runner.tasks import require_device
    from ragmeter.runner.training_jobs import ALONE, Processes, TrainingJob
    from ragmeter.trainings import TrainingPlan

    if name is None:
        list_trainings(common)
        return 0
    entry = TRAININGS.get(name)
    if stage is not None and stage not in entry.stages:
        raise unknown_name(f"stage of {entry.id}", stage, entry.stages, where="--stage")
    if not dry_run:
        require_extra(entry.extra, f"training {entry.id}")
        require_device(device)
    for file in (item for item in data or () if Path(item).is_file()):
        raise UserError(
            f"this is a file, and not a data reference: {file}",
            code="data-reference-is-file",
            where="--data",
            try_this=f"--data files:train --set data_options.files.path={file}",
        )
    for file in (item for item in graph or () if Path(item).is_file()):
        raise UserError(
            f"this is a file, and not a data reference: {file}",
            code="data-reference-is-file",
            where="--graph",
            try_this=f"--graph webqsp:train --set graph_options.webqsp.path={file}; a line is a head, a relation and "
            "a tail separated by tabs, or a JSON object with id, question, answer, q_entity and graph, a list of [head, relation, tail]",
        )
    flags = {"preset": preset, "base": base, "data": data, "graph": graph}
    supplied = given_options(config, settings) | {key: value for key, value in flags.items() if value}
    training = _configured(entry, supplied, config)
    planned = training.stages_of(entry.stages)
    if stage is not None and stage not in planned:
        raise UserError(
            f"with these options {entry.id} trains {', '.join(planned)}, and not {stage}",
            code="training-stages-mismatch",
            where="--stage",
            try_this=f"a stage of these, or options that train it, as in --set 'stages=[{stage}]'",
        )
    if dry_run:
        from ragmeter.plan.plan import plan_training
        from ragmeter.plan.show import plan_json, show_plan

        plan = plan_training(TrainingPlan(entry.id, entry, training, supplied), common.store)
        common.emit(plan_json(plan), lambda: show_plan(plan, str(common.store.folder), verbose=common.verbose))
        return WRONG if plan.missing else 0
    entry.preflight(training)
    together = Processes.chosen(processes, device, group_timeout) if not prepare else ALONE
    training.reach(common.store.cache)
    job = TrainingJob(entry, training, common.store, output, device)
    # Of several processes (`accelerate launch`, `torchrun`) only the first prints and reports stages.
    first = os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"
    with TrainingProgress(quiet=not (common.talk and first)) as progress, stoppable(f"the same command continues: {job.work}"):
        if prepare:
            return _show_prepared(job.prepare(progress), common)
        trained = job.run(progress, until=stage) if together == ALONE else job.run_in_group(together, supplied, progress, stage)
    if not first:
        return 0
    lines = [
        (
            item.stage,
            checkpoint.sha256[:12],
            "trained" if item.fresh else "was there",
            ", ".join(f"{figure} {value:.4g}" for figure, value in item.figures.items()),
        )
        for item, checkpoint in trained
    ]

    def show() -> None:
        listing(("stage", "checkpoint", "", "figures"), lines, empty="nothing was trained")
        if trained:
            out.print(Text(f"the last one: {trained[-1][1].path}"))

    common.emit({"training": entry.id, "work": str(job.work), "stages": [item.to_json() for _, item in trained]}, show)
    return 0


def _show_prepared(prepared: Prepared | None, common: Common) -> int:
    """Show the results of a preparation."""
    value = None if prepared is None else {"stage": prepared.stage, "figures": dict(prepared.figures)}

    def show() -> None:
        if prepared is None:
            out.print("all stages are trained")
            return
        figures = ", ".join(f"{name} {number:.4g}" for name, number in prepared.figures.items())
        out.print(Text(f"{prepared.stage} is prepared: {figures}"))

    common.emit(value, show)
    return 0


def list_trainings(
    common: Common, name: Annotated[str | None, argument("Training whose options to show.", completion.trainings)] = None
) -> None:
    """List what can be trained, or the options of one training."""
    from methods.training import TRAININGS
    from ragmeter.cli.config_options import option_rows

    if name is not None:
        rows = option_rows(TRAININGS.get(name).config, nested=True)
        common.emit(rows, lambda: show_options(rows))
        return
    lines = [(entry.id, ", ".join(entry.stages), ", ".join(entry.presets), entry.summary) for entry in TRAININGS]
    value = [{"id": e.id, "stages": list(e.stages), "presets": list(e.presets), "summary": e.summary, "paper": e.paper} for e in TRAININGS]
    common.emit(value, lambda: listing(("training", "stages", "presets", "summary"), lines, empty="none", whole=True))


@app.command("record", offline=True, plugin=True)
def record_questions(
    common: Common,
    training: Annotated[
        list[str], argument("Training files, folders of them, or data references.", completion.references, metavar="FILE|REF...")
    ],
    into: Annotated[Path, option("Folder of the weights that were trained on them.")],
) -> None:
    """Record hashes of the data that weights were trained on; boards and gates use them."""
    from benchmarks import training_texts
    from benchmarks.core.fingerprint import CHECKPOINT_CARD
    from benchmarks.read_questions import Recorder, read_record, recording, write_record
    from benchmarks.registry import load
    from results.store import checkpoints

    if not into.is_dir():
        raise UserError("there is no such folder", code="missing-folder", where=f"--into {into}", try_this="the folder of the weights")
    read = Recorder(read_record(into))
    for item in training:
        with common.status(f"reading {item}"):
            if Path(item).exists():
                for file in training_texts.training_files(Path(item)):
                    read.add(text.text for text in training_texts.texts(file))
            else:
                with recording(read):
                    load(item)
    hashes = read.read()
    if hashes is None:
        raise UserError(
            "these training data contain no text", code="training-data-no-text", where=", ".join(training), try_this="other files"
        )
    folder = into.absolute()
    write_record(folder, hashes)
    if not (folder / CHECKPOINT_CARD).is_file():
        checkpoints.describe(folder, method=folder.name, stage="recorded", data=())
    made = checkpoints.register(common.store, folder)
    counts = {"texts": len(hashes.questions), "grams": len(hashes.grams), "sampled": hashes.rate}
    kept = f" ({hashes.rate} kept)" if hashes.rate else ""
    text = f"{made.name}, sha256 {made.sha256[:12]}: hashes of {counts['texts']:,} texts and {counts['grams']:,} 13-grams{kept}"
    common.emit(made.to_json() | counts, lambda: out.print(Text(text)))


_EXAMPLES = {
    "data": "--data REF, such as worlds/long:train",
    "graph": "--graph REF, such as webqsp:train",
    "base": "--base FOLDER, or a model's id on the hub",
}
"""Examples for options with flags of their own."""


def _configured(entry: TrainingEntry, settings: dict[str, Any], config: Path | None) -> TrainingConfig:
    """Return the validated options of a training."""
    from pydantic import ValidationError

    from ragmeter import yaml_source
    from ragmeter.cli.config_options import option_rows
    from results.store.redaction import without_secrets

    try:
        return entry.validate(settings)
    except ValidationError as error:
        if config is not None:
            raise yaml_source.explain(error, entry.config, yaml_source.read(config.read_text("utf-8-sig"), str(config))) from None
        first = first_error(error)
    option = without_secrets(".".join(map(str, first["loc"])) or entry.id)
    where = "--set, --data, --graph or --base"
    if first["type"] == "extra_forbidden":
        raise unknown_name(f"option of {entry.id}", option, [row["name"] for row in option_rows(entry.config, nested=True)], where=where)
    if first["type"] == "missing":
        flag = _EXAMPLES.get(option, f"--set {option}=…")
        also = f"; `ragmeter list trainings {entry.id}` lists all"
        raise UserError(
            f"training {entry.id} needs {option}", code="training-prerequisite-missing", where=flag.split()[0], try_this=flag + also
        )
    raise UserError(f"option {option} of {entry.id}: {without_secrets(in_words(first))}", code="bad-option", where=where)


@checkpoints_app.command("list")
def list_checkpoints(common: Common) -> None:
    """List the checkpoints of the store, and folders in it that could be added."""
    from results.store import checkpoints
    from results.store.checkpoints import CARD
    from results.store.tags import all_tags

    store = common.store
    known = checkpoints.checkpoints(store)
    tags: dict[str, list[str]] = {}
    for tag in all_tags(store):
        if tag.checkpoint:
            tags.setdefault(tag.checkpoint, []).append(tag.name)
    registered = {item.path for item in known}
    folders = (card.parent for card in sorted((store.folder / "checkpoints").rglob(CARD)))
    waiting = [folder for folder in folders if folder not in registered]

    def show() -> None:
        rows = [
            (
                item.name,
                item.method,
                item.stage,
                item.sha256[:12],
                ", ".join(tags.get(item.sha256, ())),
                f"{item.added_at:%Y-%m-%d %H:%M}" if item.added_at else "",
                str(item.path) if item.path.is_dir() else f"{item.path} (gone)",
            )
            for item in known
        ]
        empty = f"{store.folder} holds no checkpoint: `ragmeter train` makes one, `ragmeter train checkpoints add FOLDER` adds one"
        listing(("checkpoint", "method", "stage", "sha256", "tags", "added (UTC)", "folder"), rows, empty=empty)
        for path in waiting:
            err.print(Text(f"not in the list: {path} (ragmeter train checkpoints add {path})"))

    value = [item.to_json() | {"tags": tags.get(item.sha256, []), "registered": True} for item in known]
    value += [checkpoints.read(path).to_json() | {"tags": [], "registered": False} for path in waiting]
    common.emit(value, show)


@checkpoints_app.command("add")
def add_checkpoint(folder: Annotated[Path, argument("Folder with a ragmeter.json.")], common: Common) -> None:
    """Check a checkpoint folder and add it to the store."""
    from results.store import checkpoints

    store = common.store
    added = checkpoints.register(store, folder)
    known = {checkpoint.sha256 for checkpoint in checkpoints.checkpoints(store)}
    unknown = [parent for parent in added.parents if parent not in known]

    def show() -> None:
        out.print(Text(f"{added.name}: {added.method} {added.stage}, sha256 {added.sha256[:12]}, {added.path}"))
        if unknown and not common.quiet:
            err.print(Text("parents that are not in this store: " + ", ".join(sha256[:12] for sha256 in unknown)))

    common.emit(added.to_json() | {"unknown_parents": unknown}, show)


@checkpoints_app.command("shrink")
def shrink_checkpoint(
    folder: Annotated[Path, argument("Folder of a trained encoder, with a ragmeter.json.")],
    common: Common,
    output: Annotated[Path, option("Folder to write.", "--output", "-o")],
    base: Annotated[str | None, option("Base model (default: the one in the card).")] = None,
    rank: Annotated[int, option("Rank of the difference that is stored per matrix.", min=1)] = 4,
) -> None:
    """Write a trained encoder as the difference from its base: a hundredth of the size, used like the full model."""
    from benchmarks.read_questions import read_record, write_record
    from methods.models.delta import shrink
    from results.store import checkpoints
    from results.store.checkpoints import CARD

    known = checkpoints.verify(folder)
    began = base or str(known.config.get("base") or "")
    if not began:
        raise UserError(
            "the card does not name the base model", code="card-without-origin", where=str(known.path / CARD), try_this="--base NAME"
        )
    shrunk = shrink(known.path, output, began, rank)
    if (hashes := read_record(known.path)) is not None:
        write_record(output, hashes)
    text = f"{output}: {shrunk.size:,} bytes over {began}, {shrunk.kept:.3f} of the difference's norm kept"
    common.emit({"path": str(output), "base": began, "bytes": shrunk.size, "kept": shrunk.kept}, lambda: out.print(Text(text)))


@checkpoints_app.command("convert")
def convert_checkpoint(
    source: Annotated[str, argument("Published checkpoint of a compressor: a hub id or folder.")],
    name: Annotated[str, option("Name of the resulting folder in the store.", "--as")],
    common: Common,
    base: Annotated[str | None, option("Base model (default: the one that the checkpoint names).")] = None,
    revision: Annotated[str | None, option("Revision of a hub id.")] = None,
    subfolder: Annotated[str | None, option("Subfolder of the checkpoint.")] = None,
    settings: SetOption = None,
    output: Annotated[
        Path | None, option("Folder for the checkpoint (default: checkpoints/converted/NAME in the store)", "--output", "-o")
    ] = None,
    device: DeviceOption = None,
) -> None:
    """Convert a published compressor checkpoint: AutoCompressor, xRAG, COCOM, PCC, PISCO, OSCAR, CLaRa."""
    from methods.registry import require_extra
    from methods.training.importing import convert
    from methods.training.released import released
    from ragmeter.cli.config_options import given_options
    from ragmeter.runner.tasks import require_device
    from results.store import checkpoints

    if not name.replace("-", "").replace("_", "").replace(".", "").isalnum() or name.startswith("."):
        raise UserError(f"{name!r} cannot name a folder", code="bad-folder-name", where="--as", try_this="letters, digits, hyphens")
    require_extra("models", "converting a checkpoint")
    require_device(device)
    folder = (output or common.store.folder / "checkpoints" / "converted" / name).absolute()
    if folder.exists():
        raise UserError("output folder already exists", code="folder-exists", where=str(folder), try_this="another name, or delete it")
    checkpoint = released(source, revision, subfolder)
    layout = checkpoint.layout
    with err.status("converting", spinner="dots"):
        convert(checkpoint, folder, base, given_options(None, settings), device)
    config = {"source": source, "revision": checkpoint.revision, "base": base}
    checkpoints.describe(folder, method=layout, stage="published", version=1, config=config, parents=(), data=())
    made = checkpoints.register(common.store, folder)
    text = f"{made.name}: {layout}, from {source}{f' at {checkpoint.revision}' if checkpoint.revision else ''}: {folder}"
    common.emit(made.to_json(), lambda: out.print(Text(text), soft_wrap=True))


@checkpoints_app.command("check")
def check_checkpoints(
    common: Common,
    checkpoint: Annotated[
        str | None, argument("Folder, tag, hash prefix or folder name (default: all in the store)", completion.checkpoints)
    ] = None,
) -> int:
    """Verify that checkpoint folders are unchanged since training."""
    from results.store import checkpoints, tags
    from results.store.checkpoints import CARD

    if checkpoint is not None:
        folder = Path(checkpoint)
        path = folder if (folder / CARD).is_file() else tags.find_checkpoint(common.store, checkpoint).path
        result = checkpoints.verify(path)
        common.emit([_state(result, None)], lambda: out.print(Text(f"{result.name}: as described, {result.path}")))
        return 0
    states = []
    for item in checkpoints.checkpoints(common.store):
        try:
            now = checkpoints.verify(item.path).sha256
            problem = None if now == item.sha256 else f"another checkpoint is there now: {now[:12]}"
        except UserError as error:
            problem = error.what
        states.append(_state(item, problem))
    rows = [(state["name"], state["sha256"][:12], state["problem"] or "as described", state["path"]) for state in states]
    empty = "the store holds no checkpoint: `ragmeter train` makes one"
    common.emit(states, lambda: listing(("checkpoint", "sha256", "", "folder"), rows, empty=empty))
    return int(any(state["problem"] for state in states))


def _state(item: Checkpoint, problem: str | None) -> dict[str, Any]:
    return {"name": item.name, "sha256": item.sha256, "path": str(item.path), "problem": problem}
