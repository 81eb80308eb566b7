"""Renders a document as one HTML page that needs no network and no script. The same logs give the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from greenlove_tracker import format as fmt
from greenlove_tracker.rendering import svg
from greenlove_tracker.rendering.document import Block, Document, Heading, Table

_SHORT_TABLE_ROWS = 14  # up to so many, a table is printed on one page
_MANY_SECTIONS = 4  # need contents
_MOST_LISTED = 4  # names in a sentence
_WIDE_TABLE_COLUMNS = 4  # from so many on, a table is scrolled on a narrow screen


def render(document: Document) -> str:
    """Return a document as a page that holds all it needs."""
    ids, sections = count(1), tuple(_sections(document))
    first_titled = next((i for i, section in enumerate(sections, 1) if section.heading), 0)
    n_titled = sum(section.heading is not None for section in sections)
    return (
        _environment()
        .get_template("page.html")
        .render(
            document=document,
            sections=sections,
            contents_before=first_titled if n_titled >= _MANY_SECTIONS else 0,
            next_id=lambda: f"c{next(ids)}",
        )
    )


def fill(template: str, **values: Any) -> str:
    """Return a template of plain text with these values."""
    return _text_environment().get_template(template).render(values).rstrip()


@cache
def _text_environment() -> Environment:
    environment = Environment(  # noqa: S701  # plain text has no markup to escape
        loader=PackageLoader("greenlove_tracker.rendering"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {name: getattr(fmt, name) for name in ("energy", "mass", "percent", "plural", "significant")}
    environment.filters |= {"listed": _listed, "quoted": _quoted}
    return environment


def _listed(names: Sequence[str]) -> str:
    """Return ``a, b, c and 3 more``."""
    listed = list(names[:_MOST_LISTED])
    if len(names) > _MOST_LISTED:
        listed.append(f"{len(names) - _MOST_LISTED:,} more")
    return " and ".join(filter(None, (", ".join(listed[:-1]), *listed[-1:])))


def _quoted(text: str) -> str:
    """Return a YAML string in double quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@dataclass(frozen=True, slots=True)
class _Section:
    """A heading with the blocks up to the next one; those before the first have none, and no id."""

    heading: Heading | None
    blocks: tuple[Block, ...]
    id: str


def _sections(document: Document) -> Iterator[_Section]:
    """Yield the blocks of a document by their headings."""
    heading: Heading | None = None
    blocks: list[Block] = []
    numbers = count(1)
    for block in (*document.blocks, None):
        if isinstance(block, Block) and not isinstance(block, Heading):
            blocks.append(block)
            continue
        if heading or blocks:
            yield _Section(heading, tuple(blocks), f"s{next(numbers)}" if heading else "")
        heading, blocks = block, []


@cache
def _environment() -> Environment:
    """Return Jinja2 set so that whatever a template prints is cleaned and escaped unless ``svg`` made it."""
    environment = Environment(
        loader=PackageLoader("greenlove_tracker.rendering"),
        autoescape=True,
        finalize=_finalized,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"css_string": _css_string, "kind": lambda block: type(block).__name__}
    environment.globals |= {"svg": svg, "UNKNOWN": fmt.UNKNOWN, "table_class": _table_class, "percents": _percents}
    return environment


def _finalized(value: Any) -> Any:
    return value if isinstance(value, Markup) or not isinstance(value, str) else svg.visible(value)


def _css_string(text: str) -> str:
    """Escape ``text`` for a quoted string of CSS: all but ASCII letters and digits."""
    return "".join(c if c.isascii() and c.isalnum() else f"\\{ord(c):06x}" for c in svg.visible(text))


def _table_class(table: Table) -> str:
    names = {
        "wide": len(table.columns) >= _WIDE_TABLE_COLUMNS,
        "short": len(table.rows) <= _SHORT_TABLE_ROWS,
        "total": table.has_total,
    }
    return " ".join(name for name, holds in names.items() if holds)


def _percents(table: Table) -> list[str]:
    """Return the widths of the columns, as CSS."""
    whole = sum(column.weight for column in table.columns)
    return [f"{column.weight / whole:.1%}" for column in table.columns]
