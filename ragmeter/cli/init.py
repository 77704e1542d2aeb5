"""`ragmeter init`: a first experiment for what a folder holds, an app or a model; a plug-in package; a schema for editors."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from benchmarks.core.errors import UserError, counted, unwritable
from benchmarks.core.files import whole_text
from ragmeter.cli.options import App, Common, SkipBadOption, argument, option
from ragmeter.show.console import err, out

if TYPE_CHECKING:
    from benchmarks.registry import Benchmark
    from methods.apps.guess import Trial
    from ragmeter.cli.init_experiment import Model, Plan
    from ragmeter.cli.init_look import Found

QUESTIONS = "questions.csv"
_SENT = ("evidence", "spans", "start", "end")
"""Roles of gold that names documents."""
_LOCAL = re.compile(r"https?://(localhost|127\.|0\.0\.0\.0|\[::1\]|host\.docker\.internal)")

app = App(help="Write an experiment for your documents, questions, app or model.")


@dataclass
class _Written:
    """Record of the command's work.

    Attributes:
        folder: Where it writes.
        force: Whether files are replaced.
        files: Files that were written.
        kept: Files that were there and stay as they are.
        notes: What people should know.
    """

    folder: Path
    force: bool
    files: list[Path] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def require_free(self, *names: str) -> None:
        """Check that files can be written.

        Raises:
            UserError: One of them is there, and may not be replaced.
        """
        for name in names:
            if (self.folder / name).exists() and not self.force:
                raise UserError(
                    "output file already exists",
                    code="output-exists",
                    where=str(self.folder / name),
                    try_this="--force replaces it; or name another folder",
                )

    def write(self, name: str, text: str, *, keep: bool = False) -> None:
        """Write a file; with `keep`, an existing one stays unless files are replaced."""
        path = self.folder / name
        if keep and path.exists() and not self.force:
            self.kept.append(path)
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            whole_text(path, text)
        except OSError as error:
            raise unwritable(error, path, what="the file") from None
        self.files.append(path)


@app.command(offline=True)
def init(
    common: Common,
    folder: Annotated[Path, argument("Folder of the documents, and for the written files.", metavar="FOLDER")] = Path(),
    questions: Annotated[
        Path | None, option("File of questions: CSV, TSV, JSON Lines, JSON or Parquet (default: search FOLDER).", "--questions")
    ] = None,
    url: Annotated[str | None, option("Address of your app; ragmeter sends it one question.", "--app", metavar="URL")] = None,
    model: Annotated[str | None, option("Chat model that answers from BM25's passages and judges faithfulness.", metavar="NAME")] = None,
    base_url: Annotated[str | None, option("Endpoint of the model (default: OpenAI).", "--base-url", metavar="URL")] = None,
    plugin: Annotated[str | None, option("Write an extension package with this name instead.", metavar="NAME")] = None,
    schema: Annotated[bool, option("Write only a JSON schema of experiments, for editors.", "--schema")] = False,
    skip_bad: SkipBadOption = False,
    force: Annotated[bool, option("Overwrite existing files.", "--force")] = False,
) -> int:
    """Write an experiment with .gitignore and a gate workflow, an extension package, or a schema for editors."""
    options = {"--questions": questions, "--app": url, "--model": model, "--base-url": base_url}
    alone = "--plugin" if plugin is not None else "--schema" if schema else None
    if alone and (more := next((name for name, value in {**options, "--schema": schema and alone != "--schema"}.items() if value), None)):
        raise UserError(f"{alone} writes no experiment", code="options-exclude-each-other", where=more, try_this=f"leave out {more}")
    if base_url is not None and model is None:
        raise UserError("an endpoint needs a model", code="model-missing", where="--base-url", try_this="add --model NAME")
    if folder.exists() and not folder.is_dir():
        raise UserError("this is a file", code="not-a-folder", where=str(folder), try_this="name the folder that holds it")
    written = _Written(folder, force)
    if plugin is not None:
        from ragmeter.cli.init_plugin import plugin_files

        files, steps = plugin_files(plugin)
        written.require_free(*files)
        for name, text in files.items():
            written.write(name, text)
        return _report(written, steps, {}, common)
    if schema:
        from ragmeter.cli.init_schema import SCHEMA, schema_text

        written.require_free(SCHEMA)
        written.write(SCHEMA, schema_text(folder))
        line = f"# yaml-language-server: $schema={SCHEMA}"
        written.notes.append(f"editors use it in experiments whose first line is {line}")
        return _report(written, [], {}, common)
    plan = _planned(written, questions, url, _model(model, base_url), skip_bad, common)
    return _experiment(written, plan, common)


def _model(name: str | None, base_url: str | None) -> Model | None:
    from ragmeter.cli.init_experiment import Model

    if name is None:
        return None
    keyless = base_url is not None and _LOCAL.match(base_url) and "OPENAI_API_KEY" not in os.environ
    return Model(name, base_url, None if keyless else "OPENAI_API_KEY")


def _planned(written: _Written, questions: Path | None, url: str | None, model: Model | None, skip_bad: bool, common: Common) -> Plan:
    """Inspect the folder, load its data and query the app; questions are written by rule if there are none."""
    from ragmeter.cli.init_experiment import FILE, Plan, slug
    from ragmeter.cli.init_look import look
    from ragmeter.cli.init_schema import SCHEMA

    written.require_free(FILE)
    seen = look(written.folder, questions)
    if seen.questions is None:
        _write_questions(written, seen, model, skip_bad, common)
        seen = replace(look(written.folder, written.folder / QUESTIONS), notes=seen.notes)
        by_rule = True
    else:
        by_rule = False
    written.notes += seen.notes
    data = _data(written, seen, skip_bad)
    with common.status("reading the data"):
        benchmark = _load(written, data)
    trial = None
    if url is not None:
        with common.status(f"asking {url}"):
            trial = _trial(url, benchmark)
    if seen.documents is None and not len(benchmark.corpus) and (trial is None or not trial.options):
        raise UserError(
            "found questions, but no documents and no app",
            code="nothing-to-begin-with",
            where=str(written.folder),
            try_this="put documents (.txt, .md, .html, .pdf, .docx) into a folder in there, or --app URL",
        )
    schema = SCHEMA if (written.folder / SCHEMA).exists() else None
    remarks = _remarks(seen, benchmark, by_rule, written)
    return Plan(slug(written.folder.resolve().name), data, benchmark, remarks, by_rule, url, trial, model, schema)


def _write_questions(written: _Written, seen: Found, model: Model | None, skip_bad: bool, common: Common) -> None:
    """Write questions by rule, as `ragmeter data questions` does without a model."""
    from benchmarks.datasets.files import FilesConfig, read_documents
    from methods.questions import sets

    if seen.documents is None:
        raise UserError(
            "found no documents and no questions",
            code="nothing-to-begin-with",
            where=str(written.folder),
            try_this="put documents (.txt, .md, .html, .pdf, .docx) or a file with questions into it, or --questions FILE",
        )
    written.require_free(QUESTIONS)
    with common.status("writing questions by rule"):
        config = FilesConfig.model_validate({"chunker": "headings", "skip_bad": skip_bad})
        library, _, _ = read_documents(seen.documents, config)
        whole = sets.by_rule(list(library.corpus()))
    written.folder.mkdir(parents=True, exist_ok=True)
    number = sets.write_table(written.folder / QUESTIONS, whole)
    if not number:
        (written.folder / QUESTIONS).unlink()
        raise UserError(
            "no question can be written about these documents by rule",
            code="nothing-to-ask",
            where=str(seen.documents),
            try_this=f"{_better(written, seen, model)}; or write some yourself: a CSV with the columns question and answer",
        )
    written.files.append(written.folder / QUESTIONS)
    written.notes.append(
        f"{counted(number, 'question')} by rule: they show that the pipeline works, not how good it is. Better ones: "
        + _better(written, seen, model)
    )


def _better(written: _Written, seen: Found, model: Model | None) -> str:
    name = f"{model.name}{f' --base-url {model.base_url}' if model.base_url else ''}" if model else "NAME"
    documents, target = str(seen.documents), str(written.folder / QUESTIONS)
    return f"ragmeter data questions {shlex.quote(documents)} -o {shlex.quote(target)} --overwrite --model {name}"


def _data(written: _Written, seen: Found, skip_bad: bool) -> dict[str, Any]:
    """Return the options of the dataset, with paths relative to the experiment's working directory."""
    assert seen.fields is not None
    paths = seen.fields.paths
    if seen.documents is None and "documents" not in paths:
        paths = {role: path for role, path in paths.items() if role not in _SENT}
    root = written.folder.resolve()

    def relative(path: Path) -> str:
        return Path(os.path.relpath(path.resolve(), root)).as_posix()

    assert seen.questions is not None
    data: dict[str, Any] = {"path": relative(seen.questions)}
    if seen.documents is not None:
        data["documents"] = relative(seen.documents)
        if {".md", ".markdown", ".docx", ".html", ".htm"} & set(seen.kinds):
            data["chunker"] = "headings"
    data["fields"] = {role: path[0] if len(path) == 1 else list(path) for role, path in paths.items()}
    return data | ({"skip_bad": True} if skip_bad else {})


def _load(written: _Written, data: dict[str, Any]) -> Benchmark:
    """Load the data like the experiment will; guessed gold that matches nothing is dropped."""
    from benchmarks.registry import load

    def loaded() -> Benchmark:
        here: dict[str, Any] = {name: str(written.folder / data[name]) for name in ("path", "documents") if name in data}
        return load("files", {**data, **here})

    try:
        return loaded()
    except UserError as error:
        guessed = [role for role in (*_SENT, "quotes") if role in data["fields"]]
        if error.code != "gold-matches-nothing" or not guessed:
            error.also_try("nothing was written; --skip-bad leaves out records that cannot be read")
            raise
        written.notes.append(f"{error.what}: {', '.join(guessed)} is not used as gold (fields in the experiment)")
        data["fields"] = {role: None if role in guessed else paths for role, paths in data["fields"].items()}
        return loaded()


def _trial(url: str, benchmark: Benchmark) -> Trial:
    from pydantic import ValidationError

    from benchmarks.core.errors import first_error
    from methods.apps.guess import try_app

    try:
        return try_app(url, benchmark.questions[0].text)
    except ValidationError as error:
        what = str(first_error(error)["msg"]).removeprefix("Value error, ")
        raise UserError(what, code="bad-app-url", where="--app", try_this="--app http://localhost:8000/ask") from None


def _remarks(seen: Found, benchmark: Benchmark, by_rule: bool, written: _Written) -> list[str]:
    """Return remarks about the data."""
    remarks = [f"{counted(len(benchmark.questions), 'question')}, {counted(len(benchmark.corpus), 'passage')}"]
    if seen.kinds:
        remarks[0] += " of " + ", ".join(f"{number} {ending}" for ending, number in seen.kinds.most_common())
    if by_rule:
        remarks.append("Rules wrote these questions. They show that the pipeline works; a model or people write better ones:")
        remarks.append("  ragmeter data questions DOCUMENTS -o questions.csv --overwrite --model NAME")
    return remarks


def _experiment(written: _Written, plan: Plan, common: Common) -> int:
    from ragmeter.cli.init_experiment import APP, FILE, IGNORE, IGNORED, WORKFLOW, experiment_text, workflow_text

    written.write(FILE, experiment_text(plan))
    _ignore(written, IGNORE, IGNORED)
    written.write(WORKFLOW, workflow_text(plan), keep=True)
    if plan.asks_app and not plan.faithful:
        written.notes.append("no contexts were found in the app's reply: give their path, or faithfulness cannot be judged")
    if plan.model and plan.model.key_variable and plan.model.key_variable not in os.environ:
        written.notes.append(f"{plan.model.key_variable} is not set: export it, or write {plan.model.key_variable}=… into .env")
    steps = [f"ragmeter run {FILE}" + f" --revision {APP}=v1" * plan.asks_app]
    if not written.folder.resolve().samefile(Path()):
        steps[0] = f"cd {shlex.quote(str(written.folder))} && {steps[0]}"
    mapping = str(plan.benchmark.extra.get("mapping", ""))
    return _report(written, steps, {"fields": plan.data["fields"], "mapping": mapping}, common, plan)


def _ignore(written: _Written, name: str, lines: tuple[str, ...]) -> None:
    """Write `.gitignore`; an existing one keeps its lines, and with --force gets missing ones."""
    path = written.folder / name
    existing = path.read_text("utf-8", "replace") if path.exists() else ""
    lacking = [line for line in lines if line not in existing.split() and line.rstrip("/") not in existing.split()]
    if not existing:
        written.write(name, "\n".join(lines) + "\n")
    elif lacking and written.force:
        written.write(name, f"{existing.rstrip()}\n" + "\n".join(lacking) + "\n")
    else:
        written.kept.append(path)
        if lacking:
            written.notes.append(f"add to {path}: {' '.join(lacking)}")


def _report(written: _Written, steps: list[str], more: Mapping[str, Any], common: Common, plan: Plan | None = None) -> int:
    value = {"written": list(map(str, written.files)), "kept": list(map(str, written.kept)), "notes": written.notes, "next": steps, **more}
    if plan is not None and plan.url is not None:
        trial = plan.trial
        value["app"] = {"options": dict(trial.options) if trial else {}, "problem": trial.problem if trial else ""}

    def show() -> None:
        if plan is not None:
            _show_data(plan)
        for path in written.files:
            out.print(Text(f"wrote {path}"), soft_wrap=True)
        for path in written.kept:
            out.print(Text(f"kept  {path} (--force replaces files)"), soft_wrap=True)
        for note in written.notes:
            err.print(Text(note, style="yellow"), soft_wrap=True)
        for step in steps:
            out.print(Text("next: ") + Text(step, style="bold"), soft_wrap=True)

    common.emit(value, show)
    return 0


def _show_data(plan: Plan) -> None:
    """Show the guesses: a question as loaded, the role of each field, and the app's reply."""
    from ragmeter.show.run_text import show_prediction

    question = plan.benchmark.questions[0]
    out.print(Text("question: ", style="bold") + Text(question.text), soft_wrap=True)
    out.print(Text("answers:  ", style="bold") + Text(" | ".join(question.answers) or "none"), soft_wrap=True)
    for note in plan.benchmark.extra.get("notes", ()):
        out.print(Text(note, style="dim"), soft_wrap=True)
    for item in plan.benchmark.skipped:
        out.print(Text(f"skipped: {item.reason} ({item.where})", style="yellow"), soft_wrap=True)
    if plan.trial is not None and plan.trial.prediction is not None:
        out.print(Text(f"the app, asked {counted(plan.trial.requests, 'time')}:", style="bold"))
        show_prediction(plan.trial.prediction)
    elif plan.trial is not None:
        err.print(Text(f"the app gave no answer, so its row is a comment: {plan.trial.problem}", style="yellow"), soft_wrap=True)
