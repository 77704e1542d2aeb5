-- A label is about a text that a person read, whatever becomes of the run: it says which (`results.labelled`).
ALTER TABLE annotations ADD COLUMN labelled VARCHAR;
UPDATE annotations SET labelled = found.labelled FROM (
    SELECT a.rowid AS place, left(sha256(concat_ws(chr(31), q.text, p.answer, o.answer)), 16) AS labelled
    FROM annotations a
    JOIN questions q ON q.dataset_fingerprint = a.dataset_fingerprint AND q.question = a.question
    JOIN predictions p ON p.run = a.one AND p.question = a.question
    LEFT JOIN predictions o ON o.run = a.other AND o.question = a.question
    WHERE a.other IS NULL OR o.answer IS NOT NULL
) found WHERE annotations.rowid = found.place;
