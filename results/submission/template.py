"""A folder to begin with: a card with comments, the questions without gold, an empty predictions file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

from benchmarks.errors import UserError
from benchmarks.settings import Setting
from results.submission.checks import Target

CARD, PREDICTIONS, QUESTIONS = "card.yaml", "predictions.jsonl", "questions.jsonl"
PASSAGES, CANDIDATES = "passages.jsonl", "candidates.jsonl"

_CARD = """\
# The card of a submission; docs/submit.md explains every key. Scores are not part of it: they are computed from the
# predictions by whoever takes the submission.
format: 1
method:
  name: my-method            # letters, digits and . _ + -
  version: "1"               # change it whenever answers change
  description: ""            # what it does, in a few sentences
  authors: []                # [A. Author, B. Author]
  url: null                  # code or home page, http(s)
  paper: ""
  licence: ""
  parameters: null           # of all models together
  open_weights: null         # true or false

{data}
# retrieval_only: true       # for rankings without answers

models: []                   # every model used:
#  - {{role: reader, id: organisation/model, revision: abc123}}

# Everything that the method, or a model in it, was trained or tuned on; [] says that nothing was.
training_data: []
#  - {{reference: "{name}:train"}}                  # data that ragmeter knows: name[/subset]:split
#  - {{name: "another corpus", url: "https://…"}}   # other data, in words
#  - {{reference: "worlds/multihop:train", seeds: 0-99}}

settings: {{}}                 # hyper-parameters and prompts, in any form
hardware: ""
contact: ""
notes: ""
"""


def write_template(
    folder: Path,
    target: Target,
    setting: Setting,
    *,
    seed: int = 0,
    limit: int | None = None,
    config: dict[str, Any] | None = None,
    passages: bool = False,
) -> list[Path]:
    """Write the files; none of them holds gold.

    Args:
        folder: Where to; made when needed. Files that are there are not overwritten.
        target: The benchmark, loaded and in its setting.
        setting: The setting.
        seed: Of the setting's draws.
        limit: Only the first questions.
        config: The dataset's options, where they differ from their defaults.
        passages: Whether to write the corpus, and what each question may use, too.

    Returns:
        The files written.

    Raises:
        UserError: One of the files is there already, or the folder cannot be written.
    """
    data: dict[str, Any] = {"benchmark": str(target.loaded.reference), "setting": str(setting), "seed": seed}
    data |= {"limit": limit} if limit is not None else {}
    data |= {"config": config} if config else {}
    data["dataset_fingerprint"] = target.loaded.fingerprint
    questions = target.asked.questions
    queries = [question.query() for question in questions]
    card = _CARD.format(data=yaml.safe_dump(data, sort_keys=False), name=target.loaded.reference.name)
    files: dict[str, Callable[[], Iterable[str]]] = {
        CARD: lambda: [card],
        PREDICTIONS: list,
        QUESTIONS: lambda: (_line({"id": query.id, "text": query.text}) for query in queries),
    }
    if passages:
        corpus = target.asked.corpus
        files[PASSAGES] = lambda: (
            _line({"id": one.id, "title": one.title, "text": one.text, "sentences": list(one.sentences)}) for one in corpus
        )
        files[CANDIDATES] = lambda: (
            _line(
                {
                    "id": query.id,
                    "candidates": None if query.candidates is None else list(query.candidates),
                    "document_id": query.document_id,
                    "topic_entities": list(query.topic_entities),
                }
            )
            for query in queries
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in files:
            if (folder / name).exists():
                raise UserError("this file is there already", where=str(folder / name), try_this="choose another --out")
        for name, content in files.items():
            with open(folder / name, "x", encoding="utf-8") as sink:
                sink.writelines(content())
    except OSError as error:
        raise UserError(f"the folder cannot be written: {error.strerror}", where=str(folder)) from error
    return [folder / name for name in files]


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"
