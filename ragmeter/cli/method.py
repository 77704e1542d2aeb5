"""`ragmeter method`: check a method, build its index, or explain one retrieval."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from rich.text import Text

from benchmarks.core.errors import UserError, counted, make_folder, require_writable, unknown_name, unwritable
from ragmeter.cli import completion
from ragmeter.cli.options import App, Common, ConfigOption, DeviceOption, SeedOption, SetOption, argument, option, print_card
from ragmeter.show.console import err, listing, out

if TYPE_CHECKING:
    from benchmarks.corpus import Corpus
    from benchmarks.schema import Question
    from methods.registry import MethodEntry

app = App(default="list", help="check, index, explain NAME QUESTION --benchmark DATA.")
KINDS = ("retriever", "reranker", "compressor", "reader", "method", "control")
INDEXED = ("clara_compressor", "autocompressor", "cocom", "pcc", "pisco", "xrag")
"""Methods with an index for `ragmeter method index`; others build theirs within `ragmeter run`."""


@app.command("list", plugin=True)
def list_all(
    common: Common,
    name: Annotated[str | None, argument("Method to show.", completion.methods)] = None,
    kind: Annotated[
        str | None, option("Show only this kind: retriever, reader, control …", completes=completion.offer_words(*KINDS))
    ] = None,
) -> None:
    """List methods, or show one with its options."""
    from methods.registry import METHODS
    from ragmeter.cli.config_options import option_rows
    from ragmeter.show.code_text import code_in_words

    if name is not None:
        entry = METHODS.get(name)
        facts = {"kind": entry.kind, "version": entry.version, "paper": entry.paper or "–"}
        facts |= {"presets": ", ".join(entry.presets) or "–", "trained on": ", ".join(entry.training_data) or "–"}
        value = entry.card() | {"options": option_rows(entry.config)}
        if entry.code is not None:
            facts["code"] = code_in_words(entry.code.to_json())
            value["code"] = entry.code.to_json()
        common.emit(value, lambda: print_card(entry.id, entry.summary, facts, entry.config))
        return
    kinds = {entry.kind for entry in METHODS}
    if kind is not None and kind not in kinds:
        raise unknown_name("kind of method", kind, kinds, where="--kind")
    chosen = [entry for entry in METHODS if kind in (None, entry.kind)]
    rows = [(entry.id, entry.kind, entry.summary) for entry in chosen]
    common.emit([entry.card() for entry in chosen], lambda: listing(("method", "kind", "summary"), rows, empty="none"))


@app.command(plugin=True)
def check(
    name: Annotated[str, argument("Method: `ragmeter list methods` lists them.", completion.methods)],
    common: Common,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> int:
    """Check that a method, yours or ours, meets the contract."""
    from methods.registry import METHODS, Component
    from ragmeter.cli.config_options import given_options
    from ragmeter.conformance import check_method, show_checks
    from ragmeter.runner.rewriting import options_of

    with options_of(name, METHODS.get(name).config):
        component = Component.of(name, given_options(config, settings))
    component.preflight()
    try:
        checks = check_method(component)
    except UserError as error:
        if error.code == "no-place-for-passages":
            error.also_try(f"a function with an index of its own: ragmeter method try {name} QUESTION --benchmark DATA")
        raise
    passed = all(item.passed for item in checks)
    value = {"checked": f"method {name}", "passed": passed, "checks": list(map(asdict, checks))}
    common.emit(value, lambda: show_checks(f"method {name}", checks))
    return int(not passed)


@app.command("try", plugin=True)
def try_one(
    name: Annotated[str, argument("Complete method or retriever, such as http or function.", completion.methods)],
    text: Annotated[str, argument("Question to ask.")],
    common: Common,
    config: ConfigOption = None,
    settings: SetOption = None,
    benchmark: Annotated[
        str | None, option("Dataset whose passages a retriever searches.", "--benchmark", completes=completion.references)
    ] = None,
) -> int:
    """Send one question and show how its reply was read; exit with 1 if the question failed."""
    from benchmarks.schema import Query
    from methods.api import FAILED, RETRIEVAL_ONLY, Services
    from methods.pipeline import Composition
    from methods.registry import METHODS, Component
    from ragmeter.cli.config_options import data_apart, given_options
    from ragmeter.runner.rewriting import options_of
    from ragmeter.show.run_text import show_prediction, show_ranking

    entry = METHODS.get(name)
    retrieves = entry.kind == "retriever"
    if not retrieves and not entry.whole:
        raise UserError(
            f"{name!r} is a {entry.kind}, which does not answer by itself",
            code="not-whole-method",
            where=name,
            try_this="`ragmeter list methods --kind method` lists what does",
        )
    supplied, of_data = data_apart(given_options(config, settings))
    corpus = _corpus_for(name, retrieves, benchmark, of_data)
    with options_of(name, entry.config):
        component = Component.of(name, supplied)
    component.preflight()
    reader = Component.of(RETRIEVAL_ONLY) if retrieves else None
    method = Composition(component, reader).build(Services())
    with common.status(f"{name} answers"):
        method.index(corpus)
        (prediction,) = method.answer([Query("question", text)])

    def show() -> None:
        if retrieves and FAILED not in prediction.notes:
            show_ranking(prediction, corpus)
        else:
            show_prediction(prediction)

    common.emit(prediction.to_json() | {"raw": prediction.raw}, show)
    return int(bool(prediction.notes.get(FAILED)))


def _corpus_for(name: str, retrieves: bool, benchmark: str | None, options: dict[str, Any]) -> Corpus:
    """Return the passages that a retriever searches; none for a complete method.

    Raises:
        UserError: A retriever has no dataset, or a complete method has one.
    """
    from benchmarks.corpus import Corpus
    from benchmarks.registry import load

    if retrieves and benchmark is None:
        raise UserError(
            f"{name!r} is a retriever, and needs passages to search",
            code="missing-option",
            where="--benchmark",
            try_this="--benchmark worlds/multihop, or your data: --benchmark files --set data.path=FILE",
        )
    if not retrieves and (benchmark is not None or options):
        raise UserError(
            f"{name!r} answers from documents of its own", code="no-passages-searched", where="--benchmark", try_this="leave it out"
        )
    return Corpus.of(()) if benchmark is None else load(benchmark, options).corpus


@app.command(plugin=True)
def index(
    name: Annotated[str, argument("Method that stores a corpus: clara_compressor.", completion.offer_words(*INDEXED))],
    corpus: Annotated[str, argument("Data reference, or folder of `ragmeter data build-corpus`.", completion.references)],
    common: Common,
    config: ConfigOption = None,
    settings: SetOption = None,
    output: Annotated[Path | None, option("Folder of the index (default: that of `ragmeter run`)", "--output", "-o")] = None,
    picture: Annotated[Path | None, option("SVG file for states of documents and their memory (CLaRa, figure 8).")] = None,
    projection: Annotated[str, option("Projection of the picture: tsne or pca.", completes=completion.offer_words("tsne", "pca"))] = "tsne",
    count: Annotated[int, option("Number of documents in the picture.", min=2)] = 4000,
    seed: SeedOption = 0,
    device: DeviceOption = None,
) -> None:
    """Build a method's index of a corpus in advance; --set model=FOLDER …, dataset: --set data.KEY=VALUE."""
    from benchmarks import registry
    from benchmarks.core.random import Draws
    from benchmarks.corpus import CARD, Corpus
    from benchmarks.io import hub
    from methods.api import Services
    from methods.clara import explain as pictures
    from methods.clara.store import Written
    from methods.clara.use import Documents, loaded
    from methods.registry import METHODS
    from ragmeter.cli.config_options import data_apart, given_options
    from ragmeter.runner.loop import stoppable
    from ragmeter.runner.progress import TrainingProgress
    from ragmeter.runner.rewriting import options_of
    from ragmeter.runner.tasks import require_device

    entry = METHODS.get(name, where="NAME")
    if name not in INDEXED:
        raise UserError(
            f"{name} has no index that is built beforehand", code="no-prebuilt-index", where="NAME", try_this=" or ".join(INDEXED)
        )
    which: Any = projection
    if which not in get_args(pictures.Projection):
        raise unknown_name("projection", which, get_args(pictures.Projection), where="--projection")
    if picture is not None:
        require_writable(picture, what="the picture")
    require_device(device)
    if not common.talk:
        hub.be_quiet()
    supplied, of_data = data_apart(given_options(config, settings))
    with options_of(name, entry.config):
        chosen: Any = entry.validate(supplied | {"offline": True})
    chosen.preflight()
    documents = Corpus.open(Path(corpus)) if (Path(corpus) / CARD).is_file() else registry.load(corpus, of_data).corpus
    if output is not None:
        make_folder(output)
    if name != INDEXED[0]:
        if picture is not None:
            raise UserError(f"{name} has no picture", code="no-picture", where="--picture", try_this="leave it out")
        _index_vectors(entry, chosen, documents, output, common, device)
        return
    model = loaded(chosen, device)
    memory = Documents(model, chosen, Services(artifacts=common.store.artifacts, device=device))
    target = output or memory.folder(documents)
    last: Written | None = None
    with TrainingProgress(quiet=not common.talk) as progress:
        progress.begin("indexing documents", len(documents))

        def advance(written: Written) -> None:
            nonlocal last
            progress.advance(written.documents - (last.documents if last else 0))
            progress.log({"tokens/s": written.tokens_per_second})
            last = written

        with stoppable(f"the same command continues: {target}"):
            built = memory.store(documents, target, advance)
    written = last or Written(len(built), len(built), 0, 0, 0.0)
    distance = None
    if picture is not None:
        drawn = sorted(Draws("clara picture", seed).sample(range(len(documents)), count))
        states = pictures.states(model.clara, [documents[row].full_text for row in drawn])
        _write_picture(picture, pictures.svg(states, which, seed))
        distance = states.distance
    identity = built.identity
    value = {
        "folder": str(target),
        **asdict(identity),
        "fingerprint": identity.fingerprint,
        "bytes_per_document": identity.bytes_per_document,
        "bytes": built.bytes,
        "compressed_now": written.fresh,
        "tokens": written.tokens,
        "seconds": written.seconds,
        "tokens_per_second": written.tokens_per_second,
        "picture": None if picture is None else str(picture),
        "mean_squared_distance": distance,
    }

    def show() -> None:
        state = f"{written.fresh:,} indexed now" if written.fresh else "all were there already"
        out.print(Text(f"{counted(len(built), 'document')} in {target}: {state}"), soft_wrap=True)
        rows = [
            ("memory tokens", f"{identity.memory_tokens} of {identity.hidden_size} numbers, {identity.dtype}"),
            ("size", f"{identity.bytes_per_document / 1024:,.1f} KiB a document, {built.bytes / 2**20:,.1f} MiB in all"),
        ]
        if written.fresh:
            rows.append(("speed", f"{written.tokens_per_second:,.0f} tokens/s, {written.seconds:,.1f} s"))
        if picture is not None:
            rows.append(("picture", f"{picture}, mean squared distance {distance:.4g}"))
        listing(("", ""), rows, empty="")

    common.emit(value, show)


def _index_vectors(entry: MethodEntry, config: Any, documents: Corpus, output: Path | None, common: Common, device: str | None) -> None:
    """Build the index of a compressor into vectors."""
    from methods.api import Services
    from ragmeter.runner.loop import stoppable
    from ragmeter.runner.progress import TrainingProgress

    compressor = entry.factory(config, Services(artifacts=common.store.artifacts, device=device))
    target, started = output or compressor.folder(documents), time.perf_counter()
    fresh = 0
    with TrainingProgress(quiet=not common.talk) as progress:
        progress.begin("indexing documents", len(documents))

        def advance(passages: int) -> None:
            nonlocal fresh
            fresh += passages
            progress.advance(passages)

        with stoppable(f"the same command continues: {target}"):
            vectors, _ = compressor.index(documents, target, advance)
    seconds = time.perf_counter() - started
    (number, width), size = vectors.shape, vectors.nbytes
    value = {"folder": str(target), "documents": len(documents), "vectors": number, "width": width, "bytes": size}
    value |= {"indexed_now": fresh, "seconds": seconds}

    def show() -> None:
        state = f"{fresh:,} indexed now, {seconds:,.1f} s" if fresh else "all were there already"
        out.print(Text(f"{counted(len(documents), 'document')} in {target}: {state}"), soft_wrap=True)
        sizes = f"{size / max(1, len(documents)) / 1024:,.1f} KiB a document, {size / 2**20:,.1f} MiB in all"
        listing(("", ""), [("vectors", f"{number:,} of {width} numbers, float16"), ("size", sizes)], empty="")

    common.emit(value, show)


def _write_picture(picture: Path, text: str) -> None:
    try:
        picture.write_text(text, "utf-8")
    except OSError as error:
        raise unwritable(error, picture, what="the picture") from None


@app.command(plugin=True)
def explain(
    name: Annotated[str, argument("Method with an explanation: ark, gpr …", completion.explainers)],
    question: Annotated[str, argument("Id of the question, or the beginning of its text.")],
    benchmark: Annotated[str, option("Dataset of the question.", "--benchmark", completes=completion.references)],
    common: Common,
    config: ConfigOption = None,
    settings: SetOption = None,
    output: Annotated[Path | None, option("SVG file to write.", "--output", "-o")] = None,
    device: DeviceOption = None,
) -> None:
    """Explain what a method does with one question; --set checkpoint=FOLDER selects a trained one."""
    from benchmarks import registry
    from methods.api import Services
    from methods.registry import EXPLAINERS
    from ragmeter.cli.config_options import given_options
    from ragmeter.runner.rewriting import options_of
    from ragmeter.runner.tasks import require_device

    entry = EXPLAINERS.get(name)
    require_device(device)
    with options_of(name, entry.config):
        chosen = entry.config.model_validate(given_options(config, settings))
    chosen.preflight()
    data = registry.load(benchmark)
    store = common.store
    with err.status(f"{name} explains", spinner="dots"):
        services = Services(artifacts=store.artifacts, device=device, cache=store.cache)
        result = entry.explain(_question(data.questions, question, benchmark), data.corpus, chosen, services)
    if output is not None:
        if result.picture is None:
            raise UserError("this question has no graph to draw", code="nothing-to-draw", where="--output", try_this="leave it out")
        _write_picture(output, result.picture)

    def show() -> None:
        out.print(Text(result.summary))
        for table in result.tables:
            out.print(Text(f"\n{table.title}", style="bold"))
            listing(table.columns, table.rows, empty="nothing")
            if table.note:
                out.print(Text(table.note, style="dim"))
        if output is not None:
            out.print(Text(f"\npicture: {output}"))

    common.emit(asdict(result), show)


def _question(questions: Sequence[Question], text: str, reference: str) -> Question:
    flat = " ".join(text.split()).casefold()
    matching = [question for question in questions if question.id == text]
    matching = matching or [question for question in questions if " ".join(question.text.split()).casefold().startswith(flat)]
    if not matching:
        raise unknown_name("question", text, [question.id for question in questions], where=reference)
    if len(matching) > 1:
        some = ", ".join(item.id for item in matching[:3])
        raise UserError(
            f"{len(matching)} question ids of {reference} begin with this prefix",
            code="ambiguous-question-prefix",
            where=text,
            try_this=f"name its id: {some}",
        )
    return matching[0]
