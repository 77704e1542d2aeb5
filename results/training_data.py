"""Which data the parts of a run were trained on: by the cards of its methods, and by its checkpoints.

A checkpoint's options name its data as `ragmeter train` was given them: under `data` or `graph`, one list, or one list
a stage. What it began from was trained on data of its own, so parents count too. Validation data, by which a training
is only watched, do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.datasets.styled import StyledConfig
from benchmarks.errors import UserError
from benchmarks.registry import DataReference
from benchmarks.styles.mix import STYLED
from results import checkpoints
from results.asked import covers_run
from results.checkpoints import Checkpoint
from results.queries import RunRow
from results.store import Store

Cards = Mapping[str, Mapping[str, Any]]
"""Of methods and their parts, by id."""
Checkpoints = Mapping[str, Checkpoint]
"""Registered ones, by their hash."""
_NAMED = ("data", "graph")
"""Options of trainings that name what is learnt from; the options of the loaders stand in `data_options` and so on."""
_LIST_OF_STAGE = {"supervised": "joint"}
"""Stages that read another stage's list of references; all others read the list that is called as they are."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


def known_checkpoints(store: Store) -> dict[str, Checkpoint]:
    """Registered checkpoints by their hash."""
    return {one.sha256: one for one in checkpoints.checkpoints(store)}


def parts(description: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The method of a run and the parts that it is made of, each with its `id`."""
    for value in (
        description.get("method"),
        *(description.get("rerankers") or ()),
        description.get("compressor"),
        description.get("reader"),
    ):
        if isinstance(value, Mapping) and isinstance(value.get("id"), str):
            yield value


def trained_on(run: RunRow, cards: Cards, known: Checkpoints) -> dict[str, str]:
    """References of the data that a run's parts were trained on, and by which checkpoint; empty where a card says so.

    Args:
        run: The run.
        cards: Of methods and their parts.
        known: Registered checkpoints.
    """
    listed = (cards.get(part["id"], {}).get("training_data") or () for part in parts(run.description))
    found = {str(one): "" for each in listed for one in each}
    for checkpoint in _lineage(run, known):
        for reference in references_of(checkpoint):
            found.setdefault(reference, _called(checkpoint))
    return found


def contaminating(run: RunRow, cards: Cards, known: Checkpoints) -> list[str]:
    """Training data that cover what a run is asked, one sentence each; references and fingerprints are compared."""
    found = [
        f"{reference} was trained on" + (f" by {who}" if who else "")
        for reference, who in trained_on(run, cards, known).items()
        if covers_run(reference, run.told.same_questions, run.told.base != run.dataset)
    ]
    if found:
        return found
    # Equal content under another name.
    return [f"these very data were trained on by {_called(one)}" for one in _lineage(run, known) if run.dataset_fingerprint in one.data]


def declared(run: RunRow, cards: Cards, known: Checkpoints) -> bool:
    """Whether the training data of all of a run's parts are known, as far as parts were trained at all.

    Args:
        run: The run. A submission's card could have declared what there is to declare.
        cards: Of methods and their parts.
        known: Registered checkpoints.
    """
    if run.card is not None:
        return True
    made_of = list(parts(run.description))
    if not any(part["id"] in cards for part in made_of):
        return False
    if not all(sha in known for sha in _named_hashes(run)):
        return False
    if any(
        parent not in known or not references_of(known[parent]) for one in _lineage(run, known) for parent in (one.sha256, *one.parents)
    ):
        return False
    models = run.provenance.get("models")
    if isinstance(models, Mapping) and models.get("counted") == [] and models.get("weights_here") is True:
        return True  # nothing in it has weights; what stands as such is a hash of parts
    return all(_described(part, cards, known) for part in made_of)


def references_of(checkpoint: Checkpoint) -> tuple[str, ...]:
    """References that a checkpoint's own stage was trained on; empty where its options do not say.

    Mixed styles come with their base, as such benchmarks are called: `styled:train(hotpotqa)`.
    """
    found: dict[str, None] = {}
    for key in _NAMED:
        value, options = checkpoint.config.get(key), checkpoint.config.get(f"{key}_options")
        if isinstance(value, Mapping):
            options = value.get("options")
            value = _of_stage(value, checkpoint.stage)
        for text in value if isinstance(value, list | tuple) else ():
            if name := _named(text, options if isinstance(options, Mapping) else {}):
                found[name] = None
    return tuple(found)


def _of_stage(lists: Mapping[str, Any], stage: str) -> list[Any]:
    """A stage's own list; all lists of a training that calls them otherwise."""
    own = lists.get(_LIST_OF_STAGE.get(stage, stage))
    every = (one for one in lists.values() if isinstance(one, list | tuple))
    return list(own) if isinstance(own, list | tuple) else [text for one in every for text in one]


def _named(text: Any, options: Mapping[str, Any]) -> str | None:
    """A reference as a benchmark's name; None for what is none."""
    try:
        reference = DataReference.parse(text) if isinstance(text, str) else None
    except UserError:
        return None
    if reference is None or reference.name != STYLED:
        return None if reference is None else str(reference)
    given = options.get(STYLED)
    base = given.get("base") if isinstance(given, Mapping) else None
    return f"{reference}({base or StyledConfig.model_fields['base'].default})"


def _lineage(run: RunRow, known: Checkpoints) -> list[Checkpoint]:
    """The registered checkpoints that a run's parts are made of, and those that these began from."""
    found: dict[str, Checkpoint] = {}
    left = _named_hashes(run, known)
    while left:
        sha256 = left.pop(0)
        if sha256 in known and sha256 not in found:
            found[sha256] = known[sha256]
            left += known[sha256].parents
    return list(found.values())


def _named_hashes(run: RunRow, known: Checkpoints | None = None) -> list[str]:
    """Hashes of checkpoints in a run's provenance; and among its weights, of those that are registered.

    Weights alone name them in runs of before provenance did; a hash there may also be that of a model of others.
    """
    named = run.provenance.get("checkpoints")
    found = [str(sha) for sha in named] if isinstance(named, list | tuple) else []
    if known:
        found += [sha for part in parts(run.description) for sha in _hashes(part) if sha in known]
    return list(dict.fromkeys(found))


def _described(part: Mapping[str, Any], cards: Cards, known: Checkpoints) -> bool:
    """Whether a part was not trained, or it is known on what."""
    if cards.get(part["id"], {}).get("training_data"):
        return True
    if not part.get("weights") and not _names_a_model(part.get("config")):
        return True
    hashes = _hashes(part)
    return bool(hashes) and all(sha in known for sha in hashes)


def _hashes(part: Mapping[str, Any]) -> list[str]:
    return _SHA256.findall(str(part.get("weights") or ""))


def _names_a_model(options: Any) -> bool:
    """Whether options name a model or an endpoint, at any depth."""
    if isinstance(options, Mapping):
        return any(options.get(name) for name in ("model", "base_url")) or any(map(_names_a_model, options.values()))
    return isinstance(options, list) and any(map(_names_a_model, options))


def _called(checkpoint: Checkpoint) -> str:
    return f"checkpoint {checkpoint.sha256[:8]} ({checkpoint.method}, {checkpoint.stage})"
