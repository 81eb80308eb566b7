"""Text, a table and bibliography entries in LaTeX: plain LaTeX, without packages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "×": r"$\times$",
    "±": r"$\pm$",
    "−": "$-$",
    "–": "--",
    "…": r"\dots{}",
    "·": r"$\cdot$",
    "µ": r"$\mu$",
    "†": r"\textdagger{}",
    "‡": r"\textdaggerdbl{}",
    "§": r"\S{}",
    "¶": r"\P{}",
    "◇": r"$\diamond$",
    "≈": r"$\approx$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "→": r"$\rightarrow$",
}
_CO2 = re.compile(r"CO2(?=e|\b)")


def in_latex(text: str) -> str:
    """Escape text, from a log too, so that LaTeX shows it as it is, in one line; CO2 gets its subscript."""
    line = "".join(_SPECIAL.get(c, c if c.isprintable() else " ") for c in " ".join(text.split()))
    return _CO2.sub(r"CO\\textsubscript{2}", line)


def tabular(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table: the first column is words, the others are numbers; the last of several rows is their total."""
    lines = [" & ".join(map(in_latex, cells)) + r" \\" for cells in (heads, *rows)]
    body = [r"\hline", lines[0], r"\hline", *lines[1:], r"\hline"]
    return "\n".join([rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}", *body, r"\end{tabular}"])


def bibtex(key: str, fields: Mapping[str, str]) -> str:
    """Return an entry for software; values are protected from changes of case."""
    shown = {name: value if name == "url" else in_latex(value) for name, value in fields.items() if value}
    lines = [f"  {name} = {{{{{value}}}}}," for name, value in shown.items()]
    return "\n".join([f"@software{{{key},", *lines, "}"])
