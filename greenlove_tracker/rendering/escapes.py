"""Text in LaTeX and in Markdown: whatever a log says is shown as it is, in one line."""

from __future__ import annotations

import re

from greenlove_tracker.text.format import printable

# What LaTeX takes for more than the character, or lacks.
_SPECIAL = str.maketrans(
    {
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
)
_CO2 = re.compile(r"CO2(?=e|\b)")


def in_latex(text: str) -> str:
    """Escape text for LaTeX; CO2 gets its subscript."""
    line = printable(" ".join(text.split()), lines="").translate(_SPECIAL)
    return _CO2.sub(r"CO\\textsubscript{2}", line)


def in_markdown(text: str) -> str:
    """Escape text for Markdown."""
    line = re.sub(r"[\\`*_{}\[\]<>|#~$&]", r"\\\g<0>", " ".join(text.split()))
    return line.replace("://", "\\://")  # or an address in a log becomes a link
