"""Read and render the prompts of methods and judges, which are template files in one format.

A file is text with the placeholders of `string.Template` (`$question`; a dollar sign is written `$$`), in parts with a
line `---` between them. The first line of a part states what the part is:

    system | user | assistant   a message; parts of one role that follow each other are one message
    user each                   the same, repeated for every passage (`assistant each` likewise)
    or                          another wording of the part above
    text                        a piece of a prompt without a chat format; every piece is tokenized by itself
    options                     in the first part only: YAML with the fields of `Options`

If no part states a role, the file has the user's message, or the system's message and the user's. Inserted text is
never searched for placeholders. A user's own file replaces a template that ships (`Shipped`) if it has the same
placeholders. A system with released checkpoints uses the prompt that its authors published (`published`), unless its
option `prompt` is `ours` or a file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from string import Template
from typing import Any, Literal, get_args

import yaml
from pydantic import Field, ValidationError

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import content_hash
from benchmarks.core.models import FrozenModel
from benchmarks.published_prompts import Published, Text, as_template, digest, registry, texts_of

Messages = list[dict[str, str]]
Role = Literal["system", "user", "assistant", "text"]
ROLES: tuple[str, ...] = get_args(Role)
EACH, OR, OPTIONS = "each", "or", "options"
OURS, PUBLISHED = "ours", "published"
"""Values of an option `prompt`: the shipped template, or the one that the authors published."""
_DIVIDER = re.compile(r"\n---[ \t]*\n")
_ROLE_LINE = r"[ \t#*]*(?:system|user|assistant)[ \t]*:?[ \t*]*\n"
_MISWRITTEN = re.compile(rf"\s*(?:-{{2,}}[ \t]*\n)?{_ROLE_LINE}", re.IGNORECASE)
_MISDIVIDED = re.compile(rf"\n(?:-{{2,}}|={{3,}}|\*{{3,}}|_{{3,}})[ \t]*\n{_ROLE_LINE}", re.IGNORECASE)
"""Patterns of role lines and dividers in another form, which would be sent to the model as text."""
_FORMAT = "begin each part with a line system, user, assistant or text"


class Options(FrozenModel):
    """Options for rendering and continuing a prompt, set by its template."""

    bos: Literal["tokenizer", "always", "none"] = Field(
        "tokenizer",
        description="special tokens before the text: those that the tokenizer adds, unless the text has them; always: even if "
        "the text has them",
    )
    joined: str = Field("\n\n", description="separator of system and user message if a chat template has no system role")
    replaced: tuple[tuple[str, str], ...] = Field(
        (), description="pairs of texts: in a filled message, the first is replaced by the second"
    )
    memories: str = Field("", description="separator of the passages' memories, for readers of memory")
    whitespace: Literal["strip", "keep"] = Field(
        "strip",
        description="strip: a message's template loses white space at its ends, and its parts are joined by a line break; keep: "
        "templates are used unchanged, without a line break between parts. `text` parts are always kept",
    )
    passages: Literal["flat", "kept", "decoded", "titled", "labeled"] = Field(
        "flat",
        description="how rerankers show passages. flat: title and text on one line, with references such as [3] written as in "
        "the system's own prompt; kept: passages and query unchanged; decoded: unchanged, without special tokens in "
        "passages; titled: on one line, `Title: … Content: …`, with plain characters; labeled: like titled, with "
        "characters and references unchanged",
    )
    stop: tuple[str, ...] = Field((), description="texts that end a reply")
    max_tokens: int | None = Field(None, ge=1, description="longest reply in tokens")


BY_DEFAULT = Options.model_validate({})


@dataclass(frozen=True, slots=True)
class PromptPart:
    """One part of a template.

    Attributes:
        role: Role of its message, or `text`.
        text: The template.
        each: Whether it is repeated for every passage.
        others: Further wordings.
        between: Separator of its repetitions.
    """

    role: str
    text: str
    each: bool = False
    others: tuple[str, ...] = ()
    between: str = ""

    @property
    def placeholders(self) -> frozenset[str]:
        """Return the names of the part's placeholders."""
        return frozenset(name for text in (self.text, *self.others) for name in Template(text).get_identifiers())

    def fill(self, values: Mapping[str, object]) -> str:
        """Return the part's text with all placeholders replaced by values."""
        return Template(self.text).substitute(values)


@dataclass(frozen=True)
class Prompt:
    """A parsed prompt template.

    Attributes:
        source: The text of the template.
        parts: Its parts, in order.
        options: Its options.
    """

    source: str = field(repr=False)
    parts: tuple[PromptPart, ...]
    options: Options = BY_DEFAULT

    @property
    def hash(self) -> str:
        """Return a hash of the template's source text, for fingerprints."""
        return content_hash([self.source])

    @property
    def placeholders(self) -> frozenset[str]:
        """Return the names of all placeholders."""
        return frozenset().union(*(part.placeholders for part in self.parts))

    @property
    def system(self) -> str:
        """Return the template of the system message, "" if there is none."""
        return self._template("system")

    @property
    def user(self) -> str:
        """Return the template of the user's message, "" if there is none."""
        return self._template("user")

    def _template(self, role: str) -> str:
        return "\n".join(part.text for part in self.parts if part.role == role).strip()

    @property
    def texts(self) -> list[str]:
        """Return the templates of all parts, stripped."""
        return [part.text.strip() for part in self.parts]

    @property
    def wordings(self) -> int:
        """Return the number of alternative wordings."""
        return 1 + max(len(part.others) for part in self.parts)

    def with_wording(self, number: int) -> Prompt:
        """Return the prompt with one of its alternative wordings, counted from 0."""
        parts = tuple(replace(part, text=(part.text, *part.others)[number], others=()) if part.others else part for part in self.parts)
        return replace(self, parts=parts)

    def messages(self, each: Sequence[Mapping[str, object]] = (), /, **values: object) -> Messages:
        """Fill the template and return the chat messages; messages with an empty template are omitted.

        Args:
            each: Values for the parts that are repeated, one mapping per passage.
            values: Values for all parts.
        """
        turns: list[tuple[str, list[tuple[str, Mapping[str, object]]]]] = []
        for repeated, group in groupby(self.parts, key=lambda part: part.each):
            block = list(group)
            for number, own in enumerate(each if repeated else [{}]):
                for part in block:
                    if not turns or turns[-1][0] != part.role:
                        turns.append((part.role, []))
                    turns[-1][1].append((part.between + part.text if number else part.text, {**values, **own}))
        filled = ((role, self._joined(pieces)) for role, pieces in turns if any(text.strip() for text, _ in pieces))
        return [{"role": role, "content": self._replaced(content)} for role, content in filled]

    def _replaced(self, text: str) -> str:
        for old, new in self.options.replaced:
            text = text.replace(old, new)
        return text

    def _joined(self, pieces: Sequence[tuple[str, Mapping[str, object]]]) -> str:
        texts, mark = [text for text, _ in pieces], ""
        if self.options.whitespace == "strip":  # before anything is put in: what is put in keeps its white space
            texts[0], mark = texts[0].lstrip(), "\n"
            texts[-1] = texts[-1].rstrip()
        return mark.join(Template(text).substitute(own) for text, (_, own) in zip(texts, pieces, strict=True))

    def pair(self, **values: object) -> tuple[str, str]:
        """Return the filled system and user messages; "" for a missing one."""
        contents = {message["role"]: message["content"] for message in self.messages(**values)}
        return contents.get("system", ""), contents.get("user", "")

    def _begin(self, tokenizer: Any) -> list[int]:
        return [] if self.options.bos == "none" else beginning(tokenizer)

    def frame_ids(self, tokenizer: Any) -> list[int]:
        """Return the token ids of the template's fixed text (all `text` parts without placeholder values), for length budgets."""
        fixed = [ids for part in self.parts if not part.placeholders for ids in encoded(tokenizer, [part.text])]
        return _join(self._begin(tokenizer), fixed, self.options.bos == "always")

    def token_ids(
        self,
        tokenizer: Any,
        rows: Sequence[Mapping[str, object]],
        room: int | None = None,
        cut: str = "passage",
        most: Mapping[str, int] | None = None,
    ) -> list[list[int]]:
        """Render a prompt of `text` parts once per row of values and return its token ids.

        Every part is tokenized separately, so that its ends are token boundaries next to any other part.

        Args:
            tokenizer: A `transformers` tokenizer.
            rows: Values of the placeholders.
            room: Longest prompt in tokens. A longer prompt loses the end of the text of `$cut`.
            cut: The placeholder whose text may be cut.
            most: Maximum tokens of the parts with a placeholder, by its name.
        """
        begin, always = self._begin(tokenizer), self.options.bos == "always"
        columns = [
            encoded(tokenizer, [part.fill(row) for row in rows]) if part.placeholders else encoded(tokenizer, [part.text]) * len(rows)
            for part in self.parts
        ]
        limits = [min((most[name] for name in part.placeholders if most and name in most), default=None) for part in self.parts]
        results = []
        for row, pieces in zip(rows, zip(*columns, strict=True), strict=True):
            kept = [ids[:limit] for ids, limit in zip(pieces, limits, strict=True)]
            excess = 0 if room is None else len(_join(begin, kept, always)) - room
            if excess > 0:
                kept = [
                    _shortened(tokenizer, part, row, ids, excess, cut) if cut in part.placeholders else ids
                    for part, ids in zip(self.parts, kept, strict=True)
                ]
            results.append(_join(begin, kept, always))
        return results


def _shortened(tokenizer: Any, part: PromptPart, row: Mapping[str, object], ids: list[int], excess: int, cut: str) -> list[int]:
    """Return the ids of a part after cutting tokens from the text of a placeholder."""
    if part.text.endswith((f"${cut}", f"${{{cut}}}")):
        return ids[: max(0, len(ids) - excess)]
    most = len(ids) - excess
    text = str(row[cut])
    spans = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    while spans and len(ids) > most:  # tokens at the cut may merge or split, so the rest is tokenized again
        spans = spans[: max(0, len(spans) - (len(ids) - most))]
        (ids,) = encoded(tokenizer, [part.fill({**row, cut: text[: spans[-1][1]] if spans else ""})])
    return ids


def encoded(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Return token ids without special tokens."""
    if hasattr(tokenizer, "deprecation_warnings"):  # the caller cuts or refuses a text that is too long
        tokenizer.deprecation_warnings["sequence-length-is-longer-than-the-specified-maximum"] = True
    return [list(ids) for ids in tokenizer(list(texts), add_special_tokens=False)["input_ids"]] if texts else []


def plain_ids(tokenizer: Any, text: str) -> list[int]:
    """Return the token ids of a text without special tokens; text that looks like one is treated as text."""
    return list(tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])


def ids_behind_bos(tokenizer: Any, text: str) -> list[int]:
    """Tokenize a text as a continuation after the beginning-of-text token; special tokens in it keep their meaning.

    Some tokenizers split the first word of a text differently there.
    """
    begin = tokenizer.bos_token
    if not begin:
        return encoded(tokenizer, [text])[0]
    return list(tokenizer(f"{begin}{text}", add_special_tokens=False)["input_ids"])[1:]


def whole_ids(tokenizer: Any, texts: Sequence[str], bos: str = "tokenizer") -> list[int]:
    """Tokenize texts separately and concatenate them after the initial special tokens that `bos` selects (`Options.bos`)."""
    return _join([] if bos == "none" else beginning(tokenizer), encoded(tokenizer, texts), bos == "always")


def beginning(tokenizer: Any) -> list[int]:
    """Return the token ids of the special tokens that the tokenizer puts before a text (BOS if it adds one)."""
    plain, whole = encoded(tokenizer, ["a"])[0], list(tokenizer("a")["input_ids"])
    return whole[: next((at for at in range(len(whole)) if whole[at : at + len(plain)] == plain), 0)]


def _join(begin: Sequence[int], pieces: Iterable[Sequence[int]], always: bool = False) -> list[int]:
    ids = [number for piece in pieces for number in piece]
    return ids if ids[: len(begin)] == list(begin) and not always else [*begin, *ids]


def parse(text: str, where: str) -> Prompt:
    """Read a template.

    Args:
        text: Text in the format above.
        where: Its name in messages.

    Raises:
        UserError: A part does not state a role, an option is wrong, or a dollar sign is not escaped.
    """
    blocks = _DIVIDER.split(text)
    heads = [_head(block) for block in blocks]
    for head, block in zip(heads, blocks, strict=True):
        if wrong := _MISDIVIDED.search(block) or (_MISWRITTEN.match(block) if head is None else None):
            raise UserError(
                f"the prompt template has the role line {wrong[0].strip()!r}",
                code="bad-role-line",
                where=where,
                try_this="write the role in lower case without punctuation, and a line --- between parts",
            )
    if not any(heads):
        if len(blocks) > 2:
            raise UserError(
                f"the prompt template has {len(blocks)} parts, but none has a role",
                code="template-without-roles",
                where=where,
                try_this=_FORMAT,
            )
        parts = [PromptPart(role, block) for role, block in zip(("system", "user")[-len(blocks) :], blocks, strict=True)]
        return _checked(Prompt(text, tuple(parts)), where)
    options, parts = BY_DEFAULT, []
    for number, (head, block) in enumerate(zip(heads, blocks, strict=True)):
        body = block.partition("\n")[2]
        if head is None or (head[0] == OPTIONS and number) or (head[0] == OR and not parts):
            raise UserError(
                f"part {number + 1} of the prompt template begins with {block[:40].strip()!r}",
                code="bad-template-part",
                where=where,
                try_this=_FORMAT,
            )
        if head[0] == OPTIONS:
            options = _options(body, where)
        elif head[0] == OR:
            parts[-1] = replace(parts[-1], others=(*parts[-1].others, body))
        else:
            parts.append(PromptPart(head[0], body, EACH in head))
    return _checked(Prompt(text, tuple(parts), options), where)


def _head(block: str) -> list[str] | None:
    """Return the words of a part's heading; None if it has no heading."""
    words = block.partition("\n")[0].split()
    known = words[1:] in ([], [EACH]) if words and words[0] in ROLES[:3] else words in (["text"], [OR], [OPTIONS])
    return words if known else None


def _options(text: str, where: str) -> Options:
    try:
        return Options.model_validate(yaml.safe_load(text) or {})
    except (yaml.YAMLError, ValidationError) as error:
        known = ", ".join(Options.model_fields)
        raise UserError(
            f"the options of the prompt template cannot be read: {error}",
            code="unreadable-template-options",
            where=where,
            try_this=f"known are {known}",
        ) from None


def _checked(prompt: Prompt, where: str) -> Prompt:
    texts = [text for part in prompt.parts for text in (part.text, *part.others)]
    if not all(Template(text).is_valid() for text in texts):
        raise UserError(
            "the prompt template contains an unescaped dollar sign", code="template-lone-dollar", where=where, try_this="write it $$"
        )
    if not any(text.strip() for text in texts):
        raise UserError("the prompt template is empty", code="template-without-text", where=where, try_this=_FORMAT)
    if len({part.role == "text" for part in prompt.parts}) > 1:
        raise UserError(
            "the prompt template has both messages and parts `text`",
            code="template-messages-and-parts",
            where=where,
            try_this="use parts of one kind",
        )
    if len({len(part.others) for part in prompt.parts if part.others}) > 1:
        raise UserError(
            "parts of the prompt template have different numbers of wordings",
            code="template-wordings-differ",
            where=where,
            try_this="give each part the same number of wordings",
        )
    return prompt


@dataclass(frozen=True)
class Shipped:
    """A prompt template included in ragmeter, and the rules for a user's replacement file.

    Attributes:
        home: The package or folder whose folder `templates` contains it.
        name: Its path in that folder, without `.txt`.
        optional: Placeholders that a user's own file may leave out. It must have all others of the shipped template,
            and no additional ones.
        each: Placeholders that are filled once per passage.
        follows: Options besides `whitespace` that the caller supports. Others are refused.
        published: Name of the published prompt that can replace it; "" if there is none.
        released: Whether the published prompt is the default, because released checkpoints were trained with it.
    """

    home: str | Path
    name: str
    optional: frozenset[str] = frozenset()
    each: frozenset[str] = frozenset()
    follows: frozenset[str] = frozenset()
    published: str = ""
    released: bool = False

    def load(self, path: str | Path | None = None, shown: Collection[str] = (), own: Mapping[str, Text] | None = None) -> Prompt:
        """Return the shipped template, the published one, or a user's own file.

        Args:
            path: `ours`, `published` or a file; None: the published one if released checkpoints were trained with it, else ours.
            shown: Placeholders that have values; a published prompt shows some placeholders only then.
            own: Texts of the checkpoint that replace the published ones.

        Raises:
            UserError: The file cannot be read, is not a template, has other placeholders, or parts or options that have no
                effect here; or the published prompt cannot be downloaded.
        """
        if self.is_published(path):
            return published(self.published, shown, own=own)
        return _shipped(self.home, self.name) if path is None or path == OURS else self.check(read(path), str(path))

    def is_published(self, path: str | Path | None) -> bool:
        """Return whether `load` returns the published prompt."""
        return bool(self.published) and (path == PUBLISHED or (path is None and self.released))

    def hash(self, path: str | Path | None = None, shown: Collection[str] = (), own: Mapping[str, Text] | None = None) -> str:
        """Return the hash of the prompt that `load` returns, without downloading anything."""
        return published_hash(self.published, shown, own) if self.is_published(path) else self.load(path).hash

    def check(self, prompt: Prompt, where: str) -> Prompt:
        """Return a user's prompt if it can replace the shipped one: same placeholders, supported options.

        Raises:
            UserError: It cannot replace it.
        """
        ours = _shipped(self.home, self.name)
        known = ours.placeholders | self.optional
        try_this = f"use {', '.join(f'${name}' for name in sorted(known)) or 'no placeholder'}, and $$ for a dollar sign"
        if unknown := prompt.placeholders - known:
            raise UserError(
                f"the prompt template contains the unknown placeholder {min(unknown)!r}",
                code="template-unknown-placeholder",
                where=where,
                try_this=try_this,
            )
        if missing := ours.placeholders - self.optional - prompt.placeholders:
            raise UserError(
                f"the prompt template lacks ${min(missing)}", code="template-missing-placeholder", where=where, try_this=try_this
            )
        if outside := frozenset().union(*(part.placeholders for part in prompt.parts if not part.each)) & self.each:
            raise UserError(
                f"${min(outside)} is in a part that is not repeated for every passage",
                code="placeholder-not-repeated",
                where=where,
                try_this="user each, for example",
            )
        for kind, has in _KINDS.items():
            if has(prompt) and not has(ours):
                raise UserError(
                    f"the prompt template has {kind}, which have no effect here",
                    code="template-part-unused",
                    where=where,
                    try_this="leave them out",
                )
        if ignored := prompt.options.model_fields_set - {"whitespace"} - self.follows:
            raise UserError(
                f"the option {min(ignored)!r} of the template has no effect here",
                code="template-option-unused",
                where=where,
                try_this="leave it out",
            )
        if (ours.parts[0].role == "text") != (prompt.parts[0].role == "text"):
            wanted = "parts `text`" if ours.parts[0].role == "text" else "messages"
            raise UserError(f"the prompt template must be made of {wanted}", code="template-roles-mismatch", where=where, try_this=_FORMAT)
        return prompt

    def load_from(self, folder: str | Path | None, otherwise: str | Path | None = None) -> Prompt:
        """Return this template from a user's folder; if the folder lacks it, return `load(otherwise)`.

        Args:
            folder: The folder, or None.
            otherwise: Argument of `load`.

        Raises:
            UserError: The folder does not exist, or as in `load`.
        """
        return self.load(self._path(folder, otherwise))

    def hash_from(self, folder: str | Path | None, otherwise: str | Path | None = None) -> str:
        """Return the hash of the prompt that `load_from` returns, without downloading anything."""
        return self.hash(self._path(folder, otherwise))

    def _path(self, folder: str | Path | None, otherwise: str | Path | None) -> str | Path | None:
        if folder is None:
            return otherwise
        own = Path(folder).expanduser()
        if not own.is_dir():
            raise UserError("folder of prompts does not exist", code="missing-folder", where=str(own))
        file = own / f"{self.name.rpartition('/')[2]}.txt"
        return file if file.exists() else otherwise


_KINDS = {
    "parts `each`": lambda prompt: any(part.each for part in prompt.parts),
    "turns of an assistant": lambda prompt: any(part.role == "assistant" for part in prompt.parts),
    "several wordings": lambda prompt: prompt.wordings > 1,
}


def shipped(home: str | Path, *names: str, released: Collection[str] = (), **options: Iterable[str]) -> dict[str, Shipped]:
    """Return the templates of a package or folder by name.

    Args:
        home: The package or folder.
        names: Names of the templates.
        released: Templates that the published prompt of the same name replaces by default.
        options: Fields of `Shipped` that all templates share.
    """
    shared: dict[str, Any] = {name: frozenset(values) for name, values in options.items()}
    return {
        (short := name.rpartition("/")[2]): Shipped(
            home, name, **shared, published=short if short in registry() else "", released=short in released
        )
        for name in names
    }


@cache
def _shipped(home: str | Path, name: str) -> Prompt:
    folder = files(home) if isinstance(home, str) else home
    return parse((folder / "templates" / f"{name}.txt").read_text("utf-8"), f"{name}.txt")


def read(path: str | Path) -> Prompt:
    """Read a template file; `~` is the home folder.

    Raises:
        UserError: The file cannot be read, or as in `parse`.
    """
    try:
        text = Path(path).expanduser().read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the prompt template cannot be read: {error}", code="unreadable-template", where=str(path)) from None
    return parse(text, str(path))


def published(name: str, shown: Collection[str] = (), fetch: bool = True, own: Mapping[str, Text] | None = None) -> Prompt:
    """Return the prompt of released checkpoints as their authors published it (`benchmarks/published_prompts.yaml`).

    Args:
        name: Name in the registry.
        shown: Placeholders that have values. A prompt leaves out others, or has a default value for them.
        fetch: Whether to download it if it is not available locally.
        own: Texts of the checkpoint that replace the published ones.

    Raises:
        UserError: It cannot be downloaded, or is not the published one.
    """
    entry = registry()[name]
    every = texts_of(name, fetch) if own is None else own
    every = {key: text.strip() if isinstance(text, str) and key in entry.stripped else text for key, text in every.items()}
    texts = {key: text for key, text in every.items() if isinstance(text, str)}
    texts |= {key: texts[key].format(*fills) for key, fills in entry.blanks.items()}
    filled = {key: _filled(form, texts) for key, form in entry.filled.items()}
    texts |= {key: _literal(text) for key, text in (*filled.items(), *((key, texts[key]) for key in entry.literal))}
    wordings = {key: text for key, text in every.items() if not isinstance(text, str)}
    parts: list[PromptPart] = []
    for part in entry.parts:
        if part.get("without") in shown or ("with" in part and part["with"] not in shown):
            continue
        ((role, form),) = ((key, value) for key, value in part.items() if key not in ("with", "without"))
        several = next((key for key in wordings if f"${key}" in form), None)
        forms = [form] if several is None else [form.replace(f"${several}", text.replace("$", "$$")) for text in wordings[several]]
        made = [_published_parts(entry, role, Template(each).substitute(texts), texts, shown) for each in forms]
        parts += made[0] if several is None else [replace(made[0][0], others=tuple(part.text for (part,) in made[1:]))]
    return Prompt(published_hash(name, shown, own), tuple(parts), Options.model_validate(entry.options))


def _filled(form: Mapping[str, str], texts: Mapping[str, str]) -> str:
    """Return a text of the registry with its placeholders filled."""
    values = {name: Template(value).substitute(texts) for name, value in form.items() if name != "text"}
    return Template(as_template(Template(form["text"]).substitute(texts))).substitute(values)


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def published_hash(name: str, shown: Collection[str] = (), own: Mapping[str, Text] | None = None) -> str:
    """Return the hash of a published prompt without downloading it; computed from its registry entry and a checkpoint's own
    texts.
    """
    entry = registry()[name]
    fields = entry.model_dump(include={"sha256", "options", "parts", "documents", "names", "values"})
    fields |= {name: value for name in ("layout", "stripped", "blanks", "filled", "literal") if (value := getattr(entry, name))}
    fields |= {"sha256": digest(own)} if own else {}
    return content_hash([repr(fields), *sorted(shown)])


def _published_parts(entry: Published, role: str, text: str, texts: Mapping[str, str], shown: Collection[str]) -> list[PromptPart]:
    for name in entry.values.keys() - set(shown):
        value = Template(entry.values[name]).substitute(texts)
        value = value if entry.filled.keys() & Template(entry.values[name]).get_identifiers() else _literal(value)
        text = text.replace(f"{{{name}}}", value)

    def part(text: str, each: bool = False, between: str = "") -> PromptPart:
        return PromptPart(role.split()[0], as_template(text, **entry.names), each, between=between)

    if entry.documents is None or (mark := f"{{{entry.documents.placeholder}}}") not in text:
        return [part(text, EACH in role.split())]
    before, _, after = text.partition(mark)
    return [part(before), part(entry.documents.each, True, entry.documents.between), part(after)]
