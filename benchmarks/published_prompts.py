"""Prompts as their authors published them, if they are on this machine: `RAGMETER_DATA/prompts`, by the name of the file there.

Nothing of them ships. A file is taken only if its content has the recorded hash, so that an edited copy is no published prompt.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from benchmarks.core.errors import UserError
from benchmarks.sources import data_folder

FOLDER = "prompts"


def published(name: str, sha256: str) -> Mapping[str, str] | None:
    """Return the prompts of a JSON file by key; None if the file is not here.

    Args:
        name: The file below `RAGMETER_DATA/prompts`.
        sha256: Of its content as JSON with sorted keys and without spaces.

    Raises:
        UserError: The file is not the published one.
    """
    folder = data_folder()
    path = None if folder is None else folder / FOLDER / name
    if path is None or not path.is_file():
        return None
    try:
        content = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise UserError(
            f"this file of prompts is not JSON: {error}", code="prompts-not-json", where=str(path), try_this="fetch it again, or remove it"
        ) from None
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    if (digest := hashlib.sha256(canonical).hexdigest()) != sha256:
        what = f"these prompts are not the published ones: their hash is {digest[:12]}…, recorded is {sha256[:12]}…"
        raise UserError(what, code="missing-prompt", where=str(path), try_this="fetch the file again, or remove it to use our prompts")
    prompts: Mapping[str, str] = content
    return prompts


def as_template(prompt: str, **names: str) -> str:
    """Return a prompt for `str.format` as a `string.Template`, its placeholders under other names.

    Args:
        prompt: With `{placeholder}`; doubled braces stand for one.
        names: By the name of a placeholder, its new name.
    """
    return prompt.replace("$", "$$").format(**{old: f"${{{new}}}" for old, new in names.items()})
