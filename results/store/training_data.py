"""Find out on which data and questions a run was trained, and whether they cover its test questions.

A checkpoint's options name its data as `ragmeter train` was given them: under `data` or `graph`, one list, or one list
a stage. Its base was trained on other data, so parents count too. Validation data, by which a training is only watched, do
not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.core.errors import UserError
from benchmarks.registry import DataReference
from benchmarks.styles import STYLED
from results.store.checkpoints import SHA256, Checkpoint
from results.store.queries import RunRow
from results.store.read_questions import Fold, Touched, is_contaminated
from results.store.variants import covers_run

Cards = Mapping[str, Mapping[str, Any]]
"""Cards of methods and their parts, by id."""
Checkpoints = Mapping[str, Checkpoint]
"""Registered checkpoints by hash."""
_NAMED = ("data", "graph")
"""Options of trainings that name the training data; the loaders' options are in `data_options` and so on."""
_LIST_OF_STAGE = {"supervised": "joint"}
"""Stages that use the data list of another stage; all others use the list of their own name."""


def parts(description: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the descriptions of a run's method and of all of its parts (retriever, rerankers, …), each with its `id`."""
    for value in (
        description.get("method"),
        *(description.get("rerankers") or ()),
        description.get("compressor"),
        description.get("reader"),
    ):
        if isinstance(value, Mapping) and isinstance(value.get("id"), str):
            yield value


def trained_on(run: RunRow, cards: Cards, known: Checkpoints) -> dict[str, str]:
    """Map each data reference that a run's parts were trained on to the checkpoint that states it ("" for a method's card).

    Args:
        run: The run.
        cards: Cards of methods and their parts, by id.
        known: Registered checkpoints by their hash.
    """
    listed = (cards.get(part["id"], {}).get("training_data") or () for part in parts(run.description))
    results = {str(item): "" for each in listed for item in each}
    for checkpoint in _lineage(run, known):
        for reference in references_of(checkpoint):
            results.setdefault(reference, _called(checkpoint))
    return results


def contaminating(run: RunRow, cards: Cards, known: Checkpoints) -> list[str]:
    """List training data of a run that cover its test questions, one sentence each; compares references and fingerprints.

    If every checkpoint with a reference has a record of its training questions, the records decide about parts of a split and
    about generated worlds, because different parts and seeds share one reference.
    """
    lineage, trained = _lineage(run, known), trained_on(run, cards, known)
    unrecorded = {reference for reference, who in trained.items() if not who}
    unrecorded |= {reference for item in lineage if item.read is None for reference in references_of(item)}
    in_record = {reference for reference in trained if reference not in unrecorded and _is_part(reference)}
    results = [
        f"{reference} was trained on" + (f" by {who}" if who else "")
        for reference, who in trained.items()
        if reference not in in_record and covers_run(reference, run.styled.same_questions, run.styled.base != run.dataset)
    ]
    if results:
        return results
    # Equal content under another name.
    if results := [f"the same data were used to train {_called(item)}" for item in lineage if run.dataset_fingerprint in item.data]:
        return results
    touched = touched_by(run, known)
    return [touched.in_words(run.questions)] if is_contaminated(touched.questions, run.questions) else []


def touched_by(run: RunRow, known: Checkpoints) -> Touched:
    """Return the test questions that occur in the training data of a run's checkpoints or of those that they were trained from."""
    result = Touched()
    folds = _folds(run)
    others = [sha256 for sha256 in _named_hashes(run, known) if sha256 not in folds]
    groups = [(None, others), *((fold, [sha256]) for sha256, fold in folds.items())]
    for fold, hashes in groups:
        for item in _ancestors(hashes, known):
            if item.read is not None:
                result |= item.read.touched(run.dataset_fingerprint, _called(item), fold)
    return result


_BY_FOLD = ("ark_folds",)
"""Methods that assign the questions of fold K to the K-th of their N checkpoints (`benchmarks.datasets.fold_of`)."""


def _folds(run: RunRow) -> dict[str, Fold]:
    """Return the fold of each checkpoint's questions, by hash; unknown checkpoints have all questions."""
    folded, others = ([part for part in parts(run.description) if (part["id"] in _BY_FOLD) is by_fold] for by_fold in (True, False))
    results: dict[str, Fold] = {}
    for part in folded:
        hashes = _hashes(part)
        results |= {sha256: (number, len(hashes)) for number, sha256 in enumerate(hashes, 1) if hashes.count(sha256) == 1}
    elsewhere = {sha256 for part in others for sha256 in _hashes(part)}
    return {sha256: fold for sha256, fold in results.items() if sha256 not in elsewhere}


def read_unknown(run: RunRow, known: Checkpoints) -> bool:
    """Return whether a run uses weights without a record of their training questions.

    Records cover ragmeter's own trainings; the data of the pretrained base model are always unknown.
    """
    models = run.provenance.get("models")
    if run.kind == "control" or (isinstance(models, Mapping) and models.get("counted") == [] and models.get("weights_here") is True):
        return False
    lineage = _lineage(run, known)
    if any(item.read is None or any(parent not in known for parent in item.parents) for item in lineage):
        return True
    weights = [part for part in parts(run.description) if part.get("weights") or _names_a_model(part.get("config"))]
    named = _named_hashes(run, known)
    return any(sha256 not in known for sha256 in named) or any(not _recorded(part, named, known) for part in weights)


def read_none(run: RunRow, known: Checkpoints) -> bool:
    """Return whether a run's checkpoints have records of their training questions, none of which is a test question."""
    return bool(_lineage(run, known)) and not read_unknown(run, known) and not touched_by(run, known).questions


def _recorded(part: Mapping[str, Any], named: Sequence[str], known: Checkpoints) -> bool:
    own = _hashes(part) or named
    return bool(own) and all(sha256 in known and known[sha256].read is not None for sha256 in own)


def declared(run: RunRow, cards: Cards, known: Checkpoints) -> bool:
    """Return whether the training data of all trained parts of a run are known.

    Args:
        run: The run; for a submission the answer is always True, because its card can declare all training data.
        cards: Cards of methods and their parts, by id.
        known: Registered checkpoints by their hash.
    """
    if run.card is not None:
        return True
    made_of = list(parts(run.description))
    if not any(part["id"] in cards for part in made_of):
        return False
    if not all(sha in known for sha in _named_hashes(run)):
        return False
    if any(
        parent not in known or not references_of(known[parent]) for item in _lineage(run, known) for parent in (item.sha256, *item.parents)
    ):
        return False
    models = run.provenance.get("models")
    if isinstance(models, Mapping) and models.get("counted") == [] and models.get("weights_here") is True:
        return True  # nothing in it has weights; its entry is a hash of parts
    return all(_described(part, cards, known) for part in made_of)


def references_of(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Return data references that a checkpoint's last training stage used, from its options; empty if they name none.

    Restyled data are named with their base dataset, for example `styled:train(hotpotqa)`.
    """
    results: dict[str, None] = {}
    for key in _NAMED:
        value, options = checkpoint.config.get(key), checkpoint.config.get(f"{key}_options")
        if isinstance(value, Mapping):
            options = value.get("options")
            value = _of_stage(value, checkpoint.stage)
        for text in value if isinstance(value, list | tuple) else ():
            if name := _named(text, options if isinstance(options, Mapping) else {}):
                results[name] = None
    return tuple(results)


def _of_stage(lists: Mapping[str, Any], stage: str) -> list[Any]:
    """Return a stage's list; for a training with other option names, all its lists."""
    own = lists.get(_LIST_OF_STAGE.get(stage, stage))
    every = (item for item in lists.values() if isinstance(item, list | tuple))
    return list(own) if isinstance(own, list | tuple) else [text for item in every for text in item]


_PARTS = ("ids", "fold")
"""Options of loaders that choose a part of a split; they become the variant of its reference."""
_GENERATED = "worlds"
"""Dataset whose seeds all share one reference, although each generates other questions."""


def _is_part(reference: str) -> bool:
    return any(f"({option}=" in reference for option in _PARTS) or DataReference.of_name(reference).name == _GENERATED


def _own(options: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    own = options.get(name)
    return own if isinstance(own, Mapping) else {}


def _named(text: Any, options: Mapping[str, Any]) -> str | None:
    """Normalize a reference to a benchmark's name; None if it is not one."""
    try:
        reference = DataReference.parse(text) if isinstance(text, str) else None
    except UserError:
        return None
    if reference is not None:
        own = _own(options, reference.name)
        for option in _PARTS:
            if own.get(option):
                return f"{reference}({option}={own[option]})"
    if reference is None or reference.name != STYLED:
        return None if reference is None else str(reference)
    value = options.get(STYLED)
    base = value.get("base") if isinstance(value, Mapping) else None
    from benchmarks.datasets.styled import StyledConfig

    return f"{reference}({base or StyledConfig.model_fields['base'].default})"


def trained_here(run: RunRow, known: Checkpoints) -> bool:
    """Return whether a run uses a registered checkpoint."""
    return bool(_lineage(run, known))


def _lineage(run: RunRow, known: Checkpoints) -> list[Checkpoint]:
    """Return the registered checkpoints of a run's parts, and their ancestors."""
    return _ancestors(_named_hashes(run, known), known)


def _ancestors(hashes: Sequence[str], known: Checkpoints) -> list[Checkpoint]:
    """Return registered checkpoints with their ancestors, each once."""
    results: dict[str, Checkpoint] = {}
    left = list(hashes)
    while left:
        sha256 = left.pop(0)
        if sha256 in known and sha256 not in results:
            results[sha256] = known[sha256]
            left += known[sha256].parents
    return list(results.values())


def _named_hashes(run: RunRow, known: Checkpoints | None = None) -> list[str]:
    """Return the hashes of checkpoints in a run's provenance, and of registered ones among its weights."""
    named = run.provenance.get("checkpoints")
    result = [str(sha) for sha in named] if isinstance(named, list | tuple) else []
    if known:
        result += [sha for part in parts(run.description) for sha in _hashes(part) if sha in known]
    return list(dict.fromkeys(result))


def _described(part: Mapping[str, Any], cards: Cards, known: Checkpoints) -> bool:
    """Return whether a part is untrained or its training data are known."""
    if cards.get(part["id"], {}).get("training_data"):
        return True
    if not part.get("weights") and not _names_a_model(part.get("config")):
        return True
    hashes = _hashes(part)
    return bool(hashes) and all(sha in known for sha in hashes)


def _hashes(part: Mapping[str, Any]) -> list[str]:
    return SHA256.findall(str(part.get("weights") or ""))


def _names_a_model(options: Any) -> bool:
    """Return whether options name a model or an endpoint, at any depth."""
    if isinstance(options, Mapping):
        return any(options.get(name) for name in ("model", "base_url")) or any(map(_names_a_model, options.values()))
    return isinstance(options, list) and any(map(_names_a_model, options))


def _called(checkpoint: Checkpoint) -> str:
    return f"checkpoint {checkpoint.sha256[:8]} ({checkpoint.method}, {checkpoint.stage})"
