"""Fingerprints: equal fingerprints mean that work can be reused, so they depend on content alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

LENGTH = 16
"""Hex digits of a fingerprint (64 bits)."""


def fingerprint(*parts: Any) -> str:
    """Hash JSON-like values in their canonical form.

    Args:
        parts: Anything `json` can write; mappings are compared without regard to key order.

    Returns:
        Sixteen hex digits, equal on every machine for equal parts.

    Raises:
        TypeError: A part is not JSON-like; a fingerprint of `repr` would differ between runs.
    """
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=LENGTH // 2).hexdigest()


def content_hash(chunks: Iterable[str]) -> str:
    """Hash a stream of texts without holding it; the boundaries between texts count."""
    digest = hashlib.blake2b(digest_size=LENGTH // 2)
    for chunk in chunks:
        raw = chunk.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return digest.hexdigest()


def content_id(prefix: str, *texts: str) -> str:
    """An opaque id that says nothing but "same content, same id": a letter and sixteen hex digits."""
    return prefix + content_hash(texts)
