"""Tables, figures and paragraphs of the terminal."""

from __future__ import annotations

import pytest

from greenlove_tracker.rendering import terminal


def test_a_column_is_as_wide_as_its_widest_cell() -> None:
    rows = [("run", "time"), ("a", "1.00 s"), ("total", "10 s")]
    assert terminal.table(rows, "<>", rules_below=(0, 1)) == [
        "run      time",
        "─────────────",
        "a      1.00 s",
        "─────────────",
        "total    10 s",
    ]


def test_a_cell_wider_than_its_column_is_cut_in_the_middle() -> None:
    assert terminal.table([("abcdefghij", "1")], "<>", widths=[5]) == ["ab…ij  1"]


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("模型", 4), ("e\u0301", 1), ("", 0)])
def test_east_asian_characters_take_two_columns_and_combining_ones_none(text: str, width: int) -> None:
    assert terminal.display_width(text) == width


def test_wide_characters_keep_columns_below_each_other() -> None:
    lines = terminal.table([("模型" * 20, "1"), ("b", "20")], "<>", widths=[9])
    assert {terminal.display_width(line) for line in lines} == {13}


def test_names_share_what_the_numbers_leave() -> None:
    names, numbers = [["x" * 80, "y" * 80, "z"]], [["1" * 10, "2" * 10]]
    widths = terminal.name_widths(names, numbers)
    assert widths == [24, 24, 1]
    assert terminal.name_widths([["x", "y"]], numbers) == [1, 1]


def test_a_figure_has_its_text_behind_it() -> None:
    assert terminal.figure("time", "25.3 s", "12 × 1.86 s") == ["  time        25.3 s   12 × 1.86 s"]
    assert terminal.figure("compute", "0.69 GPU-h", "x") == ["  compute 0.69 GPU-h   x"]
    assert terminal.figure("cost", "unknown") == ["  cost       unknown"]
    first, *further = terminal.figure("energy", "0.199 Wh", "a word " * 30)
    assert first.startswith("  energy    0.199 Wh   a word") and all(line.startswith(" " * 23) for line in further)
    assert max(map(len, [first, *further])) <= terminal.WIDTH


def test_a_long_value_takes_the_room_that_its_label_leaves() -> None:
    short = terminal.figure("time", "42.3 s", "text")[0]
    assert short.index("text") == terminal.figure("time", "1 d 1 h 3 min", "text")[0].index("text")
    assert terminal.figure("time", "29 d 23 h 59 min", "text") == ["  time 29 d 23 h 59 min   text"]


@pytest.mark.parametrize("width", range(24, 60))
def test_a_duration_stays_in_one_line(width):
    text = "it took 1 d 5 h 24 min instead of 2 h 5 min (4.20 ms a step), 42.3 s [39 min 38 s – 42 min 6 s] in 3 s runs"
    lines = terminal.wrap(text, width=width)
    assert " ".join(lines) == text and max(map(len, lines)) <= width
    for duration in ("1 d 5 h 24 min", "2 h 5 min", "4.20 ms", "42.3 s", "39 min 38 s", "42 min 6 s"):
        assert any(duration in line for line in lines)
