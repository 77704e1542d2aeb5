"""The card of a submission: what was run, on what, by whom, and what it was trained on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, Field, ValidationError, field_validator

from benchmarks import registry as datasets
from benchmarks.core.errors import UserError, first_error, in_words, nearest
from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.models import FrozenModel
from benchmarks.core.yaml import Located, line_numbers, not_yaml
from benchmarks.registry import DatasetConfig
from benchmarks.settings import Setting
from results.offered import LIMITS
from results.store.redaction import echoed, without_secrets

# YAML reduced to what a card needs: mappings, lists and text, read without making anything else.
# Aliases, anchors, tags, several documents and deep nesting are refused while the text is scanned, before a single
# value exists. Every scalar stays the text that was written (`version: 1.10` is "1.10", `no` is "no"); the card's types
# say what is a number.


_NULL = {"", "~", "null", "Null", "NULL"}
# Characters that move the cursor or turn the direction of text: nothing that a card says needs them.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def read(raw: bytes, name: str, *, size: int = LIMITS.card_bytes, depth: int = LIMITS.card_depth) -> Located:
    """Parse a card's YAML into a tree that remembers line numbers.

    Raises:
        UserError: The document is too long, too deeply nested, not UTF-8, not YAML, or uses YAML features that cards must not
            use.
    """
    if len(raw) > size:
        raise UserError(f"the card is longer than {size // 1024} KiB", code="card-too-large", where=name, try_this="shorten it")
    text = _decoded(raw, name)
    try:
        _scan(text, name, depth)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise not_yaml(error, name) from None
    value = _value(node, name) if node is not None else None
    return Located(name, value, line_numbers(node, name))


def _decoded(raw: bytes, name: str) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"byte 0x{raw[error.start]:02x} is not UTF-8", code="not-utf8", where=f"{name}:{line}", try_this="save the card as UTF-8"
        ) from None
    return text.replace("\r\n", "\n")


def _scan(text: str, name: str, depth: int) -> None:
    """Check a card's YAML as events, which contain one value at a time."""
    level = documents = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else 1
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1:
            raise UserError(
                "a card is one YAML document", code="card-with-several-documents", where=f"{name}:{line}", try_this="remove the second one"
            )
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise UserError(
                "a card has no aliases or anchors (& and *)",
                code="card-with-aliases",
                where=f"{name}:{line}",
                try_this="write the value out, or quote the text",
            )
        if tag := getattr(event, "tag", None):
            raise UserError(
                f"a card has no tags, here {tag[:40]!r}",
                code="card-with-tags",
                where=f"{name}:{line}",
                try_this="remove it: a card cannot construct objects",
            )
        level += isinstance(event, yaml.CollectionStartEvent)
        level -= isinstance(event, yaml.CollectionEndEvent)
        if level > depth:
            raise UserError(f"the card is nested deeper than {depth} levels", code="card-too-deep", where=f"{name}:{line}")


def _value(node: yaml.Node, name: str) -> Any:
    if isinstance(node, yaml.MappingNode):
        results: dict[str, Any] = {}
        for key, child in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise UserError("keys of the card must be text", code="key-not-word", where=f"{name}:{key.start_mark.line + 1}")
            _check_visible(key, name)
            results[key.value] = _value(child, name)
        return results
    if isinstance(node, yaml.SequenceNode):
        return [_value(child, name) for child in node.value]
    assert isinstance(node, yaml.ScalarNode)  # aliases were refused, so there is nothing else
    _check_visible(node, name)
    return None if node.style is None and node.value in _NULL else node.value


def _check_visible(node: yaml.ScalarNode, name: str) -> None:
    # Here and not in the text: an escape in quotes makes any character.
    hidden = _UNSEEN.search(node.value)
    if hidden:
        raise UserError(
            f"the card holds the invisible character U+{ord(hidden[0]):04X}",
            code="card-invisible-character",
            where=f"{name}:{node.start_mark.line + 1}",
            try_this="remove it",
        )


FORMAT = 1
SCORE_KEYS = ("score", "scores", "result", "results", "metric", "metrics")
"""Keys of users' own scores, which are refused because ragmeter computes the scores."""
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$"


def _web_address(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s<>\"'`\\]{1,500}", text):
        raise ValueError("write an address that begins with http:// or https://")
    return text


Web = Annotated[str, AfterValidator(_web_address)]
Short = Annotated[str, Field(max_length=500)]
Long = Annotated[str, Field(max_length=10_000)]


class MethodPart(FrozenModel):
    """The `method` section of a card: the submitted method."""

    name: str = Field(pattern=_NAME, description="letters, digits and . _ + - ; with the version, the row's name")
    version: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,31}$", description="change it when answers change")
    description: Long = ""
    authors: tuple[Short, ...] = Field((), max_length=200)
    url: Web | None = Field(None, description="code or home page")
    paper: Short = ""
    license: Short = ""
    parameters: int | None = Field(None, ge=0, lt=10**16, description="of all models together")
    open_weights: bool | None = None

    @property
    def label(self) -> str:
        """Return the method's name and version, as shown in tables."""
        return f"{self.name}@{self.version}"


class ModelPart(FrozenModel):
    """Entry of a card's model list: a model that the method used."""

    role: Short = Field(description="retriever, reranker, compressor, reader, …")
    id: Short = Field(description="hub id, API model name, path in a release")
    revision: Short = ""


class TrainingPart(FrozenModel):
    """Entry of a card's training data: data that the method, or a model in it, was trained or tuned on."""

    reference: str | None = Field(None, max_length=200, description="name[/subset]:split, where ragmeter knows the data")
    name: Short = Field("", description="other data, in words")
    url: Web | None = None
    note: Long = ""
    seeds: Short = Field("", description="of worlds: 0-99, 150")
    question_ids: tuple[Annotated[str, Field(max_length=512)], ...] = Field(
        (), description="ids of the questions used, if only a part of a split"
    )


class Card(FrozenModel):
    """Validated card of a submission: benchmark, setting, method, models and training data."""

    format: int = Field(FORMAT, ge=1, le=FORMAT, description="version of this file's form")
    method: MethodPart
    benchmark: str = Field(max_length=200, description="name[/subset][:split]")
    setting_text: str = Field(alias="setting", max_length=200)
    limit: int | None = Field(None, ge=1, description="only the first questions")
    config: dict[str, Any] = Field(default_factory=dict, description="the dataset's options, as in an experiment")
    seed: int = Field(0, ge=0, lt=2**32, description="random seed of the setting")
    dataset_fingerprint: str | None = Field(None, pattern=r"^[0-9a-f]{16}$", description="checked where given")
    retrieval_only: bool = Field(False, description="rankings without answers: answer metrics are left out")
    models: tuple[ModelPart, ...] = Field((), max_length=100)
    training_data: tuple[TrainingPart, ...] = Field(max_length=1000)
    settings: dict[str, Any] = Field(default_factory=dict, description="hyper-parameters, prompts, in any form")
    hardware: Long = ""
    contact: Short = ""
    notes: Long = ""

    @field_validator("setting_text")
    @classmethod
    def _canonical(cls, text: str) -> str:
        return str(Setting.parse(text))

    @property
    def setting(self) -> Setting:
        """Parse the retrieval setting that the card names."""
        return Setting.parse(self.setting_text)

    def to_json(self) -> dict[str, Any]:
        """Return the card as a JSON object; `parse_card` of it as YAML gives an equal card."""
        return self.model_dump(mode="json", by_alias=True)

    @property
    def digest(self) -> str:
        """Return a hash of the card's content."""
        return fingerprint(self.to_json())


def parse_card(raw: bytes, name: str) -> Card:
    """Parse and validate a card.

    Args:
        raw: The YAML document.
        name: Name of the file for errors.

    Raises:
        UserError: The card is invalid; the message names file, line and the nearest valid key.
    """
    document = read(raw, name)
    if not isinstance(document.value, Mapping):
        raise UserError("a card is a mapping of keys", code="card-not-mapping", where=f"{name}:1", try_this="ragmeter submit template")
    _refuse_scores(document)
    try:
        card = Card.model_validate(document.value)
    except ValidationError as error:
        raise _explained(error, document) from None
    except UserError as error:
        # The setting's own grammar knows best what is wrong with it.
        raise UserError(error.what, code=error.code, where=document.where(("setting",)), try_this=error.try_this) from None
    _check_config(card, document)
    for index, data in enumerate(card.training_data):
        at = document.where(("training_data", index))
        if not (data.reference or data.name):
            raise UserError("training data need a `reference` or a `name`", code="training-data-without-name", where=at)
        if data.reference:
            try:
                datasets.resolve(data.reference)
            except UserError as error:
                hint = f"{error.try_this}; data that ragmeter does not know go under `name`"
                raise UserError(error.what, code=error.code, where=at, try_this=hint) from None
    return card


def card_yaml(card: Card) -> str:
    """Write a card as YAML; `parse_card` of the result gives an equal card."""
    return yaml.safe_dump(card.to_json(), allow_unicode=True, sort_keys=False, width=110)


def _refuse_scores(document: Located) -> None:
    for path in ((), ("method",)):
        part = document.value.get(path[0]) if path else document.value
        for key in SCORE_KEYS:
            if isinstance(part, Mapping) and key in part:
                raise UserError(
                    f"a card has no {key!r}: scores are always computed here, from the predictions",
                    code="card-with-scores",
                    where=document.where((*path, key)),
                    try_this="remove it",
                )


def _check_config(card: Card, document: Located) -> None:
    try:
        _, entry = datasets.resolve(card.benchmark)
    except UserError as error:
        raise UserError(error.what, code=error.code, where=document.where(("benchmark",)), try_this=error.try_this) from None
    if "path" in card.config:
        # An untrusted card must not say which file of this machine is opened.
        raise UserError(
            "a card must not refer to files of the machine that checks it",
            code="card-names-local-file",
            where=document.where(("config", "path")),
            try_this="remove `path`; the reviewer has the data in RAGMETER_DATA",
        )
    try:
        options = entry.config.model_validate(card.config)
    except ValidationError as error:
        raise _explained(error, document, ("config",), entry.config) from None
    if excess := options.excess():
        name, limit = excess
        raise UserError(
            f"{name}: {echoed(card.config.get(name), ('config', name))} is more than this check computes; the limit is {limit}",
            code="card-too-much-work",
            where=document.where(("config", name)),
            try_this="lower it, or split the data into several submissions",
        )


def dataset_options(card: Card) -> DatasetConfig:
    """Return the options with which the card's benchmark must be loaded."""
    _, entry = datasets.resolve(card.benchmark)
    return entry.config.model_validate(card.config)


def _explained(error: ValidationError, document: Located, prefix: tuple[str, ...] = (), model: type[BaseModel] = Card) -> UserError:
    first = first_error(error)
    path = (*prefix, *first["loc"])
    where = without_secrets(document.where(path))
    more = len(error.errors()) - 1
    also = f" (and {more} more)" if more else ""
    if first["type"] == "extra_forbidden":
        known = _keys(model, first["loc"][:-1])
        guess = nearest(str(path[-1])[:64], known)
        hint = f"did you mean {guess!r}?" if guess else "known keys: " + ", ".join(sorted(known))
        return UserError(f"unknown key {echoed(str(path[-1]), longest=82)}{also}", code="unknown-key", where=where, try_this=hint)
    if first["type"] == "missing":
        hint = "training_data: [] means that nothing was trained" if path[-1] == "training_data" else f"{path[-1]}: …"
        return UserError(f"key {str(path[-1])!r} is missing{also}", code="key-missing", where=where, try_this=hint)
    named, wrong = ".".join(map(str, path)), without_secrets(in_words(first))
    return UserError(f"{named}: {wrong}, got {echoed(first.get('input'), path)}{also}", code="bad-card", where=where)


_PARTS: dict[str, type[BaseModel]] = {"method": MethodPart, "models": ModelPart, "training_data": TrainingPart}


def _keys(model: type[BaseModel], path: tuple[str | int, ...]) -> list[str]:
    part = _PARTS.get(str(path[0]), model) if path else model
    return [field.alias or name for name, field in part.model_fields.items()]
