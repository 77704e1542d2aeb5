"""What a server takes from strangers: submissions for the boards that its store has, and for nothing else.

A card names what is loaded, generated and retrieved to check it; that is work which only the keeper of a machine
should be able to ask for.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import registry as datasets
from benchmarks.errors import UserError
from results import queries
from results.queries import RunRow
from results.store import Store
from results.submission.card import Card

_LISTED = 5


def require_known(store: Store, card: Card) -> None:
    """Check that the store has runs over the card's benchmark in its setting, with its seed and the usual options.

    Args:
        store: With the boards.
        card: Validated.

    Raises:
        UserError: It has none; says which boards there are.
    """
    if card.config:
        raise UserError(
            "options of a benchmark are not taken here, where cards come from strangers",
            where="card: config",
            try_this="leave config out, or hand the files to who keeps this board: ragmeter submit",
        )
    reference, _ = datasets.resolve(card.benchmark)
    references = {mark: one["reference"] for mark, one in queries.datasets(store).items()}
    rows = queries.runs(store)
    known = list(
        dict.fromkeys((references[row.dataset_fingerprint], row.setting, row.seed) for row in rows if row.dataset_fingerprint in references)
    )
    if (str(reference), str(card.setting), card.seed) not in known:
        said = [f"{place}, setting {setting}, seed {seed}" for place, setting, seed in known]
        more = f" and {len(said) - _LISTED} more" if len(said) > _LISTED else ""
        raise UserError(
            f"there is no board here for {reference}, setting {card.setting}, seed {card.seed}",
            where="card: benchmark",
            try_this=f"one of: {'; '.join(said[:_LISTED])}{more}" if said else "run something first: ragmeter demo",
        )


def require_board(store: Store, card: Card, dataset_fingerprint: str) -> None:
    """Check that the store has runs over just these data; a limit makes other data of the same benchmark.

    Raises:
        UserError: It has none.
    """
    if beside(queries.runs(store), dataset_fingerprint, str(card.setting), card.seed):
        return
    raise UserError(
        f"there is no board here over these questions of {card.benchmark} (fingerprint {dataset_fingerprint})",
        where="card: limit",
        try_this="the limit that the board's runs have",
    )


def beside(rows: Sequence[RunRow], dataset_fingerprint: str, setting: str, seed: int) -> list[RunRow]:
    """The stored runs on whose board a submission would stand, each once; none where the store has other data.

    Args:
        rows: All stored runs.
        dataset_fingerprint, setting, seed: What the submission was checked against.
    """
    alike = (row for row in rows if (row.dataset_fingerprint, row.setting, row.seed) == (dataset_fingerprint, setting, seed))
    return list({row.run: row for row in alike}.values())
