"""The leaderboard as an ASGI application, which `streamlit run` starts: Streamlit's own, and the pages' addresses."""

from __future__ import annotations

import re
from pathlib import Path

import streamlit as st
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from leaderboard.pages import PAGES

_HERE = Path(__file__).parent
_ROOT = "<script>window.__streamlit = { BACKEND_BASE_URL: location.origin + '/' };</script>"
"""Script that gives the browser the server's address. Otherwise it first tries below the page's own address, which answers 404."""


_ON_EVERY_PAGE = ("BidiComponent", "ButtonGroup", "Checkbox", "Html", "Selectbox", "TextInput", "Popover")
_IMPORT = re.compile(r"""(?:from|import)\s*["']\./([\w.-]+\.js)["']""")


def _modules(folder: Path) -> list[str]:
    """List the script files of the elements that the pages use, with the files that they import.

    A browser that loads them together with the page draws it about half a second earlier: otherwise it requests them
    when the first element arrives, and shows placeholders meanwhile.
    """
    found: dict[str, None] = {}
    waiting = [path.name for name in _ON_EVERY_PAGE for path in sorted(folder.glob(f"{name}.*.js"))]
    while waiting:
        name = waiting.pop()
        if name not in found and (folder / name).is_file():
            found[name] = None
            waiting += _IMPORT.findall((folder / name).read_text("utf-8"))
    return list(found)


def _index() -> str:
    """Return Streamlit's page with the server's root path and the scripts to load with it."""
    static = Path(st.__file__).parent / "static"
    text = (static / "index.html").read_text("utf-8")
    names = [name for name in _modules(static / "static" / "js") if name not in text]
    links = "".join(f'<link rel="modulepreload" crossorigin href="/static/js/{name}">' for name in names)
    return text.replace("<head>", f"<head>{_ROOT}", 1).replace("</head>", f"{links}</head>", 1)


_INDEX = _index()


async def page(request: Request) -> Response:
    """Serve Streamlit's page under the address of a leaderboard page, so that links to pages work."""
    return HTMLResponse(_INDEX, headers={"Cache-Control": "no-cache"})


async def icon(request: Request) -> Response:
    """Serve the leaderboard's icon to browsers that request `/favicon.ico`."""
    return FileResponse(_HERE / "assets" / "icon.svg")


app = st.App(_HERE / "pages" / "app.py", routes=[*(Route(f"/{address}", page) for _, _, _, address in PAGES), Route("/favicon.ico", icon)])
