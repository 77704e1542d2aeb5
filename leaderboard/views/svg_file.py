"""Drawings as SVG files of their own: text only ever as escaped text, look in the file itself."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

from leaderboard.views.drawings import Drawing

STYLE = """svg { background: #ffffff; font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
.paper { fill: #ffffff; } .name { fill: #1a1f26; stroke: none; } .head { fill: #1a1f26; font-weight: 650; }
.tick, .small { fill: #5b6470; } .small { font-size: 10px; } .grid { stroke: #dfe4ea; }
.value { fill: #1a1f26; } .apart { fill: #6b7380; } .best { fill: #1d64a8; font-weight: 650; }
.better { fill: #00644d; } .worse { fill: #b04a00; } .title { fill: #1a1f26; font-size: 15px; font-weight: 650; }
.reference, .front { stroke: #8a8f98; stroke-dasharray: 5 4; stroke-width: 1.5; fill: none; }
.mark { stroke-width: 2.5; } .mark .dot { stroke: none; }
.of-method { stroke: #2a87c8; fill: #2a87c8; } .of-control { stroke: #d55e00; fill: #d55e00; }
.of-apart, .of-partial { stroke: #8a8f98; fill: #8a8f98; } .of-front { stroke: #009e73; fill: #009e73; }"""


def svg_file(drawing: Drawing) -> str:
    """A drawing as the text of an SVG file."""
    tag, attributes, children = drawing
    _, _, width, height = attributes["viewBox"].split()
    given = {"xmlns": "http://www.w3.org/2000/svg", "width": width, "height": height, **attributes}
    style = f"<style>{escape(STYLE)}</style>"
    paper = f'<rect class="paper" width={quoteattr(width)} height={quoteattr(height)}/>'
    return f"<{tag}{_written(given)}>{style}{paper}{''.join(map(_element, children))}</{tag}>\n"


def _element(part: Drawing | str) -> str:
    if isinstance(part, str):
        return escape(_allowed(part))
    tag, attributes, children = part
    return f"<{tag}{_written(attributes)}>{''.join(map(_element, children))}</{tag}>"


def _written(attributes: dict[str, str]) -> str:
    return "".join(f" {name}={quoteattr(_allowed(value))}" for name, value in attributes.items())


def _allowed(text: str) -> str:
    """Text without the characters that XML cannot hold."""
    return re.sub("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "", text)
