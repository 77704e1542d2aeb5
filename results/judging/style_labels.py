"""Labels of style pairs by people: does a text have its style, keep the content of its source, read well?

A person labels by one criterion at a time. For `style`, sources and rewritings are mixed, and nothing says which is which.
Labels stay next to the pairs, in `PAIRS.labels.jsonl`. An item is the hash of the texts that were read, so a label counts
for as long as the pairs hold them.

Source: SARK, appendix A.3: four people labeled a fifth of the informal passages by style, content and fluency.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.core.errors import UserError, unwritable
from benchmarks.core.files import whole_text
from benchmarks.core.fingerprint import content_hash
from benchmarks.styles import FORMAL
from benchmarks.styles.pairs import StylePairs
from results.boards.markup import to_csv
from results.judging.labels import Imported, label_rows
from results.statistics.core import Estimate
from results.statistics.intervals import estimate
from results.statistics.judges import Agreement, fleiss_kappa, krippendorff_alpha
from results.store.annotations import REMOVED, annotator_name, worth

CRITERIA = ("style", "content", "fluency")
COLUMNS = ("item", "criterion", "source", "text", "label", "note")


@dataclass(frozen=True, slots=True)
class StyleItem:
    """Restyled text that a person labels by one criterion.

    Attributes:
        item: Hash of the text.
        style: The style that the text should have.
        source: The text in its original style; "" if it is not shown.
        text: The text to label.
        passage: Id of the passage, for clusters.
    """

    item: str
    style: str
    source: str
    text: str
    passage: str


@dataclass(frozen=True, slots=True)
class StyleLabel:
    """Human label of a restyled text: the name of a style, or how far a criterion holds (yes, no, or a number from 0 to 1)."""

    item: str
    criterion: str
    annotator: str
    label: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Checked:
    """Result of human checks of one style by one criterion.

    Attributes:
        style, criterion: The style and the criterion; style `formal` stands for the source texts.
        share: Mean over items of the mean over annotators, with an interval that treats passages as clusters.
        annotators: Number of annotators.
        alpha, kappa: Krippendorff's alpha, and Fleiss' kappa over the items that all annotators labeled. None with one
            annotator.
    """

    style: str
    criterion: str
    share: Estimate
    annotators: int
    alpha: Agreement | None
    kappa: Agreement | None


def items_of(pairs: StylePairs, criterion: str) -> list[StyleItem]:
    """List the items that can be labeled by a criterion; each text (or pair of texts) occurs once.

    Raises:
        UserError: The criterion is unknown.
    """
    if criterion not in CRITERIA:
        raise UserError(
            f"{criterion!r} is not a criterion of style pairs",
            code="unknown-style-criterion",
            where="--criterion",
            try_this=", ".join(CRITERIA),
        )
    items: dict[str, StyleItem] = {}
    for pair in pairs:
        if pair.styled is None:
            continue
        source, text = pair.formal.text, pair.styled.text
        shown = [(pair.style, source if criterion == "content" else "", text)]
        if criterion == "style":
            shown.append((FORMAL, "", source))
        for style, read, labeled in shown:
            name = content_hash([criterion, style if criterion == "style" else "", read, labeled])
            items.setdefault(name, StyleItem(name, style, read, labeled, pair.formal.id))
    return list(items.values())


def export_style_items(pairs: StylePairs, criterion: str, count: int, seed: int = 0) -> str:
    """Draw items at random for people to label, and return them as CSV; for criterion `style`, half of them are source texts.

    Raises:
        UserError: The criterion is unknown, or there are no pairs.
    """
    items = sorted(items_of(pairs, criterion), key=lambda item: content_hash([str(seed), criterion, item.item]))
    if not items:
        raise UserError("the file holds no pair to label", code="no-text-pairs", where="--style-pairs")
    if criterion == "style":
        own, sources = ([item for item in items if (item.style == FORMAL) is formal] for formal in (False, True))
        half = count - count // 2
        items = [*own[:half], *sources[: count - half]]
        # Else the order would say which texts are sources.
        items.sort(key=lambda item: item.item)
    return to_csv(COLUMNS, [[item.item, criterion, item.source, item.text, "", ""] for item in items[:count]])


def place(pairs: Path) -> Path:
    """Return the path of the label file that belongs to a file of style pairs."""
    return pairs.with_name(f"{pairs.name}.labels.jsonl")


def read_style_labels(pairs: Path) -> list[StyleLabel]:
    """Read all labels that belong to a file of style pairs.

    Raises:
        UserError: The label file is damaged.
    """
    path = place(pairs)
    if not path.exists():
        return []
    labels = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            labels.append(StyleLabel(**json.loads(line)))
        except (ValueError, TypeError):
            raise UserError(
                "this line is not a label of a style pair",
                code="bad-style-label-line",
                where=f"{path}, line {number}",
                try_this="remove the line; it can be imported again",
            ) from None
    return labels


def import_style_labels(pairs: StylePairs, file: Path, path: Path, annotator: str) -> Imported:
    """Import labels from a CSV that `export_style_items` wrote and a person filled in: either all rows or none.

    Args:
        pairs: The style pairs.
        file: File of the pairs.
        path: The filled-in CSV.
        annotator: Name of the person. Labels of the same person for the same item and criterion are replaced.

    Raises:
        UserError: A row has an unknown item, criterion or label, or the labels cannot be written.
    """
    before = read_style_labels(file)
    annotator = annotator_name(annotator, (item.annotator for item in before))
    known = {criterion: {item.item: item for item in items_of(pairs, criterion)} for criterion in CRITERIA}
    styles = {FORMAL, *(pair.style for pair in pairs)}
    added: dict[tuple[str, str], StyleLabel | None] = {}
    blank: list[tuple[str, str]] = []
    for where, row in label_rows(path):
        label, criterion, item = row["label"].strip().lower(), row["criterion"].strip(), row["item"].strip()
        if not label:
            blank.append((item, criterion))
            continue
        if item not in known.get(criterion, ()):
            raise UserError(
                f"{file} has no item {item[:40]!r} to label by {criterion!r}",
                code="unknown-style-item",
                where=where,
                try_this="the file of pairs that the items were exported from, with its texts as they were",
            )
        if (item, criterion) in added:
            raise UserError("this item is labeled twice", code="duplicate-label", where=where, try_this="keep one of the two rows")
        if label not in REMOVED:
            _check(label, criterion, styles, where)
        added[item, criterion] = None if label in REMOVED else StyleLabel(item, criterion, annotator, label, row["note"])
    kept = [item for item in before if item.annotator != annotator or (item.item, item.criterion) not in added]
    new = [item for item in added.values() if item is not None]
    lines = [json.dumps(asdict(item), ensure_ascii=False) for item in (*kept, *new)]
    try:
        whole_text(place(file), "".join(f"{line}\n" for line in lines))
    except OSError as error:
        raise unwritable(error, place(file)) from None
    gone = [item for item in before if item.annotator == annotator and (item.item, item.criterion) in added]
    removed = sum(added[item.item, item.criterion] is None for item in gone)
    mine = {(item.item, item.criterion) for item in kept if item.annotator == annotator}
    return Imported(len(new), len(blank), len(gone) - removed, kept=sum(key in mine for key in blank), removed=removed)


def _check(label: str, criterion: str, styles: Iterable[str], where: str) -> None:
    if criterion == "style":
        if label not in styles:
            wanted = ", ".join(sorted(styles))
            raise UserError(f"{label!r} is not a style of these pairs", code="bad-label", where=where, try_this=wanted)
        return
    if worth(label, criterion) is None:
        raise UserError(f"{label!r} is not a label", code="bad-label", where=where, try_this="yes, no, or a number from 0 to 1")


def checked(pairs: StylePairs, labels: Sequence[StyleLabel]) -> list[Checked]:
    """Summarize human labels by style and criterion; labels of texts that the pairs do not contain are ignored."""
    results = []
    for criterion in CRITERIA:
        items = {item.item: item for item in items_of(pairs, criterion)}
        mine = [label for label in labels if label.criterion == criterion and label.item in items]
        mine = [label for label in mine if criterion == "style" or worth(label.label, criterion) is not None]
        for style in dict.fromkeys(items[label.item].style for label in mine):
            results.append(_checked(style, criterion, items, [label for label in mine if items[label.item].style == style]))
    return results


def _checked(style: str, criterion: str, items: Mapping[str, StyleItem], labels: Sequence[StyleLabel]) -> Checked:
    people = list(dict.fromkeys(label.annotator for label in labels))
    rows = list(dict.fromkeys(label.item for label in labels))
    values = np.full((len(people), len(rows)), np.nan)
    names: dict[str, int] = {}
    codes = np.full_like(values, np.nan)
    for label in labels:
        at = people.index(label.annotator), rows.index(label.item)
        right = float(label.label == style) if criterion == "style" else worth(label.label, criterion)
        values[at] = right
        codes[at] = names.setdefault(label.label, len(names)) if criterion == "style" else right
    passages = [items[row].passage for row in rows]
    share = estimate(np.nanmean(values, axis=0), clusters=passages)
    if len(people) < 2:
        return Checked(style, criterion, share, len(people), None, None)
    alpha = krippendorff_alpha(codes, difference="nominal" if criterion == "style" else "interval", clusters=passages)
    return Checked(style, criterion, share, len(people), alpha, fleiss_kappa(codes, clusters=passages))
