"""Map fields of users' records to roles (question, answers, evidence …), by explicit paths or by guessing from common names.

A path is `question`, `meta.topic`, `contexts[].text` (each item of a list), `spans[0].start` or, with `?` at its end, a field that
records may lack. A role without a path is guessed from the fields of the first records; `null` turns a guess off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.core.errors import UserError, unknown_name

ROLES: Mapping[str, str] = {
    "question": "the question",
    "id": "its id (default: made from its text)",
    "answers": "accepted answers",
    "documents": "texts of the passages that a question brings",
    "titles": "their titles",
    "document_ids": "their ids",
    "supporting": "which of them are gold: true or false for each",
    "evidence": "gold: ids of passages, or ids or names of documents",
    "quotes": "gold: texts that stand in a document",
    "start": "gold: first character of a span of the document in `evidence`",
    "end": "gold: the character behind the span",
    "spans": "gold: objects with document, start and end, or document and text",
    "type": "the kind of question",
    "answerable": "false if no document answers it",
    "turns": "earlier turns of the conversation: objects with role and content",
    "synthetic": "who or what wrote the question, if nobody asked it",
    "metadata": "fields to keep for analyses",
}
"""Roles of a question's fields, the keys of the option `fields` of the dataset `files`."""

ROW = "#"
"""Pseudo-field with a document's 0-based row number in its file."""
DOCUMENT_ROLES: Mapping[str, str] = {"text": "the text", "id": 'the document\'s id; "#": its row in the file, from 0', "title": "its title"}

_NAMES: Mapping[str, tuple[str, ...]] = {
    "question": ("question", "query", "user_input", "question_text", "questions", "prompt", "input", "q", "text"),
    "id": ("id", "_id", "qid", "question_id", "query_id", "uid"),
    "answers": (
        *("answers", "answer", "golden_answers", "gold_answers", "gold", "golds", "gold_answer", "ground_truth", "ground_truths"),
        *("reference", "reference_answer", "expected_answer", "expected", "expected_output", "target", "targets", "a"),
        *("possible_answers", "correct_answers", "correct_answer", "ground_truth_answer", "reference_answers", "expected_answers"),
        "expected_response",
    ),
    "documents": ("contexts", "context", "passages", "paragraphs", "documents", "docs", "ctxs"),
    "evidence": (
        *("evidence", "gold_ids", "gold_documents", "gold_docs", "gold_passages", "relevant_docs", "relevant_documents", "positive_ids"),
        *("relevant_passage_ids", "relevant_doc_ids", "relevant_ids", "gold_doc_ids"),
        *("source", "sources", "document", "document_id", "doc_id", "doc", "file", "filename", "reference_context_ids"),
        *("source_doc", "source_document", "source_file", "source_id", "document_name", "doc_name", "file_name"),
    ),
    "quotes": ("quotes", "quote", "reference_contexts", "gold_contexts", "evidence_text", "gold_text"),
    "start": ("start", "start_char"),
    "end": ("end", "end_char"),
    "spans": ("spans", "gold_spans", "evidence_spans"),
    "type": ("type", "question_type"),
    "answerable": ("answerable", "is_answerable"),
    "turns": ("turns", "history", "chat_history", "conversation", "messages"),
    "synthetic": ("synthetic",),
}
_EITHER = ("answer", "answers", "a")
"""Names of fields that hold accepted answers, or in other files (such as ragas's) a model's."""
_CERTAIN = (
    *("golden_answers", "gold_answers", "gold_answer", "ground_truth", "ground_truths"),
    *("reference_answer", "expected_answer", "expected_output"),
)
"""Names of fields that hold accepted answers in any file."""
_DECISIONS = frozenset(("accept", "reject", "ignore"))
"""Values of Prodigy's field `answer`: what the annotator decided."""
_ALIASES = ("aliases", "answer_aliases", "answers_aliases", "alt_ans")
_INNER: Mapping[str, tuple[str, ...]] = {
    "documents": ("text", "paragraph_text", "passage_text", "content", "contents", "passage", "page_content", "body", "sentences"),
    "titles": ("title", "heading", "name"),
    "document_ids": ("id", "_id", "doc_id", "docid", "document_id", "passage_id", "pid"),
    "supporting": ("is_supporting", "is_gold", "gold", "relevant", "is_relevant", "is_selected"),
}
_DOCUMENT_NAMES: Mapping[str, tuple[str, ...]] = {
    "text": ("text", "content", "contents", "body", "page_content", "passage", "document", "markdown"),
    "id": ("id", "_id", "docid", "doc_id", "document_id", "pid", "name", "file", "filename", "document", "source", "url"),
    "title": ("title", "heading", "headline"),
}
_ANSWER_TEXTS = ("text", "value", "answer")
"""Names of an answer's text within an object, as of SQuAD and TriviaQA."""
_STEP = re.compile(r"([^\[\]]*)((?:\[\d*\])*)")


class Missing(Exception):
    """Raised if a record lacks a required field."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(path)


def values(fields: Mapping[str, Any], path: str, *, nulls: bool = False) -> list[Any]:
    """Return the values at a path: a single value, or one per item of the lists on the path.

    Args:
        fields: The record.
        path: The path.
        nulls: Whether the result has None for an item whose value is null, or missing at a path that ends in `?`.

    Raises:
        Missing: The record lacks the field, and the path does not end in `?`.
    """
    wanted, optional = path.removesuffix("?"), path.endswith("?")
    try:
        results = [fields[wanted]] if wanted in fields else _walk([fields], wanted, optional)
    except (KeyError, IndexError, TypeError):
        if optional:
            return []
        raise Missing(wanted) from None
    return [None if _null(value) else value for value in results if nulls or not _null(value)]


def _null(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)


def _walk(current: list[Any], path: str, optional: bool) -> list[Any]:
    for part in path.split("."):
        match = _STEP.fullmatch(part)
        if match is None:
            raise KeyError(part)
        name, indexes = match.groups()
        current = [_member(item, name, optional) for item in current] if name else current
        for index in re.findall(r"\[(\d*)\]", indexes):
            listed = [item for item in current if not _null(item)]
            if not all(isinstance(item, list) for item in listed):
                raise TypeError(path)
            current = [item[int(index)] for item in listed] if index else [inner for item in listed for inner in item]
    return current


def _member(item: Any, name: str, optional: bool) -> Any:
    if _null(item):
        return None
    return item.get(name) if optional and isinstance(item, Mapping) else item[name]


def top(path: str) -> str:
    """Return the first component of a path: the record's top-level field."""
    return re.split(r"[.\[?]", path, maxsplit=1)[0]


@dataclass(frozen=True)
class Fields:
    """Mapping from roles to field paths.

    Attributes:
        paths: Paths by role.
        guessed: Roles whose path was guessed.
        ignored: Fields of the records that no role uses.
    """

    paths: Mapping[str, tuple[str, ...]]
    guessed: frozenset[str]
    ignored: tuple[str, ...]

    def __contains__(self, role: object) -> bool:
        return role in self.paths

    def of(self, record: Mapping[str, Any], role: str, *, nulls: bool = False) -> list[Any]:
        """Return a record's values for a role, as `values` does; empty if the role has no path."""
        return [value for path in self.paths.get(role, ()) for value in values(record, path, nulls=nulls)]

    def in_words(self) -> str:
        """Describe the mapping for users."""

        def shown(roles: Iterable[str]) -> str:
            return ", ".join(f"{role}: {' + '.join(self.paths[role])}" for role in roles)

        named = [role for role in self.paths if role not in self.guessed]
        parts = [f"fields {shown(named)}"] if named else []
        parts += [f"guessed {shown(role for role in self.paths if role in self.guessed)}"] if self.guessed else []
        parts += [f"ignored {', '.join(name or '(no name)' for name in self.ignored)}"] if self.ignored else []
        return "; ".join(parts)


Given = Mapping[str, str | Sequence[str] | None]


def question_fields(records: Sequence[Mapping[str, Any]], configured: Given, where: str) -> Fields:
    """Determine the field mapping for questions: the user's paths, and guesses for the remaining roles.

    Args:
        records: The first records of the file.
        configured: The user's paths by role; None disables guessing for a role.
        where: Name of the file, for messages.

    Raises:
        UserError: A role is unknown, a path occurs in no record, or the question field cannot be guessed.
    """
    fields = _mapping(records, configured, ROLES, _guessed(records, configured, where), where)
    if "question" not in fields:
        raise _no_field("question", records, where, "fields: {question: NAME}")
    return fields


def document_fields(records: Sequence[Mapping[str, Any]], configured: Given, where: str) -> Fields:
    """Determine the field mapping for documents, as `question_fields` does for questions."""
    keys = _keys(records)
    used = {path for paths in configured.values() if paths is not None for path in ((paths,) if isinstance(paths, str) else paths)}
    guesses: dict[str, tuple[str, ...]] = {}
    for role, names in _DOCUMENT_NAMES.items():
        if role not in configured and (name := _first(keys, names, used)) is not None:
            used.add(name)
            guesses[role] = (name,)
    fields = _mapping(records, configured, DOCUMENT_ROLES, guesses, where)
    if "text" not in fields:
        raise _no_field("text", records, where, "document_fields: {text: NAME}")
    return fields


def known_questions(keys: Iterable[str]) -> list[str]:
    """Return the field names that commonly contain a question."""
    return [key for key in keys if _plain(key) in _NAMES["question"]]


def _no_field(role: str, records: Sequence[Mapping[str, Any]], where: str, remedy: str) -> UserError:
    paths = {name: path for name in (role, "answers") if (path := _nested(records, name))}
    return UserError(
        f"no field has the role {role}: the fields are {', '.join(map(repr, _keys(records))) or 'none'}",
        code="unknown-fields",
        where=where,
        try_this=f"fields: {{{', '.join(f'{name}: {path}' for name, path in paths.items())}}}"
        if role in paths
        else f"{remedy}; a table needs a first line with the names of its columns",
    )


def _nested(records: Sequence[Mapping[str, Any]], role: str) -> str | None:
    """Return the path of the first field within an object of a record that has a common name for a role. Answers in an object such as
    LangSmith's `reference_outputs` go before those in `outputs`, which may be a model's.
    """
    objects = [(key, value) for record in records for key, value in record.items() if isinstance(value, Mapping)]
    if role == "answers":
        objects.sort(key=lambda item: not _plain(item[0]).startswith(("reference", "expected", "gold", "ground_truth")))
    names = ((key, _first(value, _NAMES.get(role, ()), ())) for key, value in objects)
    return next((f"{key}.{name}" for key, name in names if name is not None), None)


def _keys(records: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for record in records for key in record))


def _mapping(
    records: Sequence[Mapping[str, Any]], configured: Given, roles: Mapping[str, str], guesses: Mapping[str, tuple[str, ...]], where: str
) -> Fields:
    paths: dict[str, tuple[str, ...]] = {}
    for role, named in configured.items():
        if role not in roles:
            raise unknown_name("role of a field", role, roles, where=where)
        if named is not None:
            paths[role] = (named,) if isinstance(named, str) else tuple(named)
    keys = _keys(records)
    for role, named_paths in paths.items():
        for path in named_paths:
            if path != ROW and not path.endswith("?") and path not in keys and top(path) not in keys:
                error = unknown_name("field", path, keys, where=f"{where}, {role}: {path}")
                error.also_try(f"the first records have {', '.join(keys)}; a field that only later records have ends in ?: {path}?")
                raise error
    guessed = {role: guess for role, guess in guesses.items() if role not in configured}
    whole = {role: {**paths, **guessed}[role] for role in roles if role in paths or role in guessed}
    used = {path if path in keys else top(path) for named_paths in whole.values() for path in named_paths}
    return Fields(whole, frozenset(guessed), tuple(key for key in keys if key not in used))


def _plain(name: str) -> str:
    """Return a field name as in `_NAMES`: `goldAnswer` as `gold_answer`. A name such as `__expected` (promptfoo's assertions) stays."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
    return name if words.startswith("__") else re.sub(r"[\W_]+", "_", words.casefold()).strip("_")


def _first(keys: Iterable[str], names: Sequence[str], used: Iterable[str]) -> str | None:
    known = {_plain(key): key for key in reversed([key for key in keys if key not in used])}
    return next((known[plain] for name in names if (plain := _plain(name)) in known), None)


def _answer_field(records: Sequence[Mapping[str, Any]], used: Iterable[str], where: str) -> str | None:
    """Guess the field with the accepted answers.

    Raises:
        UserError: Two fields could hold them, with different texts: one may hold a model's answers.
    """
    keys = _keys(records)
    first = _first(keys, _NAMES["answers"], used)
    if first is None or _plain(first) not in _EITHER:
        return first
    decisions = {text for record in records for text in _texts(record.get(first))}
    if "_task_hash" in keys and decisions and decisions <= _DECISIONS:
        raise UserError(
            f"the field {first} of Prodigy's records holds the annotator's decisions ({', '.join(sorted(decisions))}), not answers",
            code="annotation-decisions",
            where=where,
            try_this="leave out the rejected records, and name the field of the answers: fields: {answers: NAME}, or {answers: null}",
        )
    if (certain := _first(keys, _CERTAIN, used)) is not None:
        return certain
    others = [name for name in _NAMES["answers"] if name not in _EITHER]
    second = _first(keys, others, used)
    pairs = [(record.get(first), record.get(second)) for record in records] if second is not None else []
    if any(_texts(one) and _texts(other) and not set(_texts(one)) & set(_texts(other)) for one, other in pairs):
        raise UserError(
            f"two fields could hold the accepted answers: {first} and {second}",
            code="two-answer-fields",
            where=where,
            try_this=f"name the field: fields: {{answers: {second}}}, or {{answers: {first}}}",
        )
    return first


def _texts(value: Any) -> list[str]:
    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str) and item.strip()]


def _guessed(records: Sequence[Mapping[str, Any]], configured: Given, where: str) -> dict[str, tuple[str, ...]]:
    keys = _keys(records)
    named = [path for paths in configured.values() if paths is not None for path in ((paths,) if isinstance(paths, str) else paths)]
    used = {path if path in keys else top(path) for path in named}
    result: dict[str, tuple[str, ...]] = {}
    for role in ROLES:
        if role in configured or role not in _NAMES:
            continue
        key = _answer_field(records, used, where) if role == "answers" else _first(keys, _NAMES[role], used)
        if role == "evidence" and key is not None and "quotes" not in configured and _sentences(records, key):
            used.add(key)
            result.update(_inner("quotes", key, next(record[key] for record in records if record.get(key))))
            key = _first(keys, _NAMES["evidence"], used)
        if key is None or role in result or (role in ("start", "end") and not {"evidence"} & {*result, *configured}):
            continue
        used.add(key)
        sample = next((record[key] for record in records if record.get(key) not in (None, "", [], {})), None)
        result.update(_inner(role, key, sample))
    if "answers" in result and "answers" not in configured and (other := _first(keys, _ALIASES, used)) is not None:
        result["answers"] = (*result["answers"], f"{other}?")
    return result


def _sentences(records: Sequence[Mapping[str, Any]], key: str) -> bool:
    """Return whether most texts of a field are sentences, not names of documents."""
    texts = [text for record in records for text in _texts(record.get(key))]
    return 2 * sum(len(text.split()) > 5 and text.rstrip(" \n\"'”’»)").endswith((".", "!")) for text in texts) > len(texts)


def passage_text(item: Mapping[str, Any]) -> str | None:
    """Return the name of the field with a passage's text; None if the object has no such field."""
    return _first(item, _INNER["documents"], ())


def _inner(role: str, key: str, sample: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the roles that a field's values contain: a text, a list of texts, or objects with texts."""
    first = sample[0] if isinstance(sample, list) and sample else None
    if role == "documents" and isinstance(first or sample, dict):
        inner: Mapping[str, Any] = first or sample
        for part, names in _INNER.items() if passage_text(inner) is not None else ():
            name = _first(inner, names, ())
            if name is not None:
                path = f"{key}[].{name}" if first else f"{key}.{name}" + "[]" * isinstance(sample[name], list)
                yield part, (path + "?" * (part != "documents"),)
    elif role == "answers" and isinstance(first or sample, dict) and (name := _first(first or sample, _ANSWER_TEXTS, ())) is not None:
        path = f"{key}[].{name}" if first else f"{key}.{name}" + "[]" * isinstance(sample[name], list)
        aliases = [] if first else [f"{key}.{other}[]?" for other in sample if _plain(other) in _ALIASES]
        yield role, (path, *aliases)
    elif role == "question" and isinstance(sample, Mapping) and (name := _first(sample, _NAMES["question"], ())) is not None:
        yield role, (f"{key}.{name}",)
    elif (role == "type" and isinstance(sample, dict | list)) or (role == "turns" and not (isinstance(first, dict) and "role" in first)):
        return
    else:
        yield role, (f"{key}[]" if isinstance(sample, list) and role in ("documents", "spans", "quotes", "turns") else key,)
