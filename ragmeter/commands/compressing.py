"""`compress`: a corpus as memory on disk, before anything is asked."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

from pydantic import ValidationError
from rich.text import Text

from benchmarks import hub
from benchmarks import registry as datasets
from benchmarks.corpus import CARD as CORPUS_CARD
from benchmarks.corpus import Corpus
from benchmarks.draws import Draws
from benchmarks.errors import UserError, make_folder, unknown_name, unwritable
from benchmarks.plurals import counted
from benchmarks.wording import told_of
from methods.api import Services
from methods.clara import picture
from methods.clara.documents import DocumentOptions, Documents
from methods.clara.store_writer import Written
from methods.clara.use import Loaded, loaded
from ragmeter.commands.checking import options_given
from ragmeter.console import emit, listing, out
from ragmeter.progress import TrainingProgress
from ragmeter.run_loop import Interrupted
from ragmeter.tasks import require_device
from results import store_folder
from results.store import Store


@dataclass(frozen=True)
class Request:
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


def compress(request: Request, drawing: Drawing | None, folder: Path | None, as_json: bool, quiet: bool) -> None:
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
