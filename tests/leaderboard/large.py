"""A store of any size with random scores (methods × datasets × questions), filled by SQL within seconds.

Scores depend on method, dataset and question, so that methods differ and paired differences are tighter than means.
Never shown as a result.
"""

from __future__ import annotations

import sys
from pathlib import Path

from results.store.store import Store

EXPERIMENT = "large"
METRIC = "f1(rules=hotpotqa)#v2"

_FILL = """
INSERT INTO datasets SELECT f, name, '{"metrics": ["f1(rules=hotpotqa)"]}', $questions, 0, '{}', 'question', [] FROM made_data;
INSERT INTO questions SELECT f, 'd' || d || 'q' || q, q, 'Question ' || q || '?', ['a'], ['a'], [], [], 'plain', NULL,
    '{}', NULL FROM made_data, range($questions) asked(q);
INSERT INTO runs BY NAME SELECT run, method, method_id, 'method' AS kind,
    '{"method": {"id": "' || method_id || '", "config": {}}, "reader": {"id": "reader-' || m % 3 || '", "config": {}}}'
    AS description, name AS dataset, f AS dataset_fingerprint, 'distractor' AS setting, 0 AS seed,
    $questions AS questions, 'finished' AS status, TIMESTAMP '2026-01-01' + INTERVAL (m) DAY AS started_at,
    TIMESTAMP '2026-01-01' + INTERVAL (m) DAY AS updated_at, '{}' AS provenance, 'run' AS origin,
    name AS base, 'test' AS split, '{"shares": {}, "drawn": ""}' AS style, [name] AS same_questions FROM made_runs;
INSERT INTO experiment_runs SELECT $experiment, row_number() OVER (ORDER BY d, m) - 1, run, method, NULL, NULL FROM made_runs;
INSERT INTO scores (run, question, metric, value, unscored) SELECT run,
    'd' || d || 'q' || q, $metric, CASE WHEN 0.5 + 0.3 * (m / $methods - 0.5)
    + 0.4 * (hash(d, q) % 1000 / 1000 - 0.5) + 0.5 * (hash(d, q, m) % 1000 / 1000 - 0.5) > 0.5 THEN 1.0
    WHEN hash(m, q) % 3 = 0 THEN 0.5 ELSE 0.0 END, NULL FROM made_runs, range($questions) asked(q);
INSERT INTO predictions (run, question, answer, failed, notes) SELECT run, 'd' || d || 'q' || q, 'an answer', NULL, '{}' FROM made_runs,
    range($questions) asked(q);
INSERT INTO usage SELECT run, 'd' || d || 'q' || q, 500 + 10 * m, 12, 0, 1, 0.2 + 0.01 * m, '{}', 0, 0.0001, 0
    FROM made_runs, range($questions) asked(q);
INSERT INTO summaries BY NAME SELECT run, metric, count(*) AS scored, count(value) AS n, avg(value) AS mean,
    var_samp(value) AS variance, 0 AS unscored FROM scores GROUP BY 1, 2;
INSERT INTO metrics BY NAME SELECT $metric AS id, 'Overlap of tokens.' AS definition, 0.0 AS low, 1.0 AS high,
    true AS higher_is_better, 'answer' AS metric_group, 'made up' AS source, 'fraction' AS unit;
INSERT INTO experiments SELECT $experiment, 'name: large', NULL, NULL, 'method 000', NULL, TIMESTAMP '2026-01-01'
"""


def fill_large(folder: Path, methods: int = 100, datasets: int = 20, questions: int = 500) -> Store:
    """Fill a store with methods × datasets × questions scores on one metric, in one experiment and setting."""
    store = Store(folder)
    store.put_cards([], [])
    options = {"questions": questions, "methods": float(methods), "metric": METRIC, "experiment": EXPERIMENT}
    with store.database.writing() as connection:
        connection.execute(
            "CREATE TEMP TABLE made_data AS SELECT d, printf('%016x', d + 1) AS f, 'data' || d || ':test' AS name FROM range(?) made(d)",
            [datasets],
        )
        connection.execute(
            "CREATE TEMP TABLE made_runs AS SELECT d, m, f, name, printf('%08x%08x', m + 1, d + 1) AS run, "
            "printf('method %03d', m) AS method, printf('method-%03d', m) AS method_id "
            "FROM made_data, range(?) made(m)",
            [methods],
        )
        for statement in _FILL.split(";\n"):
            used = {name: value for name, value in options.items() if f"${name}" in statement}
            connection.execute(statement, used)
        connection.execute("DROP TABLE made_runs")
        connection.execute("DROP TABLE made_data")
    return store


if __name__ == "__main__":
    fill_large(Path(sys.argv[1]), *map(int, sys.argv[2:]))
