-- Submissions, checkpoints, gates and judgements; what an experiment shows of a run; aggregates for boards.

ALTER TABLE runs ADD COLUMN origin VARCHAR DEFAULT 'run';   -- run, submitted, verified
ALTER TABLE runs ADD COLUMN card JSON;                      -- of a submission
ALTER TABLE runs ADD COLUMN environment VARCHAR;            -- in `environments`
ALTER TABLE experiment_runs ADD COLUMN metrics VARCHAR[];   -- the experiment's columns; NULL: all that were scored

-- Packages, hardware and code, once for all runs made with them; `provenance` keeps what is a run's own.
CREATE TABLE environments (environment VARCHAR NOT NULL, description JSON NOT NULL);
INSERT INTO environments SELECT DISTINCT md5(provenance::VARCHAR), provenance FROM runs;
UPDATE runs SET environment = md5(provenance::VARCHAR), provenance = '{}';

-- One row per (run, metric), rewritten with the scores it sums up.
CREATE TABLE summaries (
    run VARCHAR NOT NULL, metric VARCHAR NOT NULL,
    scored BIGINT NOT NULL,             -- rows, unscorable ones included
    n BIGINT NOT NULL,                  -- rows with a value
    mean DOUBLE, variance DOUBLE        -- NULL where too few rows have a value
);
INSERT INTO summaries SELECT run, metric, count(*), count(value), avg(value), var_samp(value) FROM scores GROUP BY 1, 2;

CREATE TABLE judge_calls (
    run VARCHAR NOT NULL, question VARCHAR NOT NULL, judge VARCHAR NOT NULL,
    part VARCHAR NOT NULL,              -- which of the judge's prompts, or which claim
    repetition INTEGER NOT NULL,
    call VARCHAR,                       -- key of the reply in the response cache; NULL for rules
    parse JSON,                         -- what was read out of the reply
    unscored VARCHAR                    -- why nothing could be
);
CREATE TABLE battles (
    dataset_fingerprint VARCHAR NOT NULL, setting VARCHAR NOT NULL, judge VARCHAR NOT NULL, question VARCHAR NOT NULL,
    first VARCHAR NOT NULL, second VARCHAR NOT NULL,    -- runs, in the order shown to the judge
    repetition INTEGER NOT NULL,
    value DOUBLE,                       -- 1 first wins, 0.5 tie, 0 second wins; NULL with a reason below
    call VARCHAR, unscored VARCHAR
);

CREATE TABLE checkpoints (
    sha256 VARCHAR NOT NULL, method VARCHAR NOT NULL, version INTEGER NOT NULL, stage VARCHAR NOT NULL,
    config JSON NOT NULL, parents VARCHAR[] NOT NULL, data VARCHAR[] NOT NULL, path VARCHAR NOT NULL,
    added_at TIMESTAMP NOT NULL
);
CREATE TABLE blessings (name VARCHAR NOT NULL, run VARCHAR, checkpoint VARCHAR, note VARCHAR, blessed_at TIMESTAMP NOT NULL);
CREATE TABLE gates (
    baseline VARCHAR NOT NULL, candidate VARCHAR NOT NULL, metric VARCHAR NOT NULL, margin DOUBLE NOT NULL,
    strict BOOLEAN NOT NULL, outcome VARCHAR NOT NULL, value DOUBLE, low DOUBLE, high DOUBLE, n BIGINT NOT NULL,
    details JSON NOT NULL, decided_at TIMESTAMP NOT NULL
);
