"""MkDocs hook: formulas become MathML when the site is built, so that a page needs no script and no network to show them."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """Replace what the arithmatex extension has marked."""
    return FORMULA.sub(
        lambda found: convert(html.unescape(found[2]).strip(), display="inline" if found[1] == "span" else "block"),
        content,
    )
