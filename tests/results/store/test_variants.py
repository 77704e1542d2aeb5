"""Whether training data hold what a benchmark asks, by their names."""

from __future__ import annotations

import pytest

from results.store.variants import covers, overlap


@pytest.mark.parametrize(
    ("reference", "dataset", "expected"),
    [
        ("nq", "nq:test", True),
        ("nq:train", "nq:test", False),
        ("nq:train+test", "nq:test", True),
        ("worlds/long:test", "worlds/graph:test", False),
        ("worlds:test", "worlds/graph:test(relations=unseen)", True),
        ("some words, not a reference", "nq:test", False),
        ("worlds:train", "worlds/multihop:test", False),
        ("hotpotqa:dev", "styled:dev(hotpotqa,informal=1,seed=0)", True),
        ("nq:test", "sark:test", True),
        ("hotpotqa:train", "styled:dev(hotpotqa,informal=1,seed=0)", False),
        ("sark:test", "nq/kilt:test", True),
        ("styled:dev(hotpotqa)", "hotpotqa:dev", True),
        ("styled:dev(nq)", "styled:dev(hotpotqa,formal=1)", False),
        ("styled:dev", "styled:dev(hotpotqa,informal=1,seed=0)", True),
        ("styled:dev", "hotpotqa:dev", False),
        ("worlds:train", "styled:validation(worlds/multihop,formal=1,seed=0)", False),
        ("worlds/graph:train", "styled:train(worlds/multihop,formal=1,seed=0)", False),
    ],
)
def test_training_data_cover_the_split_that_is_asked(reference: str, dataset: str, expected: bool) -> None:
    assert covers(reference, dataset) is expected


@pytest.mark.parametrize(
    ("item", "other", "expected"),
    [
        # Subsets that differ in their passages alone.
        ("hotpotqa/distractor:train", "hotpotqa/fullwiki:train", True),
        ("hotpotqa/distractor:dev", "hotpotqa/fullwiki:dev", True),
        ("hotpotqa/distractor:test", "hotpotqa/fullwiki:test", False),
        ("hotpotqa/distractor:train+dev", "hotpotqa/fullwiki:dev", True),
        ("hotpotqa/distractor:train", "hotpotqa/fullwiki:dev", False),
        ("hotpotqa:dev", "hotpotqa/fullwiki:dev", True),
        ("hotpotqa/fullwiki:dev", "styled:dev(hotpotqa,informal=1,seed=0)", True),
        ("worlds/style:validation", "worlds/multihop:validation", True),
        ("worlds/style:validation", "worlds/long:validation", False),
        # Splits within splits.
        ("ultradomain/biology:all", "ultradomain/biology:test", True),
        ("ultradomain:all", "ultradomain/biology:test", True),
        ("ultradomain:all", "ultradomain:test", True),
        ("ultradomain/fin:all", "ultradomain/fin:train", True),
        ("ultradomain/fin:train", "ultradomain/legal:all", False),
        ("ultradomain/biology:all", "ultradomain/fiction:test", False),
        ("ultradomain/fin:train", "ultradomain/biology:test", False),
        ("ultradomain/legal-queries:all", "ultradomain/legal:all", False),
        ("musique/ans:dev", "musique/full:dev", True),
        ("musique/ans:train", "musique/full:dev", False),
        ("nq/open:train", "nq/dpr:dev", True),
        ("nq/open:train", "nq/kilt:train", True),
        ("nq/open:test", "nq/dpr:test", True),
        ("nq/kilt:dev", "nq/dpr:test", True),
        ("nq/open:train", "nq/dpr:test", False),
        ("nq/kilt:dev", "nq/dpr:dev", False),
        ("nq/kilt:test", "nq/dpr:test", False),
        ("nq:dev", "nq/dpr:test", False),
        ("nq:dev", "nq/open:train", True),
        # Datasets that ask another's questions.
        ("clara_stages/e2e_eval_hotpotqa_no_pos:test", "hotpotqa/fullwiki:dev", True),
        ("clara_stages/e2e_eval_nq_no_pos:test", "clara_stages/e2e_eval_nq_with_pos:test", True),
        ("clara_stages/e2e_training_musique_no_pos:train", "2wikimultihopqa:train", True),
        ("clara_stages/e2e_training_musique_no_pos:train", "2wikimultihopqa:dev", False),
        ("nobody/knows:dev", "nobody/else:dev", False),
        ("hotpotqa/nothing:dev", "hotpotqa/fullwiki:dev", False),
    ],
)
def test_questions_are_the_same_under_the_names_that_the_cards_declare(item: str, other: str, expected: bool) -> None:
    assert covers(item, other) is covers(other, item) is overlap(item, other) is expected


def test_data_without_a_split_hold_the_questions_of_all_their_splits() -> None:
    assert covers("hotpotqa/fullwiki", "hotpotqa/distractor:dev")
    assert not covers("hotpotqa/distractor:dev", "hotpotqa/fullwiki")  # a split is not all that is asked
    assert overlap("hotpotqa/distractor:dev", "hotpotqa/fullwiki")
    assert not overlap("hotpotqa", "musique:dev")
