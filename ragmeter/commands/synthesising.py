"""`synthesise clara`: rows of pretraining by a chat model, or by the truth of worlds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast, overload

from pydantic import ValidationError
from rich.text import Text

from benchmarks import hub, registry
from benchmarks.corpora.build import open_corpus
from benchmarks.corpus import Corpus
from benchmarks.draws import Draws
from benchmarks.errors import UserError, require_writable, unknown_name, unwritable
from benchmarks.worlds.dataset import WorldsConfig
from methods.clara.data_config import MIXES, Mix, ScpDataConfig, Type
from methods.clara.rows import ScpRow, write_rows
from methods.clara.synthesis import Document, Synthesis, SynthesisConfig
from methods.clara.synthesis_states import StateFile
from methods.clara.synthesis_statistics import Statistics, of_rows, of_synthesis, outlook
from methods.clara.worlds_rows import world_rows
from methods.kept import write_json
from methods.models.chat import ChatModel
from methods.models.response_cache import shared
from ragmeter.commands.checking import options_given
from ragmeter.console import emit, err, listing, out
from ragmeter.given_options import refusal, settings
from ragmeter.progress import TrainingProgress
from ragmeter.run_loop import Interrupted
from results import store_folder
from results.store import Store

AGAIN = "the same command goes on"
BY = ("llm", "worlds")


@dataclass(frozen=True)
class Request:
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


def clara(request: Request, folder: Path | None, as_json: bool, quiet: bool) -> int:
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


def _by_worlds(request: Request, as_json: bool) -> int:
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


def _documents(request: Request) -> Sequence[Document]:
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


def _report(request: Request, found: Statistics, synthesis: Synthesis | None, as_json: bool) -> int:
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
