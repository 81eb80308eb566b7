"""Write ``docs/reference/python.md`` and ``docs/reference/settings.md``, from the docstrings of the public names.

python docs/write_python_reference.py
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

import greenlove_tracker
from greenlove_tracker.settings.config import Settings, setting_names

PYTHON = Path(__file__).parent / "reference" / "python.md"
SETTINGS = Path(__file__).parent / "reference" / "settings.md"

GROUPS = {
    "Track a training": ("Tracker", "Consumption", "track", "BudgetExceeded"),
    "Forecast a training": (
        "Estimator",
        "Estimation",
        "explore_callable",
        "extrapolate",
        "TrainingPlan",
        "Phase",
        "Trial",
        "Forecast",
        "Estimate",
    ),
    "On other machines": (
        "project",
        "ProjectionOptions",
        "Projection",
        "speedup",
        "Speedup",
        "spot_advice",
        "SpotAdvice",
    ),
    "Read logs, and report": ("read_logs", "aggregate", "write_pdf", "write_html"),
    "When to start": ("best_start", "StartAdvice", "wait_for_low_carbon", "WaitResult"),
    "Compare, and save": ("compare", "Comparison", "Technique", "EarlyStopping", "Curriculum", "lr_schedule"),
    "Survive": ("Checkpointer", "TrainingInterrupted"),
}
_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises):$", re.MULTILINE)
_ENTRY = re.compile(r"^(\*{0,2}[\w.]+)(?: \([^)]*\))?: ?(.*)$")


def python_reference() -> str:
    """Return the page of the public names."""
    parts = [
        "# Python",
        "",
        "The public names of `greenlove_tracker`, from their docstrings. Everything else may change. Importing the "
        "package loads no torch, NumPy or pandas: each name is loaded when it is first used.",
    ]
    for title, names in GROUPS.items():
        parts += ["", f"## {title}"]
        for name in names:
            parts += _described(name, getattr(greenlove_tracker, name))
    return "\n".join(parts) + "\n"


def settings_reference() -> str:
    """Return the page of the settings."""
    parts = [
        "# Settings",
        "",
        "Each is an argument of `Tracker`, a key in `greenlove.toml` (the user's, the working directory's or "
        "[the site's](../guides/reports-and-teams.md)) and a variable `GREENLOVE_…`, the stronger first. `greenlove "
        "config show` says what holds and where it is from. Lists are separated by commas in files and variables. "
        "What sends, writes elsewhere or stops a run is not taken "
        "[from the working directory](../guides/reports-and-teams.md#a-file-in-the-working-directory).",
        "",
        "| setting | variable | type | default | means |",
        "|---|---|---|---|---|",
    ]
    for field in (field for field in fields(Settings) if field.name in setting_names()):
        default = _default(field.default if field.default is not MISSING else ())
        kind = str(field.type).replace("|", "\\|")
        names, means = (f"`{field.name}`", f"`GREENLOVE_{field.name.upper()}`"), _cell(field.metadata["means"])
        cells = (*names, f"`{kind}`", default, means)
        parts.append(f"| {' | '.join(cells)} |")
    return "\n".join(parts) + "\n"


def _described(name: str, thing: Any) -> Iterator[str]:
    """Yield the lines of a public name: its signature, its docstring, and what a class has."""
    yield from ("", f"### {name}", "")
    if inspect.isclass(thing) and issubclass(thing, Exception):
        yield from _told(thing)
        return
    if not getattr(thing, "_is_protocol", False):
        yield from ("```python", f"{name}{_signature(thing)}", "```", "")
    yield from _told(thing)
    if inspect.isclass(thing):
        for member, value in sorted(vars(thing).items()):
            if not member.startswith("_"):
                yield from _member(member, value)


def _member(name: str, value: Any) -> Iterator[str]:
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    if isinstance(value, property) or type(value).__name__ == "cached_property":
        text = inspect.getdoc(value.fget if isinstance(value, property) else value.func) or ""
        yield from ("", f"- `.{name}`: {_prose(_sections(text)[''])}")
    elif inspect.isfunction(function):
        text = _sections(inspect.getdoc(function) or "")
        yield from (
            "",
            f"- `.{name}{_signature(function, skips_self=not isinstance(value, staticmethod))}`: {_prose(text[''])}",
        )
        for title in ("Args", "Returns", "Yields", "Raises"):
            if title in text:
                yield from (f"    - {line}" for line in _listed(title, text[title]))


def _told(thing: Any) -> Iterator[str]:
    text = _sections(inspect.getdoc(thing) or "")
    for paragraph in re.split(r"\n\s*\n(?! )", text.pop("")):
        running, _, code = paragraph.partition("::\n")
        yield from (_prose(running), "") if running.strip() else ()
        if code:
            yield from ("```python", *inspect.cleandoc("\n" + code).splitlines(), "```", "")
    for title, body in text.items():
        entries = _entries(body)
        if title in ("Args", "Attributes", "Raises") and entries:
            yield from (f"| {title.lower()} | |", "|---|---|")
            yield from (f"| `{name}` | {_cell(means)} |" for name, means in entries.items())
        else:
            yield f"{title}: {_prose(body)}"
        yield ""


def _listed(title: str, body: str) -> Iterator[str]:
    entries = _entries(body) if title in ("Args", "Raises") else {}
    if entries:
        yield from (f"{'raises ' if title == 'Raises' else ''}`{name}`: {means}" for name, means in entries.items())
    else:
        yield f"{title.lower()}: {_prose(body)}"


def _sections(text: str) -> dict[str, str]:
    """Return the parts of a docstring by their titles; the first has none."""
    parts = _SECTION.split(text)
    return {"": parts[0].strip()} | {
        title: inspect.cleandoc("\n" + body) for title, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def _entries(body: str) -> dict[str, str]:
    """Return what a section says of each name; nothing where it is running text."""
    found: dict[str, str] = {}
    last = ""
    for line in body.splitlines():
        entry = _ENTRY.match(line)
        if entry and not line.startswith(" "):
            last = entry[1]
            found[last] = entry[2]
        elif last and line.startswith(" "):
            found[last] += f" {line.strip()}"
        elif line.strip():
            return {}
    return {name: _prose(means) for name, means in found.items()}


def _prose(text: str) -> str:
    """Return running text in one line, code as Markdown writes it."""
    return " ".join(text.replace("``", "`").split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _signature(thing: Any, *, skips_self: bool = False) -> str:
    """Return a signature with its annotations as they stand in the source."""
    signature = inspect.signature(thing)
    shown, has_star = [], False
    for index, parameter in enumerate(signature.parameters.values()):
        if skips_self and index == 0:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not has_star:
            shown.append("*")
            has_star = True
        has_star = has_star or parameter.kind is parameter.VAR_POSITIONAL
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        text = f"{stars}{parameter.name}"
        if parameter.annotation is not parameter.empty:
            text += f": {_annotation(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            text += f" = {_default(parameter.default).strip('`')}"
        shown.append(text)
    returned = "" if inspect.isclass(thing) else signature.return_annotation
    ending = f" -> {_annotation(returned)}" if returned not in ("", signature.empty) else ""
    whole = f"({', '.join(shown)}){ending}"
    if len(whole) < 90 or skips_self:
        return whole
    return "(\n" + "".join(f"    {text},\n" for text in shown) + f"){ending}"


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _default(value: Any) -> str:
    """Return a default as code; an object that says nothing of itself by its type."""
    if value == "":
        return '`""`'
    text = repr(value)
    if is_dataclass(value) or text.startswith("<"):
        text = f"{type(value).__name__}(…)" if not callable(value) else "…"
    return f"`{text}`"


if __name__ == "__main__":
    PYTHON.write_text(python_reference(), encoding="utf-8")
    SETTINGS.write_text(settings_reference(), encoding="utf-8")
