"""Resolve users' names of documents and passages, and gold evidence that refers to them."""

from __future__ import annotations

import html
import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import PurePosixPath

from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus, CorpusBuilder
from benchmarks.own.chunks import Chunker
from benchmarks.records import BadRecord
from benchmarks.schema import Passage, passage_id

_REMEDY = "give each a name of its own, or set skip_bad to leave the second out"


@dataclass(frozen=True, slots=True)
class Piece:
    """Position of a passage in its document."""

    passage: str
    start: int
    end: int


@dataclass(frozen=True)
class Held:
    """A document that has been cut into passages.

    Attributes:
        name: Id of the document.
        text: Full text.
        where: Location of the source, for messages.
        pieces: Its passages, in order.
    """

    name: str
    text: str
    where: str
    pieces: tuple[Piece, ...]

    @property
    def passages(self) -> tuple[str, ...]:
        """Return the ids of the document's passages, in order."""
        return tuple(piece.passage for piece in self.pieces)


@dataclass(frozen=True)
class Span:
    """Gold evidence given as a span of a document.

    Attributes:
        length: Number of characters.
        parts: By passage id, the part of the span that the passage contains, as (start, end) within the span.
    """

    length: int
    parts: Mapping[str, tuple[int, int]]

    @property
    def evidence(self) -> tuple[str, ...]:
        """Return the passages that contain the whole span; if none does, those that contain a part of it."""
        whole = tuple(name for name, (start, end) in self.parts.items() if end - start == self.length)
        return whole or tuple(self.parts)


class DocumentNames:
    """Names of documents, which others may write without leading folders or suffix, or in another case.

    Args:
        names: The names.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._own = dict.fromkeys(names)
        forms: list[dict[str, list[str]]] = [{}, {}, {}]
        for name in self._own:
            path = PurePosixPath(name)
            for known, form in zip(forms, (name, path.name, path.stem), strict=True):
                known.setdefault(_folded(form), []).append(name)
        self._forms = {**forms[2], **forms[1], **forms[0]}
        """Documents by alternative forms of their names, of which more specific forms count."""

    def find(self, name: str) -> str | None:
        """Find the document with a name; return None if no document fits.

        Raises:
            UserError: The name is ambiguous.
        """
        tails = (name.replace("\\", "/").split("/", cut)[cut] for cut in range(1, name.count("/") + name.count("\\") + 1))
        for wanted in dict.fromkeys((name, re.sub(r"^(-?\d+)\.0$", r"\1", name), *tails)):
            if wanted in self._own:
                return wanted
            fitting = self._forms.get(_folded(wanted), ())
            if len(fitting) > 1:
                raise UserError(
                    f"the name {name!r} fits {len(fitting)} documents: {', '.join(fitting[:5])}",
                    code="ambiguous-document",
                    try_this="name the document by its path in the folder",
                )
            if fitting:
                return fitting[0]
        return None


@dataclass
class Library:
    """Collection of the user's documents and passages.

    Attributes:
        chunker: The rule for cutting documents.
        repeated: Number of exact duplicates (same name and text).
        unclear: Number of quotations found that stand in several places.
    """

    chunker: Chunker
    repeated: int = 0
    unclear: int = 0
    _documents: dict[str, Held] = field(default_factory=dict)
    _natives: dict[str, tuple[str, str]] = field(default_factory=dict)
    _builder: CorpusBuilder = field(default_factory=CorpusBuilder)

    def __len__(self) -> int:
        return len(self._documents)

    def add(self, name: str, title: str, text: str, where: str) -> None:
        """Add a document and cut it into passages.

        Raises:
            BadRecord: Another document has the same name.
        """
        if (known := self._documents.get(name)) is not None:
            if known.text == text:
                self.repeated += 1
                return
            what = f"two documents with different texts have the id {name!r}"
            raise BadRecord(what, code="duplicate-document", where=f"{known.where} and {where}", try_this=_REMEDY)
        pieces, seen = [], dict[str, int]()
        for chunk in self.chunker.cut(text):
            part = text[chunk.start : chunk.end].strip()
            heading = " > ".join(dict.fromkeys((title, *chunk.headings)))
            # A corpus holds an id once, and a document that repeats itself must not lose its second half.
            scope = f"{name}~{seen[part]}" if part in seen else name
            seen[part] = seen.get(part, 0) + 1
            passage = Passage(passage_id(heading, part, scope), heading, part, (), name)
            self._builder.add([passage])
            pieces.append(Piece(passage.id, chunk.start, chunk.end))
        self._documents[name] = Held(name, text, where, tuple(pieces))

    def add_passage(self, title: str, text: str, native: str | None, where: str) -> str:
        """Add a passage that is part of a question record, and return its passage id.

        Raises:
            BadRecord: Another passage has the same native id.
        """
        identifier = passage_id(title, text)
        if native is not None:
            known, before = self._natives.setdefault(native, (identifier, where))
            if known != identifier:
                what = f"two documents with different texts have the id {native!r}"
                hint = f"{_REMEDY}; if ids count within each question, fields: {{document_ids: null}}"
                raise BadRecord(what, code="duplicate-document", where=f"{before} and {where}", try_this=hint)
        self._builder.add([Passage(identifier, title, text)])
        return identifier

    def corpus(self) -> Corpus:
        """Return the corpus of all passages."""
        return self._builder.build()

    def named(self, name: str) -> tuple[str, ...]:
        """Resolve a name to passage ids: a passage's own id, or a document's name, which stands for all of its passages.

        Raises:
            UserError: The name is ambiguous.
        """
        if name in self._natives:
            return (self._natives[name][0],)
        document = self.document(name)
        return () if document is None else document.passages

    def document(self, name: str) -> Held | None:
        """Find a document by name; leading folders, the file suffix and letter case may differ. None if there is none.

        Raises:
            UserError: The name is ambiguous.
        """
        own = self._names.find(name)
        return None if own is None else self._documents[own]

    def ids(self) -> list[str]:
        """Return all names that gold evidence may use: ids of documents, then native ids of passages."""
        return [*self._documents, *self._natives]

    @cached_property
    def _names(self) -> DocumentNames:
        return DocumentNames(self._documents)

    @cached_property
    def _holding(self) -> dict[str, set[str]]:
        """Return the documents that contain each word, as printed or as spelled."""
        holding: dict[str, set[str]] = {}
        for document in self._documents.values():
            for text in {document.text, _spelled(document.text)[0]}:
                for word in _words(text):
                    holding.setdefault(word, set()).add(document.name)
        return holding

    def span(self, document: Held, start: int, end: int) -> Span:
        """Map a character range of a document to the passages that contain parts of it."""
        parts: dict[str, tuple[int, int]] = {}
        for piece in document.pieces:
            first, last = max(piece.start, start), min(piece.end, end)
            if first < last:
                parts[piece.passage] = (first - start, last - start)
        return Span(end - start, parts)

    def quoted(self, quote: str, among: Iterable[Held] | None = None) -> Span | None:
        """Find the first occurrence of a quotation; None if not found.

        White space, quotation marks, letter case and the marks of Markdown may differ, as may the form of characters and words
        divided at the end of a line.

        Args:
            quote: The quoted text.
            among: Documents to search, in order; None for all.
        """
        documents = list(self._documents.values() if among is None else among)
        # A pattern is slow to search, and nearly all documents lack one of the words; the first and the last may be parts of words.
        holding = [self._holding.get(word, set()) for word in _words(_spelled(quote)[0])[1:-1]]
        if holding:
            names = set.intersection(*holding)
            documents = [document for document in documents if document.name in names]
        for find in _finders(quote):
            for number, document in enumerate(documents):
                if (place := find(document.text)) is not None:
                    texts = (document.text[place[1] :], *(other.text for other in documents[number + 1 :]))
                    self.unclear += any(find(text) is not None for text in texts)
                    return self.span(document, *place)
        return None


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def places_of(quote: str, texts: Sequence[str]) -> set[int]:
    """Return the positions of the texts that contain a quotation; its form may differ as in `Library.quoted`."""
    return {number for find in _finders(quote) for number, text in enumerate(texts) if find(text) is not None}


def _finders(quote: str) -> Iterator[Callable[[str], tuple[int, int] | None]]:
    """Yield search functions for a quotation, from exact to increasingly tolerant matching."""

    def exact(text: str) -> tuple[int, int] | None:
        at = text.find(quote)
        return None if at < 0 else (at, at + len(quote))

    def loose(text: str) -> tuple[int, int] | None:
        match = pattern.search(text)
        return None if match is None else match.span()

    def spelled(text: str) -> tuple[int, int] | None:
        shown, at = _spelled(text)
        match = pattern.search(shown)
        return None if match is None else (at[match.start()], at[match.end() - 1] + 1)

    if quote.strip():
        yield exact
        pattern = _pattern(quote)
        yield loose
        if (letters := _spelled(quote)[0]).strip():
            pattern = _pattern(letters)
            yield spelled
        if (bare := quote.strip(_QUOTES)) != quote:
            yield from _finders(bare)


def _pattern(quote: str) -> re.Pattern[str]:
    words = [word for word in quote.split() if word not in _BULLETS] or quote.split()
    return re.compile(_BETWEEN.join(map(_loose, words)), re.IGNORECASE)


_QUOTES = " \t\r\n\"'“”„«»‘’"
_BULLETS = "•◦▪‣·"
_BETWEEN = rf"(?:\n[ \t>|]*(?:[-+]|\d{{1,3}}[.)])(?=\s)|\n\|(?:[ \t]*:?-+:?[ \t]*\|)+|[\s*_>|#`{_BULLETS}])+"
"""Separator of two words of a quotation in a text: white space, marks of lists and emphasis, and the lines of a table."""
_WIDTHLESS = "\u00ad\u200b\u200c\u200d\u2060\ufeff"
_HYPHENS = "-–—‐‑"
_PRINTED = re.compile(
    rf"""(?<=[^\W\d_])[{_HYPHENS}\u00ad](?:[^\S\n]*\n\s*)?(?=[^\W\d_])  # hyphens, also at the end of a line
    | [{_WIDTHLESS}]
    | !\[[^\]\n]*\]\([^)\n]*\) | \[(?=(?:[^\[\]\n]|\[[^\[\]\n]*\]){{1,500}}\]\() | \]\((?:[^()\n]|\([^()\n]*\)){{0,2000}}\)
    | \\(?=[!-/:-@\[-`{{-~])  # escapes
    | &(?:\#\d{{1,6}}|\#[xX][0-9a-fA-F]{{1,5}}|[a-zA-Z]{{2,8}}\d{{0,2}});
    | (?:[a-zA-Z](?=[\u0300-\u036f]))?[^\x00-\x7f\u3400-\u9fff\uac00-\ud7a3{_HYPHENS}{_WIDTHLESS}]+""",
    re.VERBOSE,
)
"""Places where a page shows another text than its Markdown, or characters that have several forms."""
_CHARACTER = re.compile(r"[\u1100-\u1112][\u1161-\u1175][\u11a8-\u11c2]?|.[\u0300-\u036f\u3099\u309a]*", re.DOTALL)


@lru_cache(maxsize=16)
def _spelled(text: str) -> tuple[str, Sequence[int]]:
    """Return the text as a page shows it, and the position in `text` of each of its characters.

    Hyphens, characters without width, targets of links, escapes and entities are resolved, and characters have one form (NFKC).
    """
    letters, at, done = [], array("L"), 0
    for match in _PRINTED.finditer(text):
        printed, start = match[0], match.start()
        if printed[0] == "&":
            parts = [(start, unicodedata.normalize("NFKC", html.unescape(printed)))]
        elif printed[0] in f"{_HYPHENS}{_WIDTHLESS}![]\\":
            parts = [(start, "")]
        elif unicodedata.is_normalized("NFKC", printed):
            continue
        else:
            parts = [(start + each.start(), unicodedata.normalize("NFKC", each[0])) for each in _CHARACTER.finditer(printed)]
        letters.append(text[done:start])
        at.extend(range(done, start))
        for place, sign in parts:
            letters.append(sign)
            at.extend([place] * len(sign))
        done = match.end()
    at.extend(range(done, len(text)))
    return "".join([*letters, text[done:]]), at


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold().replace("\\", "/").removeprefix("./")


_SIGNS = {"'": "['’‘`]", '"': '["“”„«»]', "-": "[-–—‐‑]"}
_SAME = {sign: pattern for plain, pattern in _SIGNS.items() for sign in {plain, *pattern.strip("[]")}}


def _loose(word: str) -> str:
    """Return a pattern for a word that tolerates typographic quotes and dashes, and marks of emphasis."""
    signs = unicodedata.normalize("NFC", word)
    return "".join(sign if sign.isalnum() else f"[*`]*{_SAME.get(sign, re.escape(sign))}[*`]*" for sign in signs)
