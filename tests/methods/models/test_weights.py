"""The hash of a model: what changes it, and which recorded hashes stay valid."""

from __future__ import annotations

from pathlib import Path

from methods.models.weights import has_hash, weights_hash


def test_a_chat_template_counts_in_the_hash_of_a_folder_and_hashes_recorded_without_it_stay_valid(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    before = weights_hash(str(tmp_path))
    hashes = {before}
    for text in ("{{ messages }}", "{{ messages[0] }}"):
        (tmp_path / "chat_template.jinja").write_text(text)
        hashes.add(own := weights_hash(str(tmp_path)))
        assert has_hash(str(tmp_path), None, own)
        assert has_hash(str(tmp_path), None, before)
    assert len(hashes) == 3
    assert not has_hash(str(tmp_path), None, (hashes - {before, own}).pop())
    (tmp_path / "config.json").write_text("[]")
    assert not has_hash(str(tmp_path), None, before)
    assert weights_hash("pocket") == weights_hash("pocket", templates=False)  # it ships, and its rows keep their identity
