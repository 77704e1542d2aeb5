"""Views of passage ids: they behave like tuples and use less memory."""

import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.schema import PassageIds, Query, passage_id, triple_id

ids = st.lists(st.text(max_size=5).map(lambda text: passage_id("", text)), max_size=30)
bounds = st.one_of(st.none(), st.integers(-40, 40))


@given(ids, bounds, bounds, st.sampled_from([None, 1, 2, -1, -3]))
def test_id_view_behaves_like_its_tuple(listed, start, stop, step):
    view, plain = PassageIds(listed), tuple(listed)
    assert len(view) == len(plain)
    assert view == plain
    assert plain == view
    assert hash(view) == hash(plain)
    assert tuple(view) == plain
    assert repr(view) == repr(plain)
    assert view[start:stop:step] == plain[start:stop:step]
    assert [view[position] for position in range(-len(plain), len(plain))] == [*plain, *plain]
    assert all(identifier in view for identifier in plain)
    assert "p" not in view


def test_id_view_differs_from_other_ids_and_from_lists():
    view = PassageIds([passage_id("", "a"), passage_id("", "b")])
    assert view != PassageIds([passage_id("", "b"), passage_id("", "a")])
    assert view != (passage_id("", "a"),)
    assert view != list(view)
    with pytest.raises(IndexError):
        view[2]


def test_id_view_is_pickled_as_a_tuple():
    query = Query("q", "Who?", candidates=PassageIds([passage_id("", "a")]))
    again = pickle.loads(pickle.dumps(query))
    assert again == query
    assert type(again.candidates) is tuple


def test_ids_of_other_kinds_are_refused():
    with pytest.raises(ValueError, match="hex"):
        PassageIds([triple_id(("a", "b", "c"))])


@pytest.mark.slow
def test_loading_a_file_does_not_import_pandas(data_folder):
    """Importing pandas would add 45 MB and half a second to every load."""
    path = data_folder / "musique" / "musique_ans_v1.0_train50.jsonl"
    program = (
        "import sys; from benchmarks.registry import load; "
        f"load('musique:train', {{'path': {str(path)!r}}}); sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


@pytest.mark.parametrize(
    "listed", [["pabcd", "p000000000000"], ["pABCDEF0123456789"], ["p 123456789abcdef"], ["t0123456789abcdef"], ["p"], [""]]
)
def test_invalid_passage_ids_are_refused(listed: list[str]) -> None:
    with pytest.raises(ValueError, match="hex"):
        PassageIds(listed)
