"""What an experiment leaves behind when another text takes its name in a store."""

from __future__ import annotations

from collections.abc import Collection

from benchmarks.plurals import counted
from results.store import Store


def left_behind(store: Store, name: str, source: str, path: str | None, runs: Collection[str]) -> str | None:
    """What is to be said before an experiment takes the place of the stored one of its name.

    Args:
        store: As it is before.
        name, source, path: The new experiment: its name, text and file.
        runs: Fingerprints of its runs.

    Returns:
        None where every run that is in the store stays in some experiment.
    """
    if not store.database.exists:
        return None
    with store.database.reading() as connection:
        before = connection.execute("SELECT source, path FROM experiments WHERE name = ?", [name]).fetchone()
        alone = connection.execute(
            """SELECT DISTINCT run FROM experiment_runs SEMI JOIN runs USING (run) WHERE experiment = ?
               AND run NOT IN (SELECT run FROM experiment_runs WHERE experiment <> ?)""",
            [name, name],
        ).fetchall()
    number = len({run for (run,) in alone}.difference(runs))
    if before is None or not number:
        return None
    if before == (source, path):
        was = f"{name} was run with other options, versions or data until now"
    elif before[1] == path:
        was = f"{name} had another text until now"
    else:
        was = f"{name} was another file until now" + (f", {before[1]}" if before[1] else "")
    stay = "stays" if number == 1 else "stay"
    return f"{was}; {counted(number, 'run')} of it {stay} in the store, in no experiment (-/… in `ragmeter runs`)"
