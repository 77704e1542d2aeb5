"""Trees of page elements: the only way in which stored text reaches a page.

Names, answers and passages are untrusted text. They are leaves of a tree that the browser builds with
`createElement` and `textContent` (`assets/view.js`); no string is ever parsed as HTML or Markdown. Tags and
attributes come from the short lists below, which the browser checks once more.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol
from urllib.parse import urlsplit

_LONGEST = 200
_PLACE = re.compile(r"(?:/|[A-Za-z]:[\\/])[^\s\"']+")
_PARTS = 3
"""Number of path components on pages; readers of a board need not know the server's folders."""


def flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, leaf) pairs of a JSON value; null and empty objects and lists are left out."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from flat(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        for position, item in enumerate(value):
            yield from flat(item, f"{key}[{position}]")
    elif value is not None and value != []:
        yield key, value


def show_value(value: Any) -> str:
    """Format a setting as text: strings unchanged except for folder paths, everything else as JSON, truncated if it is long."""
    text = _placed(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _placed(text: str) -> str:
    """Shorten a local path to its last components."""
    if not _PLACE.fullmatch(text):
        return text
    parts = [part for part in re.split(r"[/\\]", text) if part]
    return text if len(parts) <= _PARTS else "…/" + "/".join(parts[-_PARTS:])


_TAGS = """a button caption dd details div dl dt em h1 h2 h3 li mark ol p section small span strong summary table
tbody td th thead tr ul"""
TAGS = frozenset(_TAGS.split())
ATTRIBUTES = frozenset({"colspan", "href", "key", "label", "open", "pressed", "role", "scope", "sort", "title"})
_QUOTED = re.compile(r"`([^`\n]+)`")
_CLASSES = re.compile(r"[a-z][a-z0-9-]*( [a-z][a-z0-9-]*)*")


class Part(Protocol):
    """Element or chart: what a page consists of."""

    def to_json(self) -> list[Any]:
        """Serialize it for `view.js`."""
        ...


@dataclass(frozen=True, slots=True)
class Node:
    """Element of a page (a small virtual DOM), which `view.js` turns into HTML.

    Attributes:
        tag: One of `TAGS`.
        children: Elements, charts and plain text.
        classes: Style classes, space-separated.
        attributes: By a name of `ATTRIBUTES`.
        tip: Help text shown on hover and on keyboard focus.
        action: Changes of the page's URL parameters on a click.
        numbers: Numbers passed to the style sheet as custom properties.
    """

    tag: str
    children: tuple[Part | str, ...] = ()
    classes: str = ""
    attributes: Mapping[str, str | bool] = field(default_factory=dict)
    tip: str = ""
    action: Mapping[str, str | None] | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> list[Any]:
        """Serialize the element as `[tag, classes, children, more]`, which `view.js` renders.

        `more` maps "attributes", "tip", "action" and "numbers" to what the element has of them; it is left out if it is empty.
        """
        children = [child if isinstance(child, str) else child.to_json() for child in self.children]
        if not (self.attributes or self.tip or self.action or self.numbers):
            return [self.tag, self.classes, children]
        every = (("attributes", self.attributes), ("tip", self.tip), ("action", self.action), ("numbers", self.numbers))
        more = {name: value if isinstance(value, str) else dict(value) for name, value in every if value}
        return [self.tag, self.classes, children, more]

    def texts(self) -> Iterator[str]:
        """Yield all texts below this element, in reading order."""
        for child in self.children:
            if isinstance(child, str):
                yield child
            elif isinstance(child, Node):
                yield from child.texts()

    def find(self, *, tag: str | None = None, cls: str | None = None) -> Iterator[Node]:
        """Yield this element and its descendants with a given tag, class, or both."""
        if (tag is None or self.tag == tag) and (cls is None or cls in self.classes.split()):
            yield self
        for child in self.children:
            if isinstance(child, Node):
                yield from child.find(tag=tag, cls=cls)


def el(
    tag: str,
    *children: Part | str | None,
    cls: str = "",
    tip: str = "",
    action: Mapping[str, str | None] | None = None,
    numbers: Mapping[str, float] | None = None,
    **attributes: str | bool | None,
) -> Node:
    """Make an element; None among children and attributes is left out.

    Raises:
        ValueError: The tag, attribute or class is not among those that pages use, so it could come from untrusted data.
    """
    if tag not in TAGS:
        raise ValueError(f"pages have no element {tag!r}")
    if cls and not _is_class(cls):
        raise ValueError(f"{cls!r} is not a list of style classes")
    options = {name: value for name, value in attributes.items() if value is not None} if attributes else {}
    if options and not options.keys() <= ATTRIBUTES:
        raise ValueError(f"elements have no attribute {min(options.keys() - ATTRIBUTES)!r}")
    if "href" in options and not is_web_address(str(options["href"])):
        raise ValueError("only http and https addresses can be linked to")
    finite = {name: float(value) for name, value in numbers.items() if math.isfinite(float(value))} if numbers else {}
    return Node(tag, tuple(c for c in children if c is not None), cls, options, tip, action, finite)


@cache
def _is_class(cls: str) -> bool:
    return bool(_CLASSES.fullmatch(cls))


def is_web_address(text: str) -> bool:
    """Return whether a text is an absolute http(s) address without characters that browsers strip or reinterpret."""
    if re.search(r"[\x00-\x20\x7f\\]", text):
        return False
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme.lower() in {"http", "https"} and bool(parts.netloc)


def link(text: str, address: str | None) -> Node:
    """Make a link if the address is http(s); otherwise show the address as text."""
    if address and is_web_address(address):
        return el("a", text, href=address)
    return el("span", f"{text} ({address})" if address else text)


def badge(text: str, kind: str = "", tip: str = "") -> Node:
    """Make a small label (badge)."""
    return el("span", text, cls=f"badge {kind}".strip(), tip=tip)


def named(name: Node | str, *marks: Node | None) -> Node:
    """Make the name of a method, followed by its labels."""
    title = name if isinstance(name, str) else None
    return el("span", el("span", name, cls="method", title=title), *marks)


def aside(text: str) -> Node:
    """Make small text next to a name."""
    return el("span", text, cls="aside")


def note(text: str) -> Node:
    """Make a paragraph of small text that explains what is above it."""
    return el("p", text, cls="note")


def section(title: str, *parts: Part | None) -> Node:
    """Make a part of a page: a heading and what is below it."""
    return el("div", el("h2", title, cls="section"), *parts, cls="stack")


def button(text: str, key: str, action: Mapping[str, str | None], *, pressed: bool | None = None, label: str | None = None) -> Node:
    """Make a button that looks like a link; `pressed`: whether its choice is the current one; None if it is not a choice."""
    return el("button", text, cls="turn", key=key, pressed=None if pressed is None else str(pressed).lower(), action=action, label=label)


def fold(title: str, small: str, *content: Node | None, key: str, marks: Sequence[Node] = (), opened: bool = False) -> Node:
    """Make a frame whose content is hidden until a click on its title; `opened`: whether the content is shown at first."""
    head = el("summary", el("span", title, cls="method"), aside(small) if small else None, *marks)
    return el("details", head, *content, cls="evidence", key=key, open=opened or None)


def fold_facts(title: str, value: Any, key: str, *, opened: bool = False) -> Node:
    """Make a folded table of the keys and leaves of a JSON value."""
    rows: list[tuple[str, Node | str]] = [(name, show_value(inner)) for name, inner in flat(value)]
    return fold(title, f"{len(rows):,} {'entry' if len(rows) == 1 else 'entries'}", facts(rows, title), key=key, opened=opened)


def prose(text: str) -> tuple[Node | str, ...]:
    """Split a text so that `words in backticks` become code elements; everything else stays unchanged."""
    parts = _QUOTED.split(text)
    return tuple(el("span", part, cls="code") if at % 2 else part for at, part in enumerate(parts) if part)


def message(title: str, text: str, steps: tuple[str, ...] = ()) -> Node:
    """Make the content of a page without data: the reason, and the commands to run next."""
    commands = [el("li", el("span", step, cls="command")) for step in steps]
    return el("section", el("h2", title), el("p", *prose(text)), el("ul", *commands) if commands else None, cls="message")


def grid(caption: str, heads: Sequence[Node], rows: Sequence[Node], key: str, cls: str = "board", label: str = "") -> Node:
    """Build a scrollable table from finished heads and rows; `label` names its region if it is not the caption."""
    table = el("table", el("caption", caption, cls="unseen"), el("thead", el("tr", *heads)), el("tbody", *rows), cls=cls)
    return el("div", table, cls="scroll", key=key, role="region", label=label or caption)


CONTROLS = "Controls see the gold answers or evidence: they show attainable bounds and are not ranked"


def divider(text: str, columns: int) -> Node:
    """Make a table row that is a title for the rows below it."""
    return el("tr", el("th", el("span", text, cls="divider-text"), colspan=str(columns), scope="colgroup"), cls="divider")


def line_of_facts(parts: Iterable[str], cls: str = "facts") -> Node:
    """Join short facts into one line; empty ones are left out."""
    return el("p", *(el("span", part, cls="fact") for part in parts if part), cls=cls)


def facts(rows: Sequence[tuple[str, Node | str]], label: str = "Facts") -> Node:
    """Build a two-column table of names and values; empty values are left out. `label`, its name for screen readers, is unique."""
    lines = [el("tr", el("th", name, scope="row", cls="aside"), el("td", value, cls="wide")) for name, value in rows if value != ""]
    return el("div", el("table", el("tbody", *lines), cls="board answers"), cls="scroll", role="region", label=label)
