"""Tables, figures and paragraphs of the terminal."""

from __future__ import annotations

import pytest

from greenlove_tracker.rendering import terminal


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("模型", 4), ("e\u0301", 1), ("", 0)])
def test_east_asian_characters_take_two_columns_and_combining_ones_none(text: str, width: int) -> None:
    assert terminal.display_width(text) == width


def test_wide_characters_keep_columns_below_each_other() -> None:
    lines = terminal.table([("模型" * 20, "1"), ("b", "20")], "<>", widths=[9])
    assert {terminal.display_width(line) for line in lines} == {13}


@pytest.mark.parametrize("width", range(24, 60))
def test_a_duration_stays_in_one_line(width):
    text = "it took 1 d 5 h 24 min instead of 2 h 5 min (4.20 ms a step), 42.3 s [39 min 38 s – 42 min 6 s] in 3 s runs"
    lines = terminal.wrap(text, width=width)
    assert " ".join(lines) == text and max(map(len, lines)) <= width
    for duration in ("1 d 5 h 24 min", "2 h 5 min", "4.20 ms", "42.3 s", "39 min 38 s", "42 min 6 s"):
        assert any(duration in line for line in lines)
