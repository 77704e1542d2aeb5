"""The MkDocs hook: reference pages are written when the site is built, and what GitHub reads otherwise is evened out.

Pages in `docs/` are read on GitHub too, so they link to files of the repository by relative paths.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from docs._site.reference import PAGES, pages

FROM_THE_ROOT = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
"""Pages of the site that lie at the root of the repository."""

INDEX = "reference/index.md"
"""The page that stands for the generated ones where the repository is read: `reference/index.md#metrics` is `reference/metrics.md` here."""

_LINK = re.compile(r"(?<=\]\()(?P<path>[^)#\s:]+)(?P<anchor>#[^)\s]*)?(?=\))")

_OPTION = re.compile(r"(?<=<tr>\n<td><code>)[\w.]+(?=</code>)")
_CELL = re.compile(r"<td.*?</td>", re.DOTALL)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in `docs/`."""
    from mkdocs.structure.files import File

    root = Path(config.config_file_path).parent
    made = pages() | {path: (root / source).read_text("utf-8") for path, source in FROM_THE_ROOT.items()}
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn relative links to files of the repository into links to the site's page of it, or to the source."""
    here = FROM_THE_ROOT.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    root = Path(config.config_file_path).parent

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), match["path"]))
        own = next((path for path, source in FROM_THE_ROOT.items() if source == target), None)
        if own is None and target.startswith("docs/"):
            own = target.removeprefix("docs/")
        made = f"reference/{(match['anchor'] or '')[1:]}.md"
        if own == INDEX and made in PAGES:
            return posixpath.relpath(made, posixpath.dirname(page.file.src_uri) or ".")
        if own is not None:
            near = posixpath.relpath(own, posixpath.dirname(page.file.src_uri) or ".")
            return near + (match["anchor"] or "")
        if not (root / target).exists():
            return match[0]
        kind = "tree" if (root / target).is_dir() else "blob"
        return f"{config.extra['source']}/{kind}/main/{target}{match['anchor'] or ''}"

    return _LINK.sub(link, markdown)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Take the backslash from bars within cells, which Python's Markdown leaves; let options break at their dots."""
    plain = _CELL.sub(lambda cell: cell[0].replace("\\|", "|"), html)
    return _OPTION.sub(lambda name: name[0].replace(".", ".<wbr>"), plain)
