"""Figures of the package's structure, from its syntax trees: size by room, density, riddles, names, circles.

`python benchmarks/structure.py` prints them, and fails where one passes its limit. Size is counted in nodes of the
syntax tree, which packing a line does not lower; density is nodes a statement, which packing raises. Statements are
printed and limit nothing. `--names` names what is counted.
`--calls` adds how many files of the package a call passes, warm, by `sys.setprofile`: `Tracker.epoch_end()` on the
calling thread, one run's PDF, and `Estimator.estimate()`.
"""

from __future__ import annotations

import argparse
import ast
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "greenlove_tracker"
ROOT = Path(__file__).parents[1] / PACKAGE
SMALL_LINES = 6  # a module up to this long is an empty __init__
LEAST_LINES = 80  # a module below it with a single importer belongs into its importer
VERBS = f"{PACKAGE}.cli."  # but one verb is one file
IN_EACH_FRAMEWORK = {
    "GreenloveCallback",
    "AutomaticCallback",
}  # what a user writes whatever the framework: its module tells which one
LIMITS = {
    "modules": 287,  # docs/decisions/0025-a-budget-of-statements.md
    "loose modules in the root": 4,  # docs/decisions/0032-size-in-nodes.md has this and the four that follow
    "tuple assignments per 1,000 statements": 8,  # Optuna, Zeus, CodeCarbon, coverage.py and memray have up to 0.7
    "conditional expressions in one another": 0,
    "displays used as a chain of ifs": 0,
    "names assigned within an assignment": 0,
    "own imports, % of lines": 4.0,  # their share grows while lines go; 3.5 of the 82,000 lines of November
    "modules under 80 lines with one importer": 10,
    "class names that exist twice": 0,
    "fmt: skip without a reason": 0,
    "circles of imports": 0,  # those for types and those within functions count, too
}


@dataclass(frozen=True)
class Budget:
    """What the rooms that share a budget may hold.

    Attributes:
        nodes: of their syntax trees, at most.
        density: nodes a statement, at most.
        owed: nodes above that, which the room holds until it is simpler (docs/decisions/0038): it may not grow further.
    """

    nodes: int
    density: float
    owed: int = 0


# By rooms that share a budget; `.` is the package's root.
BUDGETS = {
    (".",): Budget(3_500, 9.5),
    ("vocabulary",): Budget(14_000, 10.7),
    ("files",): Budget(900, 11.1),
    ("machine",): Budget(7_100, 11.2),
    ("settings",): Budget(4_000, 12.5),
    ("text",): Budget(4_800, 10.9),
    ("tables", "data"): Budget(2_400, 10.8),
    ("meter",): Budget(7_000, 11.2),
    ("tracker",): Budget(26_500, 10.5),
    ("logs",): Budget(40_000, 12.4),
    ("extrapolation",): Budget(27_400, 14.5),
    ("exploration",): Budget(16_500, 11.7),
    ("projection",): Budget(24_500, 12.1),
    ("techniques",): Budget(19_000, 11.4),
    ("checkpointing",): Budget(11_500, 11.5),
    ("experiments",): Budget(11_000, 12.5),
    ("scheduling", "grid"): Budget(24_500, 12.3),
    ("integrations",): Budget(13_500, 9.7),
    ("report", "rendering"): Budget(58_000, 13.2),
    ("cli",): Budget(17_500, 11.8),
    ("compat",): Budget(7_000, 11.6),
}
PACKAGE_BUDGET = Budget(330_000, 12.0, owed=820)
CALL_LIMITS = {"epoch_end()": 10, "one run's PDF": 30, "Estimator.estimate()": 70}


def module_name(path: Path) -> str:
    """``greenlove_tracker.logs.run`` of its file."""
    parts = (PACKAGE, *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def own_imports(tree: ast.AST) -> Iterator[ast.ImportFrom | ast.Import]:
    for node in ast.walk(tree):
        is_own_from = isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE
        if is_own_from or (isinstance(node, ast.Import) and any(a.name.split(".")[0] == PACKAGE for a in node.names)):
            yield node


def targets(node: ast.ImportFrom | ast.Import, known: set[str]) -> set[str]:
    """The modules that an import names: a submodule, where there is one of that name, else the module itself."""
    if isinstance(node, ast.Import):
        return {a.name for a in node.names if a.name in known}
    base = node.module or ""
    return {f"{base}.{a.name}" if f"{base}.{a.name}" in known else base for a in node.names} & known


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            component = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(component) > 1:
                found.append(sorted(component))

    for name in graph:
        if name not in index:
            visit(name)
    return found


def statements(tree: ast.AST) -> int:
    """Count the statements of a tree, without docstrings."""
    return sum(
        isinstance(node, ast.stmt)
        and not (isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str))
        for node in ast.walk(tree)
    )


def is_tuple_assignment(node: ast.AST) -> bool:
    """Return True for ``a, b = c, d``, a swap too."""
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Tuple)
        and any(isinstance(target, ast.Tuple) for target in node.targets)
    )


def is_nested_conditional(node: ast.AST) -> bool:
    """Return True for a conditional expression with another one in it."""
    return isinstance(node, ast.IfExp) and sum(isinstance(part, ast.IfExp) for part in ast.walk(node)) > 1


def is_display_as_ifs(node: ast.AST) -> bool:
    """Return True where a value is taken out of a dict, list or tuple that is written there for it."""
    displays = ast.Dict | ast.List | ast.Tuple
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, displays)
    return isinstance(node, ast.Attribute) and node.attr == "get" and isinstance(node.value, ast.Dict)


def has_inner_assignment(node: ast.AST) -> bool:
    """Return True for ``x |= (y := z)`` and the like."""
    is_assignment = isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
    return is_assignment and any(isinstance(part, ast.NamedExpr) for part in of_own_scope(node))


def of_own_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Walk a tree, but not into comprehensions, which need names of their own."""
    yield node
    for part in ast.iter_child_nodes(node):
        if not isinstance(part, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp | ast.Lambda):
            yield from of_own_scope(part)


RIDDLES: dict[str, Callable[[ast.AST], bool]] = {
    "tuple assignments per 1,000 statements": is_tuple_assignment,
    "conditional expressions in one another": is_nested_conditional,
    "displays used as a chain of ifs": is_display_as_ifs,
    "names assigned within an assignment": has_inner_assignment,
}


def size_line(name: str, n_nodes: int, n_statements: int, budget: Budget) -> tuple[str, bool]:
    """Return the line of a room, and whether the room is over its budget."""
    density = n_nodes / n_statements
    over = []
    notes = []
    if n_nodes > budget.nodes + budget.owed:
        over.append(f"OVER by {n_nodes - budget.nodes:,} nodes")
    elif n_nodes > budget.nodes:
        notes.append(f"owes {n_nodes - budget.nodes:,} nodes")
    if density > budget.density:
        over.append("TOO DENSE")
    figures = f"{n_nodes:>9,}{budget.nodes:>9,}{density:>9.2f}{budget.density:>7.1f}{n_statements:>12,}"
    return f"{name:<24}{figures}  {', '.join([*over, *notes])}".rstrip(), bool(over)


def rooms(trees: dict[Path, ast.Module]) -> tuple[list[str], bool]:
    """Return a line for each budget, one for the whole package, and whether one is over."""
    n_nodes: Counter[str] = Counter()
    n_statements: Counter[str] = Counter()
    for path, tree in trees.items():
        parts = path.relative_to(ROOT).parts
        room = parts[0] if len(parts) > 1 else "."
        n_nodes[room] += sum(1 for _ in ast.walk(tree))
        n_statements[room] += statements(tree)
    if unknown := n_nodes.keys() - {room for names in BUDGETS for room in names}:
        raise SystemExit(f"rooms without a budget: {', '.join(sorted(unknown))}")
    lines = [f"{'room':<24}{'nodes':>9}{'at most':>9}{'density':>9}{'':>7}{'statements':>12}"]
    is_over = False
    for names, budget in [*BUDGETS.items(), (tuple(n_nodes), PACKAGE_BUDGET)]:
        is_package = budget is PACKAGE_BUDGET
        name = "the package" if is_package else " + ".join(names).replace(".", "the root")
        nodes = sum(n_nodes[room] for room in names)
        line, is_room_over = size_line(name, nodes, sum(n_statements[room] for room in names), budget)
        lines.append(line)
        is_over = is_over or is_room_over
    return lines, is_over


def import_graph(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Return the modules that each module of the package imports: at its top, for types, or within a function."""
    known = set(trees)
    return {
        name: {target for node in own_imports(tree) for target in targets(node, known)} - {name, PACKAGE}
        for name, tree in trees.items()
    }


def benchmark_graph() -> dict[str, set[str]]:
    """Return the same of the benchmarks, which import one another by their plain names."""
    trees = {path.stem: ast.parse(path.read_text("utf-8")) for path in Path(__file__).parent.glob("*.py")}
    graph = {}
    for name, tree in trees.items():
        named = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                named += [alias.name for alias in node.names]
        graph[name] = trees.keys() & set(named)
    return graph


def structure(texts: dict[str, str], trees: dict[str, ast.Module]) -> tuple[dict[str, float], list[str]]:
    """Return every figure by name, and lines that name what is counted."""
    sizes = {name: len(text.splitlines()) for name, text in texts.items()}
    graph = import_graph(trees)
    importers = Counter(target for found in graph.values() for target in found)
    import_lines = [
        (node.end_lineno or node.lineno) - node.lineno + 1 for tree in trees.values() for node in own_imports(tree)
    ]
    packages = {module_name(path) for path in ROOT.rglob("__init__.py")}
    small = [
        f"{sizes[name]} {name}"
        for name in sorted(trees.keys() - packages)
        if SMALL_LINES < sizes[name] < LEAST_LINES
        and importers[name] == 1
        and not name.endswith("__main__")
        and not name.startswith(VERBS)
    ]
    classes = Counter(node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    found = {
        "loose modules in the root": [name for name in trees if name.count(".") == 1 and name not in packages]
        + [PACKAGE],
        "modules under 80 lines with one importer": small,
        "class names that exist twice": sorted(
            name for name, count in classes.items() if count > 1 and name not in IN_EACH_FRAMEWORK
        ),
        "fmt: skip without a reason": [
            name for name, text in texts.items() for line in text.splitlines() if line.endswith("# fmt: skip")
        ],
        "circles of imports": [" ".join(circle) for circle in circles(graph) + circles(benchmark_graph())],
    }
    for riddle, is_one in RIDDLES.items():
        found[riddle] = [
            f"{name}:{node.lineno}"  # type: ignore[attr-defined]
            for name, tree in trees.items()
            for node in ast.walk(tree)
            if is_one(node)
        ]
    counted = [n for n in sizes.values() if n > SMALL_LINES]
    figures: dict[str, float] = {
        "modules": len(counted),
        "median lines of a module": statistics.median(counted),
        "lines": sum(sizes.values()),
        "own imports, % of lines": 100 * sum(import_lines) / sum(sizes.values()),
    }
    figures |= {name: len(places) for name, places in found.items()}
    figures["tuple assignments per 1,000 statements"] *= 1000 / sum(map(statements, trees.values()))
    return figures, [f"  {name}: {place}" for name, places in found.items() for place in places]


@contextmanager
def files_passed(into: set[str]) -> Iterator[None]:
    """Collect the package's modules in which a function is called on this thread; compiled templates are none."""
    prefix = str(ROOT)

    def note(frame: object, event: str, _argument: object) -> None:
        if event == "call" and (name := frame.f_code.co_filename).startswith(prefix) and name.endswith(".py"):  # type: ignore[attr-defined]
            into.add(name.removeprefix(prefix + "/"))

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def calls() -> dict[str, set[str]]:
    """The files of the package that three calls pass once everything is loaded."""
    import torch
    from torch.utils.data import TensorDataset

    from greenlove_tracker import Estimator, Tracker, write_pdf

    passed: dict[str, set[str]] = {name: set() for name in CALL_LIMITS}
    with tempfile.TemporaryDirectory() as folder:
        with Tracker(epochs=6, log_dir=folder, verbose=0, country="DE") as tracker:
            tracker.wait_ready(60)
            for epoch in range(6):
                tracker.epoch_start()
                for _ in range(10):
                    sum(range(300_000))
                    tracker.step()
                if epoch < 3:
                    tracker.epoch_end()
                    continue
                with files_passed(passed["epoch_end()"]):
                    tracker.epoch_end()
        run_dir = tracker.run_dir
        for into in (set[str](), passed["one run's PDF"]):
            with files_passed(into):
                write_pdf(run_dir, Path(folder) / "report.pdf")

        def estimator() -> Estimator:
            model = torch.nn.Linear(64, 4)
            data = TensorDataset(torch.randn(20_000, 64), torch.randint(0, 4, (20_000,)))
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            loss = torch.nn.CrossEntropyLoss()
            return Estimator(model, optimizer, loss, data, 30, budget_s=3, log_dir=folder, on_no_terminal="continue")

        estimate: Callable[[], object] = estimator().estimate
        estimate()
        estimate = estimator().estimate
        with files_passed(passed["Estimator.estimate()"]):
            estimate()
    return passed


def main() -> int:
    """Print the figures; the exit code is 1 where one passes its limit, or a room that is done its budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", action="store_true", help="count the files that three calls pass, too")
    parser.add_argument("--names", action="store_true", help="name what is counted")
    options = parser.parse_args()
    paths = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}
    texts = {name: path.read_text("utf-8") for name, path in paths.items()}
    trees = {name: ast.parse(text) for name, text in texts.items()}
    lines, is_over = rooms({paths[name]: tree for name, tree in trees.items()})
    print("\n".join([*lines, ""]))
    figures, notes = structure(texts, trees)
    limits: dict[str, float] = dict(LIMITS)
    passed = calls() if options.calls else {}
    for name, files in passed.items():
        figures[f"files passed by {name}"] = len(files)
        limits[f"files passed by {name}"] = CALL_LIMITS[name]
        notes += [f"  {name}: {file}" for file in sorted(files)]
    for name, value in figures.items():
        limit = f"at most {limits[name]:,g}" if name in limits else ""
        over = "  OVER" if name in limits and value > limits[name] else ""
        print(f"{name:<44}{value:>10,.1f}   {limit}{over}")
    if options.names:
        print("\n".join(notes))
    return int(is_over or any(figures[name] > limit for name, limit in limits.items()))


if __name__ == "__main__":
    sys.exit(main())
