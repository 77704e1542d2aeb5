-- One row per (run, question) for what a method said, one per (run, question, metric) for what it is worth.
-- Uniqueness is kept by the store (it deletes before it inserts, under its lock): indexes would slow appends down.

CREATE TABLE ragmeter_schema (version INTEGER NOT NULL, applied_at TIMESTAMP NOT NULL, ragmeter VARCHAR NOT NULL);

CREATE TABLE experiments (
    name VARCHAR NOT NULL, source VARCHAR NOT NULL, path VARCHAR, profile VARCHAR, reference VARCHAR,
    question_limit INTEGER, updated_at TIMESTAMP NOT NULL
);
CREATE TABLE experiment_runs (experiment VARCHAR NOT NULL, position INTEGER NOT NULL, run VARCHAR NOT NULL,
    method VARCHAR);                    -- the name in this experiment; runs may be shared

CREATE TABLE runs (
    run VARCHAR NOT NULL,               -- fingerprint of (dataset, method, setting, seed)
    method VARCHAR NOT NULL,            -- the name shown, unique within an experiment
    method_id VARCHAR NOT NULL, kind VARCHAR NOT NULL, description JSON NOT NULL,
    dataset VARCHAR NOT NULL, dataset_fingerprint VARCHAR NOT NULL, setting VARCHAR NOT NULL, seed BIGINT NOT NULL,
    questions INTEGER NOT NULL,
    status VARCHAR NOT NULL,            -- running, finished, interrupted, failed
    error VARCHAR, started_at TIMESTAMP NOT NULL, updated_at TIMESTAMP NOT NULL, provenance JSON NOT NULL
);

CREATE TABLE predictions (
    run VARCHAR NOT NULL, question VARCHAR NOT NULL, answer VARCHAR NOT NULL, failed VARCHAR, notes JSON NOT NULL
);
CREATE TABLE evidence (
    run VARCHAR NOT NULL, question VARCHAR NOT NULL, rank INTEGER NOT NULL, id VARCHAR NOT NULL, score DOUBLE NOT NULL
);
CREATE TABLE usage (
    run VARCHAR NOT NULL, question VARCHAR NOT NULL, prompt_tokens BIGINT NOT NULL, completion_tokens BIGINT NOT NULL,
    memory_tokens BIGINT NOT NULL, model_calls BIGINT NOT NULL, seconds DOUBLE NOT NULL, stages JSON NOT NULL,
    peak_memory_bytes BIGINT NOT NULL, cost_usd DOUBLE NOT NULL
);
CREATE TABLE scores (
    run VARCHAR NOT NULL, question VARCHAR NOT NULL, metric VARCHAR NOT NULL,
    value DOUBLE                        -- NULL: unscorable, counted apart
);

CREATE TABLE datasets (fingerprint VARCHAR NOT NULL, reference VARCHAR NOT NULL, card JSON NOT NULL,
    questions INTEGER NOT NULL, passages INTEGER NOT NULL, notes JSON NOT NULL);
CREATE TABLE questions (
    dataset_fingerprint VARCHAR NOT NULL, question VARCHAR NOT NULL, position INTEGER NOT NULL, text VARCHAR NOT NULL,
    answers VARCHAR[] NOT NULL, golds VARCHAR[] NOT NULL, evidence VARCHAR[] NOT NULL,
    supporting_facts VARCHAR[] NOT NULL, type VARCHAR NOT NULL, document_id VARCHAR
);
CREATE TABLE passages (id VARCHAR NOT NULL, title VARCHAR NOT NULL, text VARCHAR NOT NULL, sentences VARCHAR[] NOT NULL);
CREATE TABLE methods (id VARCHAR NOT NULL, version INTEGER NOT NULL, card JSON NOT NULL);
CREATE TABLE metrics (id VARCHAR NOT NULL, definition VARCHAR NOT NULL, low DOUBLE, high DOUBLE,
    higher_is_better BOOLEAN NOT NULL, metric_group VARCHAR NOT NULL, source VARCHAR NOT NULL);
