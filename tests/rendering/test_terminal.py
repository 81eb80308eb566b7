"""What a terminal shows: the answer of a document or all of it, within its width."""

from __future__ import annotations

import pytest

from greenlove_tracker.rendering import document as doc
from greenlove_tracker.rendering import terminal
from greenlove_tracker.rendering.terminal import display_width, render


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("模型", 4), ("e\u0301", 1), ("", 0)])
def test_east_asian_characters_take_two_columns_and_combining_ones_none(text: str, width: int) -> None:
    assert terminal.display_width(text) == width


def test_wide_characters_keep_columns_below_each_other(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    columns = (doc.Column("name"), doc.Column("n", is_number=True))
    table = doc.Table(columns, [("模型" * 20, "1"), ("b", "20")], is_whole=True)
    lines = render(doc.Document("", blocks=[table])).splitlines()
    assert {terminal.display_width(line) for line in lines if line.endswith(("1", "20"))} == {40}


@pytest.mark.parametrize("width", range(27, 60))
def test_a_duration_stays_in_one_line(width):
    text = "it took 1 d 5 h 24 min instead of 2 h 5 min (4.20 ms a step), 42.3 s [39 min 38 s – 42 min 6 s] in 3 s runs"
    lines = terminal.wrap(text, width=width)
    assert " ".join(lines) == text and max(map(len, lines)) <= width
    for duration in ("1 d 5 h 24 min", "2 h 5 min", "4.20 ms", "42.3 s", "39 min 38 s", "42 min 6 s"):
        assert any(duration in line for line in lines)


FIGURES = doc.KeyFigures(
    (
        doc.KeyFigure("time", "41 min 12 s", "30 epochs"),
        doc.KeyFigure("energy", "82.6 Wh", "92% measured", "79 – 86 Wh", 0.5),
        doc.KeyFigure("CO2e", "31.5 g", "381 g/kWh"),
        doc.KeyFigure("cost", "unknown", "no price"),
    )
)
TABLE = doc.Table(
    (doc.Column("run"), doc.Column("energy", is_number=True), doc.Column("source")),
    (*((f"run {i}", f"{i}.0 Wh", "a source in many words " * 6) for i in range(20)), ("total", "190 Wh", "")),
    has_total=True,
)
DOCUMENT = doc.Document(
    title="thesis",
    subtitle="finished",
    footer="",
    verdict="This training took 41 min.",
    blocks=(
        FIGURES,
        TABLE,
        doc.Paragraph("! One thing."),
        doc.Paragraph("! Another."),
        doc.Paragraph("a note", is_note=True),
        doc.Heading("How we know"),
    ),
    next_steps=("greenlove report", "greenlove project"),
)


def test_the_brief_screen_is_the_answer() -> None:
    lines = render(DOCUMENT).splitlines()
    assert lines[0] == "This training took 41 min."
    assert lines[2] == "  41 min 12 s  82.6 Wh [79 – 86 Wh]  31.5 g CO2e  unknown cost"
    assert lines[-1] == "  next  greenlove report        greenlove project"
    assert "  …  12 more: --verbose" in lines and any("190 Wh" in line for line in lines)
    assert lines.index("  ! Another.") == lines.index("  ! One thing.") + 1
    assert not {"a note", "How we know"} & {line.strip() for line in lines}


def test_the_whole_document_leaves_no_text_out() -> None:
    text = render(DOCUMENT, brief=False)
    for part in ("thesis · finished", "run 19", "a note", "How we know"):
        assert part in text, part


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("brief", [True, False])
def test_no_line_is_wider_than_the_terminal(width: int, monkeypatch, *, brief: bool) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert max(map(display_width, render(DOCUMENT, brief=brief).splitlines())) <= width
