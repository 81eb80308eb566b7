"""No module of the logs imports one that imports it, lazily and for types alone included."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import greenlove_tracker.logs

ROOM = Path(greenlove_tracker.logs.__file__).parent
PACKAGE = "greenlove_tracker.logs"


def imported(path: Path) -> set[str]:
    """Return all that a module names in its imports, wherever in it they stand."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}", *(f"{node.module}.{one.name}" for one in node.names)}
    return found


def test_no_two_modules_import_each_other():
    names = {path: ".".join((PACKAGE, *path.relative_to(ROOM).with_suffix("").parts)) for path in ROOM.rglob("*.py")}
    graph = {name: imported(path).intersection(names.values()) for path, name in names.items()}
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle
    assert order.index(f"{PACKAGE}.schema") < order.index(f"{PACKAGE}.run") < order.index(f"{PACKAGE}.directory")
