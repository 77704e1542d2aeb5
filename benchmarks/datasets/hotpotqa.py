"""HotpotQA: questions over two Wikipedia paragraphs, with the sentences that support the answer.

Source: Yang et al., 2018, https://hotpotqa.github.io; file formats as released by the authors.
"""

from __future__ import annotations

from dataclasses import replace
from sys import intern

from benchmarks.datasets.multihop import MultiHopConfig, Parsed, assemble, sentence_record
from benchmarks.records import Record, refuse_other_dataset
from benchmarks.registry import Benchmark, DataReference, DatasetCard, register
from benchmarks.sources import find_files

VERSION = 1

CARD = DatasetCard(
    title="HotpotQA",
    task="multi-hop QA",
    description="Questions that need two Wikipedia paragraphs (bridge, comparison), with supporting sentences; distractor: "
    "ten paragraphs per question, the gold ones among them; fullwiki: the authors' retrieved paragraphs.",
    hub_id="hotpotqa/hotpot_qa",
    revision="1908d6afbbead072334abe2965f91bd2709910ab",
    license="CC BY-SA 4.0",
    citation="@inproceedings{yang2018hotpotqa, title={HotpotQA: A Dataset for Diverse, Explainable Multi-hop Question "
    "Answering}, author={Yang, Zhilin and Qi, Peng and Zhang, Saizheng and Bengio, Yoshua and Cohen, William W. and "
    "Salakhutdinov, Ruslan and Manning, Christopher D.}, booktitle={EMNLP}, year={2018}}",
    languages=("en",),
    splits={"train": 90447, "dev": 7405, "test": 7405},
    metrics=("f1(rules=hotpotqa)", "em", "sp_em", "sp_f1", "joint_em", "joint_f1"),
    cluster="evidence group",
    settings=("distractor", "corpus", "oracle", "gold_only", "closed_book"),
    # The test splits of the two are different questions.
    same_questions={f"fullwiki:{split}": (f"hotpotqa/distractor:{split}",) for split in ("train", "dev")},
    notes="The hub's rows are converted to the authors' records, so both sources give the same questions. The test split is "
    "released only for fullwiki and without gold: its questions load without answers and cannot be scored. As in the "
    "official script, gold includes supporting facts that no method can find, because their sentence or paragraph is "
    "missing (fullwiki may lack gold paragraphs).",
)

FOLDERS = ("hotpotqa", "hotpot_qa", "hotpot")
_TRAIN = ("hotpot_train_v1.1.json", "hotpot_train*.json", "hotpot_*train*.json")
FILES = {
    "distractor:train": _TRAIN,
    "distractor:dev": ("hotpot_dev_distractor_v1.json", "hotpot_dev_distractor*.json", "hotpot_distractor*dev*.json"),
    "distractor:test": ("hotpot_test_distractor*.json", "hotpot_distractor*test*.json"),
    "fullwiki:train": _TRAIN,
    "fullwiki:dev": ("hotpot_dev_fullwiki_v1.json", "hotpot_dev_fullwiki*.json", "hotpot_fullwiki*dev*.json"),
    "fullwiki:test": ("hotpot_test_fullwiki_v1.json", "hotpot_test_fullwiki*.json", "hotpot_fullwiki*test*.json"),
}
HUB = {
    f"{subset}:{split}": (f"{subset}/{stem}-*.parquet", f"{subset}/{stem}/*.parquet", f"{subset}/{stem}.jsonl")
    for subset in ("distractor", "fullwiki")
    for split, stem in (("train", "train"), ("dev", "validation"), ("test", "test"))
}


@register("hotpotqa", card=CARD, version=VERSION, config=MultiHopConfig, subsets=("distractor", "fullwiki"))
def load(reference: DataReference, config: MultiHopConfig) -> Benchmark:
    """Load a split from the authors' file or the hub's rows.

    A paragraph's text is the concatenation of its sentences, which include their leading spaces.

    Raises:
        UserError: The file is missing, or belongs to another dataset or split.
    """
    split = reference.split or "dev"
    paths = find_files(reference, config, card=CARD, folders=FOLDERS, patterns=FILES, hub=HUB)

    def parse(record: Record) -> Parsed:
        refuse_other_dataset(record, "hotpotqa")
        parsed = sentence_record(record, split=split, joiner="")
        level = intern(record.text("level", ""))
        metadata = {**parsed.question.metadata, **({"level": level} if level else {})}
        parsed.question = replace(parsed.question, metadata=metadata)
        return parsed

    return assemble(reference, VERSION, CARD, config, paths, parse)
