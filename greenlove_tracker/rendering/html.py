"""Renders a document as one HTML page that needs no network and no script. The same logs give the same bytes."""

from __future__ import annotations

import json
import re
from functools import cache, partial
from itertools import count
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from greenlove_tracker.rendering.axes import plot
from greenlove_tracker.rendering.document import Document, Heading, unbroken
from greenlove_tracker.rendering.escapes import in_latex, in_markdown
from greenlove_tracker.text import format as fmt

_WHOLE = re.compile(r"--[a-z][a-z-]*|\[[^][]{1,40}\]")  # which no line parts at its hyphens


def render(document: Document) -> str:
    """Return a document as a page that holds all it needs."""
    template = _environment(is_page=True).get_template("page.html")
    return template.render(document=document, next_number=count(1).__next__)


def fill(template: str, **values: Any) -> str:
    """Fill a template with these values; they are escaped where it is one of HTML."""
    environment = _environment(is_page=template.endswith(".html"))
    return environment.get_template(template).render(values).rstrip()


@cache
def _environment(*, is_page: bool) -> Environment:
    """Return Jinja2's environment for pages, which cleans and escapes every text, or for plain text."""
    environment = Environment(
        loader=PackageLoader("greenlove_tracker.rendering"),
        autoescape=is_page,  # noqa: S701  # plain text has no markup to escape
        finalize=_finalized if is_page else None,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        **{name: getattr(fmt, name) for name in ("energy", "mass", "percent", "plural", "shortened", "significant")},
        "css_string": _css_string,
        "running": _running,
        "kind": lambda block: type(block).__name__,
        "markdown": in_markdown,
        "latex": in_latex,
        "quoted": partial(json.dumps, ensure_ascii=False),  # JSON's strings are YAML's
    }
    environment.tests["heading"] = lambda block: isinstance(block, Heading)
    environment.globals |= {"plot": plot, "UNKNOWN": fmt.UNKNOWN}
    return environment


def _finalized(value: Any) -> Any:
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return unbroken(fmt.printable(value, lines=""))


def _running(text: str) -> Markup:
    """Return running text in which names of options and intervals are not broken across lines."""
    return Markup(_WHOLE.sub(r'<span class="whole">\g<0></span>', str(escape(_finalized(text)))))  # noqa: S704  # escaped


def _css_string(text: str) -> str:
    """Escape ``text`` for a quoted string of CSS: all but ASCII letters and digits."""
    return "".join(c if c.isascii() and c.isalnum() else f"\\{ord(c):06x}" for c in fmt.printable(text, lines=""))
