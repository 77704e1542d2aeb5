"""Out-of-vocabulary names: consistent within an example, in no held-out world, with the configured share."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("torch")

from benchmarks.core.random import Draws
from benchmarks.worlds.names import NAME, all_words, out_of_vocabulary_words, replaced, training_words
from methods.clara.data import Exchange, TrainingExample, in_examples, in_rows
from methods.clara.prompts import answer
from methods.clara.rows import JointRow

KNOWN = training_words()


def examples(count: int = 200) -> list[TrainingExample]:
    """Return examples with two people each, one of whom is in the question."""
    results = []
    for number in range(count):
        item, two, town = (KNOWN[(3 * number + position) % len(KNOWN)] for position in range(3))
        texts = (f"{item}: {item} was born in {town}.", f"{two}: {two}'s brother is {item} the Elder.")
        results.append(TrainingExample(texts, (Exchange(answer(f"Where was {item} born?", 2), town),)))
    return results


def test_name_is_replaced_everywhere_in_a_training_example() -> None:
    before, after = examples(), in_examples(examples(), 0.5, 0)
    for old, new in zip(before, after, strict=True):
        swaps = dict(
            zip(*(NAME.findall(" ".join((*item.documents, item.exchanges[0].prompt.question))) for item in (old, new)), strict=True)
        )
        assert new.documents == tuple(replaced(text, swaps) for text in old.documents)
        assert new.exchanges[0].prompt.question == replaced(old.exchanges[0].prompt.question, swaps)
        assert new.exchanges[0].target == swaps.get(old.exchanges[0].target, old.exchanges[0].target)
        assert new.exchanges[0].target in new.documents[0]
        assert re.sub(NAME, "", new.documents[1]) == re.sub(NAME, "", old.documents[1])


@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_share_of_out_of_vocabulary_names_is_configurable_and_none_is_a_world_word(share: float) -> None:
    names = [name for example in in_examples(examples(), share, 3) for name in NAME.findall(example.exchanges[0].target)]
    strange = [name for name in names if name not in {*KNOWN}]
    assert {*strange}.isdisjoint(all_words())
    assert len(strange) / len(names) == pytest.approx(share, abs=0.08)


def test_training_examples_are_sampled_independently_and_reproducibly() -> None:
    same = examples(1) * 40
    assert len({example.documents for example in in_examples(same, 0.5, 0)}) > 3
    assert in_examples(same, 0.5, 0) == in_examples(same, 0.5, 0) != in_examples(same, 0.5, 1)


def test_rows_with_equal_documents_get_the_same_replacements() -> None:
    rows = [
        JointRow(f"j{number}", "who ?", item.documents, item.exchanges[0].target, (0,), (item.exchanges[0].target,))
        for number, item in enumerate(examples(60) * 2)
    ]
    assert in_rows(rows, 0.0, 0) == rows
    changed = in_rows(rows, 0.5, 0)
    assert [item.documents for item in changed[:60]] == [item.documents for item in changed[60:]]
    assert sum(item.documents != old.documents for item, old in zip(changed, rows, strict=True)) > 60
    assert all(item.golds == (item.answer,) and item.answer in item.documents[0] for item in changed)


def test_invented_words_begin_and_end_like_known_words() -> None:
    swaps = out_of_vocabulary_words(KNOWN, 1.0, Draws("test", 0))
    assert len(swaps) > 0.9 * len(KNOWN)
    assert all(made.startswith(word[:3]) and NAME.fullmatch(made) for word, made in swaps.items())
