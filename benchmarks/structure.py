"""Figures of the package's structure, from its syntax trees: statements by room, modules, imports, names, circles.

`python benchmarks/structure.py` prints them. It fails where a limit is passed, or the budget of a room and 15%.
`--calls` adds how many files of the package a call passes, warm, by `sys.setprofile`: `Tracker.epoch_end()` on the
calling thread, one run's PDF, and `Estimator.estimate()`.
"""

from __future__ import annotations

import argparse
import ast
import statistics
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGE = "greenlove_tracker"
ROOT = Path(__file__).parents[1] / PACKAGE
SMALL_LINES = 6  # a module up to this long is an empty __init__
LEAST_LINES = 80  # a module below it with a single importer belongs into its importer
IN_EACH_FRAMEWORK = {
    "GreenloveCallback",
    "AutomaticCallback",
}  # what a user writes whatever the framework: its module tells which one
LIMITS = {
    "modules": 287,  # docs/decisions/0025-a-budget-of-statements.md
    "own imports, % of lines": 3.9,  # their share grows while lines go; 3.5 of the 82,000 lines of November
    "modules under 80 lines with one importer": 10,
    "class names that exist twice": 0,
    "fmt: skip without a reason": 0,
    "circles of imports": 0,
}
# Statements at most, docstrings not counted, by rooms that share a budget; `.` is the package's root.
BUDGETS = {
    (".",): 2_300,
    ("tables", "data"): 170,
    ("meter",): 300,
    ("tracker",): 1_900,
    ("logs",): 2_400,
    ("extrapolation",): 1_200,
    ("exploration",): 1_100,
    ("projection",): 1_450,
    ("techniques",): 1_350,
    ("checkpointing",): 800,
    ("experiments",): 650,
    ("scheduling", "grid"): 1_500,
    ("integrations",): 1_050,
    ("report", "rendering"): 2_900,
    ("cli",): 1_000,
    ("compat",): 300,
}
PACKAGE_BUDGET = 20_500
# Budgets are targets: a room may have up to so much more; docs/decisions/0031 says what that buys.
MOST_PERCENT = 115
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


def at_import(tree: ast.Module) -> Iterator[ast.ImportFrom | ast.Import]:
    """The imports that run when the module is loaded."""
    for node in tree.body:
        is_for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) and not is_for_types:
            yield from own_imports(node)


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


def rooms() -> tuple[list[str], bool]:
    """Return a line for each budget, one for the whole package, and whether a room is over its own."""
    have: Counter[str] = Counter()
    n_nodes = 0
    for path in ROOT.rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        parts = path.relative_to(ROOT).parts
        have[parts[0] if len(parts) > 1 else "."] += statements(tree)
        n_nodes += sum(1 for _ in ast.walk(tree))
    if unknown := have.keys() - {room for names in BUDGETS for room in names}:
        raise SystemExit(f"rooms without a budget: {', '.join(sorted(unknown))}")
    lines = [f"{'statements':<34}{'have':>8}{'budget':>9}{'over':>9}"]
    is_over = False
    total = sum(have.values())
    counts = {" + ".join(names).replace(".", "the root"): sum(have[name] for name in names) for names in BUDGETS}
    budgets = [*BUDGETS.values(), PACKAGE_BUDGET]
    for (name, count), budget in zip({**counts, "the package": total}.items(), budgets, strict=True):
        over = f"{count - budget:>+9,}" if count > budget else ""
        if 100 * count > MOST_PERCENT * budget:
            over, is_over = f"{over}  OVER", True
        lines.append(f"{name:<34}{count:>8,}{budget:>9,}{over}")
    lines.append(f"{'AST nodes per statement':<34}{n_nodes / total:>8.1f}")  # denser lines would raise it
    return lines, is_over


def structure() -> tuple[dict[str, float], list[str]]:
    """Every figure by name, and the lines that explain those with names in them."""
    texts = {module_name(path): path.read_text("utf-8") for path in sorted(ROOT.rglob("*.py"))}
    trees = {name: ast.parse(text) for name, text in texts.items()}
    sizes = {name: len(text.splitlines()) for name, text in texts.items()}
    known = set(trees)
    importers: dict[str, set[str]] = defaultdict(set)
    n_import_lines = 0
    for name, tree in trees.items():
        for node in own_imports(tree):
            n_import_lines += (node.end_lineno or node.lineno) - node.lineno + 1
            for target in targets(node, known):
                importers[target].add(name)
    loaded = {
        name: {t for node in at_import(tree) for t in targets(node, known)} - {name, PACKAGE}
        for name, tree in trees.items()
    }
    packages = {module_name(path) for path in ROOT.rglob("__init__.py")}
    small = [
        f"{sizes[n]} {n}"
        for n in sorted(known - packages)
        if SMALL_LINES < sizes[n] < LEAST_LINES and len(importers[n] - {n}) == 1 and not n.endswith("__main__")
    ]
    classes = Counter(node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    twice = sorted(name for name, count in classes.items() if count > 1 and name not in IN_EACH_FRAMEWORK)
    skips = [name for name, text in texts.items() for line in text.splitlines() if line.endswith("# fmt: skip")]
    counted = [n for n in sizes.values() if n > SMALL_LINES]
    found = circles(loaded)
    figures = {
        "modules": len(counted),
        "median lines of a module": statistics.median(counted),
        "lines": sum(sizes.values()),
        "own imports, % of lines": 100 * n_import_lines / sum(sizes.values()),
        "modules under 80 lines with one importer": len(small),
        "class names that exist twice": len(twice),
        "fmt: skip without a reason": len(skips),
        "circles of imports": len(found),
    }
    notes = [*(f"  small  {s}" for s in small), *(f"  twice  {t}" for t in twice), *(f"  circle {c}" for c in found)]
    return figures, notes


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
    lines, is_over = rooms()
    print("\n".join([*lines, ""]))
    figures, notes = structure()
    limits: dict[str, float] = dict(LIMITS)
    passed = calls() if options.calls else {}
    for name, files in passed.items():
        figures[f"files passed by {name}"] = len(files)
        limits[f"files passed by {name}"] = CALL_LIMITS[name]
        notes += [f"  {name}: {file}" for file in sorted(files)]
    for name, value in figures.items():
        limit = f"at most {limits[name]:,g}" if name in limits else ""
        over = "  OVER" if name in limits and value > limits[name] else ""
        print(
            f"{name:<44}{value:>10,.4g}   {limit}{over}"
            if value < 10_000
            else f"{name:<44}{value:>10,.0f}   {limit}{over}"
        )
    if options.names:
        print("\n".join(notes))
    return int(is_over or any(figures[name] > limit for name, limit in limits.items()))


if __name__ == "__main__":
    sys.exit(main())
