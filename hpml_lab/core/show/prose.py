"""Sentences as HTML."""

import html
import re


def prose_html(text: str) -> str:
    """A sentence with its `code` set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))
