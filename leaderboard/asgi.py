"""The leaderboard as an ASGI application, which `streamlit run` starts: Streamlit's own, and the pages' addresses."""

from __future__ import annotations

import importlib
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import streamlit as st
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from leaderboard.pages import PAGES

_HERE = Path(__file__).parent
_ROOT = "<script>window.__streamlit = { BACKEND_BASE_URL: location.origin + '/' };</script>"
"""Script that gives the browser the server's address. Otherwise it first tries below the page's own address, which answers 404."""
_INDEX = (Path(st.__file__).parent / "static" / "index.html").read_text("utf-8").replace("<head>", f"<head>{_ROOT}", 1)


async def page(request: Request) -> Response:
    """Serve Streamlit's page under the address of a leaderboard page, so that links to pages work."""
    return HTMLResponse(_INDEX, headers={"Cache-Control": "no-cache"})


async def icon(request: Request) -> Response:
    """Serve the leaderboard's icon to browsers that request `/favicon.ico`."""
    return FileResponse(_HERE / "assets" / "icon.svg")


@asynccontextmanager
async def prepared(_: st.App) -> AsyncIterator[None]:
    """Import the start page before the server accepts visitors, and compute its matrix while their browsers load Streamlit."""
    # Not at the top of this file: caches that are made before Streamlit's runtime has started log warnings.
    for file in ("app", "board"):
        importlib.import_module(f"leaderboard.pages.{file}")
    threading.Thread(target=importlib.import_module("leaderboard.read_boards").prepare, name="preparing").start()
    yield


_ROUTES = [*(Route(f"/{address}", page) for _, _, _, address in PAGES), Route("/favicon.ico", icon)]
app = st.App(_HERE / "pages" / "app.py", routes=_ROUTES, lifespan=prepared)
