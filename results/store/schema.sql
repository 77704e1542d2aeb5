-- One row per (run, question) for what a method said, one per (run, question, metric) for what it is worth.
-- Uniqueness is kept by the store (it inserts what is missing, under its lock): indexes would slow appends down.
-- A finished run never changes: other executions get other ids, and scores and judgments are only added.
-- `repeat` numbers the answers to one question within a run, from 0.

CREATE TABLE ragmeter_schema (version INTEGER NOT NULL, applied_at TIMESTAMP NOT NULL, ragmeter VARCHAR NOT NULL);

CREATE TABLE experiments (
    name VARCHAR NOT NULL, source VARCHAR NOT NULL, path VARCHAR, profile VARCHAR, reference VARCHAR,
    question_limit INTEGER, updated_at TIMESTAMP NOT NULL
);
CREATE TABLE experiment_runs (
    experiment VARCHAR NOT NULL, position INTEGER NOT NULL, run VARCHAR NOT NULL,
    method VARCHAR,                     -- the name in this experiment; runs may be shared
    metrics VARCHAR[],                  -- the experiment's columns; NULL: all that were scored
    cluster VARCHAR                     -- what the experiment says was sampled; NULL: what its dataset says
);
-- Columns that people add to an experiment's boards, beside those that its file names; `experiment_runs` is rewritten
-- whenever the file is run, this is not.
CREATE TABLE added_columns (
    experiment VARCHAR NOT NULL, dataset VARCHAR NOT NULL, setting VARCHAR NOT NULL, metric VARCHAR NOT NULL
);

-- Packages, hardware and code, once for all runs made with them; `provenance` keeps what is a run's own.
CREATE TABLE environments (environment VARCHAR NOT NULL, description JSON NOT NULL);
CREATE TABLE runs (
    run VARCHAR NOT NULL,               -- an execution: FINGERPRINT, and FINGERPRINT.TOKEN for later ones; the fingerprint
                                        -- covers dataset, method with code, weights and revision, setting and seed
    method VARCHAR NOT NULL,            -- the name shown, unique within an experiment
    method_id VARCHAR NOT NULL, kind VARCHAR NOT NULL, description JSON NOT NULL,
    dataset VARCHAR NOT NULL, dataset_fingerprint VARCHAR NOT NULL, setting VARCHAR NOT NULL, seed BIGINT NOT NULL,
    questions INTEGER NOT NULL,
    status VARCHAR NOT NULL,            -- running, finished, interrupted, failed, incomplete (too many questions failed)
    error VARCHAR, started_at TIMESTAMP NOT NULL, updated_at TIMESTAMP NOT NULL, provenance JSON NOT NULL,
    origin VARCHAR DEFAULT 'run',       -- run; of submissions: submitted, verified, held, rejected, withdrawn
    card JSON,                          -- of a submission
    environment VARCHAR,                -- in `environments`
    base VARCHAR NOT NULL,              -- whose questions are asked: name[/subset], of mixed styles that of their base
    split VARCHAR,                      -- of the base
    style JSON NOT NULL,                -- the styles of its passages: {"shares": {style: share}, "drawn": by and how}
    same_questions VARCHAR[] NOT NULL,  -- name[/subset]:split of everything that holds these questions
    cluster VARCHAR,                    -- what its first experiment says was sampled, for when no experiment shows it
    replies VARCHAR DEFAULT '',         -- which cached replies it may use: '' all, TOKEN only those made for this command
    accepted_at TIMESTAMP               -- when a user accepted its failed questions as wrong answers; NULL: never
);

CREATE TABLE predictions (
    run VARCHAR NOT NULL, question VARCHAR NOT NULL, answer VARCHAR NOT NULL, failed VARCHAR, notes JSON NOT NULL,
    repeat INTEGER DEFAULT 0,
    cause VARCHAR,                      -- of a failure: `code` (ours or a plug-in's raised) or `model`
    raw VARCHAR,                        -- the reply that the answer was extracted from; NULL: it is the answer
    contexts JSON,                      -- what the system showed its model: [{text, id, url, score}]
    statements JSON,                    -- [{text, cites}]
    searches JSON,                      -- [{query, found, used}]
    confidence DOUBLE,
    cached_replies INTEGER DEFAULT 0,   -- model replies that came from the cache,
    oldest_reply TIMESTAMP              -- and when the oldest of them was received
);
CREATE TABLE evidence (
    run VARCHAR NOT NULL, question VARCHAR NOT NULL, rank INTEGER NOT NULL, id VARCHAR NOT NULL, score DOUBLE NOT NULL,
    repeat INTEGER DEFAULT 0
);
CREATE TABLE usage (
    run VARCHAR NOT NULL, question VARCHAR NOT NULL, prompt_tokens BIGINT NOT NULL, completion_tokens BIGINT NOT NULL,
    memory_tokens BIGINT NOT NULL, model_calls BIGINT NOT NULL,
    seconds DOUBLE NOT NULL,            -- the question's own: all stages but `wait`
    stages JSON NOT NULL, peak_memory_bytes BIGINT NOT NULL, cost_usd DOUBLE NOT NULL,
    repeat INTEGER DEFAULT 0
);
-- Calls of generating models that a question made, in the order in which they ended; texts are cut (`methods.api`).
CREATE TABLE calls (
    run VARCHAR NOT NULL, question VARCHAR NOT NULL, position INTEGER NOT NULL, role VARCHAR NOT NULL,
    step VARCHAR NOT NULL, prompt VARCHAR NOT NULL, reply VARCHAR NOT NULL, prompt_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL, seconds DOUBLE NOT NULL, cached BOOLEAN NOT NULL, failed BOOLEAN NOT NULL,
    repeat INTEGER DEFAULT 0,
    thought VARCHAR, raw VARCHAR,       -- the reasoning, and the whole reply if `reply` is only a part of it
    finish_reason VARCHAR, refusal VARCHAR,
    model VARCHAR,                      -- as the endpoint names what served the reply
    created TIMESTAMP                   -- when a cached reply was received
);
-- What preparing for the questions took: one row per (run, artifact), no part of the questions' cost.
CREATE TABLE indexing (
    run VARCHAR NOT NULL,
    artifact VARCHAR NOT NULL,          -- what was made or reopened, as its folder is called; '' where nothing is kept
    reused BOOLEAN NOT NULL,            -- it was there already: the rest is what opening it took
    prompt_tokens BIGINT NOT NULL, completion_tokens BIGINT NOT NULL, memory_tokens BIGINT NOT NULL,
    model_calls BIGINT NOT NULL, seconds DOUBLE NOT NULL, peak_memory_bytes BIGINT NOT NULL, cost_usd DOUBLE NOT NULL,
    notes JSON                          -- what the index says of itself (`methods.api.Indexed`)
);
CREATE TABLE scores (
    run VARCHAR NOT NULL, question VARCHAR NOT NULL, metric VARCHAR NOT NULL,
    value DOUBLE,                       -- NULL: unscorable, counted apart
    unscored VARCHAR,                   -- why a judge gave no value; a row with neither is unscorable
    repeat INTEGER DEFAULT 0
);
-- One row per (run, metric), rewritten with the scores it sums up.
CREATE TABLE summaries (
    run VARCHAR NOT NULL, metric VARCHAR NOT NULL,
    scored BIGINT NOT NULL,             -- rows, unscorable ones included
    n BIGINT NOT NULL,                  -- rows with a value
    mean DOUBLE, variance DOUBLE,       -- NULL where too few rows have a value
    unscored BIGINT DEFAULT 0           -- rows without a value for a judge's reason
);
-- Scores that came from another store and could not be computed here; tables mark them.
CREATE TABLE imports (
    run VARCHAR NOT NULL, metric VARCHAR NOT NULL,
    why VARCHAR NOT NULL,               -- it was not computed here
    imported_at TIMESTAMP NOT NULL
);
CREATE TABLE violations (run VARCHAR NOT NULL, what VARCHAR NOT NULL);

CREATE TABLE datasets (
    fingerprint VARCHAR NOT NULL, reference VARCHAR NOT NULL, card JSON NOT NULL,
    questions INTEGER NOT NULL, passages INTEGER NOT NULL, notes JSON NOT NULL,
    cluster VARCHAR DEFAULT 'question', -- what was sampled: a kind in `clusters`, or question, where each is its own
    caveats VARCHAR[] DEFAULT []        -- sentences that stand below every table
);
CREATE TABLE questions (
    dataset_fingerprint VARCHAR NOT NULL, question VARCHAR NOT NULL, position INTEGER NOT NULL, text VARCHAR NOT NULL,
    answers VARCHAR[] NOT NULL, golds VARCHAR[] NOT NULL, evidence VARCHAR[] NOT NULL,
    supporting_facts VARCHAR[] NOT NULL, type VARCHAR NOT NULL, document_id VARCHAR,
    record JSON NOT NULL,               -- what of the gold has no column: aliases, triples, kinds of answer
    turns JSON                          -- earlier turns of a conversation: [{role, text}]
);
-- Which cluster of a kind (document, world, …) each question belongs to; such questions are not independent.
CREATE TABLE clusters (dataset_fingerprint VARCHAR NOT NULL, kind VARCHAR NOT NULL, question VARCHAR NOT NULL, cluster VARCHAR NOT NULL);
CREATE TABLE passages (id VARCHAR NOT NULL, title VARCHAR NOT NULL, text VARCHAR NOT NULL, sentences VARCHAR[] NOT NULL);
CREATE TABLE methods (id VARCHAR NOT NULL, version INTEGER NOT NULL, card JSON NOT NULL);
CREATE TABLE metrics (
    id VARCHAR NOT NULL, definition VARCHAR NOT NULL, low DOUBLE, high DOUBLE,
    higher_is_better BOOLEAN NOT NULL, metric_group VARCHAR NOT NULL, source VARCHAR NOT NULL,
    judge VARCHAR,                      -- in `judges`; NULL for metrics that need none
    unit VARCHAR DEFAULT 'fraction'     -- fraction (shown × 100) or number (shown as it is)
);

CREATE TABLE judges (judge VARCHAR NOT NULL, card JSON NOT NULL);
CREATE TABLE judge_calls (
    run VARCHAR NOT NULL, question VARCHAR NOT NULL, judge VARCHAR NOT NULL,
    part VARCHAR NOT NULL,              -- which of the judge's prompts, or which claim
    repetition INTEGER NOT NULL,
    call VARCHAR,                       -- key of the reply in the response cache; NULL where no model was asked
    parse JSON,                         -- what was read out of the reply
    unscored VARCHAR,                   -- why nothing could be
    model VARCHAR NOT NULL, prompt_tokens BIGINT NOT NULL, completion_tokens BIGINT NOT NULL,
    seconds DOUBLE NOT NULL, cost_usd DOUBLE NOT NULL,
    repeat INTEGER DEFAULT 0            -- of the answer that was judged
);
CREATE TABLE battle_calls (
    dataset_fingerprint VARCHAR NOT NULL, setting VARCHAR NOT NULL, judge VARCHAR NOT NULL, question VARCHAR NOT NULL,
    one VARCHAR NOT NULL, other VARCHAR NOT NULL,       -- runs, by fingerprint
    part VARCHAR NOT NULL,              -- "as given": one was shown first; "swapped": other was
    repetition INTEGER NOT NULL, call VARCHAR, parse JSON, unscored VARCHAR,
    model VARCHAR NOT NULL, prompt_tokens BIGINT NOT NULL, completion_tokens BIGINT NOT NULL,
    seconds DOUBLE NOT NULL, cost_usd DOUBLE NOT NULL
);
CREATE TABLE battles (
    dataset_fingerprint VARCHAR NOT NULL, setting VARCHAR NOT NULL, judge VARCHAR NOT NULL, criterion VARCHAR NOT NULL,
    question VARCHAR NOT NULL, one VARCHAR NOT NULL, other VARCHAR NOT NULL, part VARCHAR NOT NULL,
    repetition INTEGER NOT NULL,
    verdict VARCHAR,                    -- one, other, tie, none (both disqualified)
    unscored VARCHAR                    -- why there is no verdict; a row with neither is unscorable
);
CREATE TABLE annotations (
    dataset_fingerprint VARCHAR NOT NULL, setting VARCHAR NOT NULL, question VARCHAR NOT NULL,
    one VARCHAR NOT NULL, other VARCHAR,                -- runs; other is NULL where a single answer was labeled
    criterion VARCHAR NOT NULL, annotator VARCHAR NOT NULL, label VARCHAR NOT NULL, note VARCHAR,
    added_at TIMESTAMP NOT NULL,
    labeled VARCHAR                    -- which text a person read, whatever becomes of the run (`results.labeled`)
);

CREATE TABLE checkpoints (
    sha256 VARCHAR NOT NULL, method VARCHAR NOT NULL, version INTEGER NOT NULL, stage VARCHAR NOT NULL,
    config JSON NOT NULL, parents VARCHAR[] NOT NULL, data VARCHAR[] NOT NULL, path VARCHAR NOT NULL,
    added_at TIMESTAMP NOT NULL
);
CREATE TABLE read_questions (sha256 VARCHAR NOT NULL, hashes BLOB NOT NULL);
CREATE TABLE tags (name VARCHAR NOT NULL, run VARCHAR, checkpoint VARCHAR, note VARCHAR, tagged_at TIMESTAMP NOT NULL);
CREATE TABLE gates (
    baseline VARCHAR NOT NULL, candidate VARCHAR NOT NULL, metric VARCHAR NOT NULL, margin DOUBLE NOT NULL,
    strict BOOLEAN NOT NULL, outcome VARCHAR NOT NULL, value DOUBLE, low DOUBLE, high DOUBLE, n BIGINT NOT NULL,
    details JSON NOT NULL, decided_at TIMESTAMP NOT NULL,
    identity VARCHAR,                   -- of the candidate and its questions (`results.gate.memory`); NULL: not counted
    anchor VARCHAR                      -- the run that the loss since then was measured from
);
-- Runs that a baseline stays pinned to until somebody moves them; the newest row of a benchmark counts.
CREATE TABLE anchors (
    name VARCHAR NOT NULL,              -- what the user calls the baseline
    dataset_fingerprint VARCHAR NOT NULL, setting VARCHAR NOT NULL, seed BIGINT NOT NULL, run VARCHAR NOT NULL,
    set_at TIMESTAMP NOT NULL
);
