-- Columns that people add to an experiment's boards, beside those that its file names; `experiment_runs` is rewritten
-- whenever the file is run, this is not.
CREATE TABLE added_columns (
    experiment VARCHAR NOT NULL, dataset VARCHAR NOT NULL, setting VARCHAR NOT NULL, metric VARCHAR NOT NULL
);
