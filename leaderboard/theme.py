"""The look: colours for light and dark, handed to Streamlit as command-line options because no file of ours lies where
the server is started."""

from __future__ import annotations

_BOTH = {
    "font": "sans-serif",
    "baseFontSize": "15",
    "baseRadius": "6px",
    "headingFontSizes": '["1.7rem", "1.3rem", "1.1rem"]',
    "headingFontWeights": "[650, 600, 600]",
    "showWidgetBorder": "true",
    "paddingTop": "1.5rem",
}
_LIGHT = {
    "primaryColor": "#1d64a8",
    "backgroundColor": "#ffffff",
    "secondaryBackgroundColor": "#f4f6f8",
    "textColor": "#1a1f26",
    "borderColor": "#dfe4ea",
    "linkColor": "#1d64a8",
}
_DARK = {
    "primaryColor": "#6fb3ee",
    "backgroundColor": "#10151b",
    "secondaryBackgroundColor": "#19202a",
    "textColor": "#e4e8ed",
    "borderColor": "#2c3642",
    "linkColor": "#8cc3f3",
}


def options() -> list[str]:
    """The `--theme.…` options of `streamlit run`; the reader's system chooses between light and dark."""
    named = {f"theme.{name}": value for name, value in _BOTH.items()}
    named |= {f"theme.light.{name}": value for name, value in _LIGHT.items()}
    named |= {f"theme.dark.{name}": value for name, value in _DARK.items()}
    return [f"--{name}={value}" for name, value in named.items()]


def custom_properties() -> str:
    """The same look as CSS, by the names that Streamlit gives its properties; for pages without it."""
    names = {
        "primaryColor": "primary-color",
        "backgroundColor": "background-color",
        "textColor": "text-color",
        "secondaryBackgroundColor": "secondary-background-color",
        "borderColor": "border-color",
        "linkColor": "link-color",
    }
    both = "--st-font: system-ui, sans-serif; --st-code-font: ui-monospace, monospace; --st-base-radius: 6px;"
    colours = [f"--st-{css}: light-dark({_LIGHT[name]}, {_DARK[name]});" for name, css in names.items()]
    return f":root {{ color-scheme: light dark; {both} {' '.join(colours)} }}"
