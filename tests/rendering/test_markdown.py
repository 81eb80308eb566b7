"""A report as Markdown."""

from __future__ import annotations

from report_samples import GERMANY, epoch_row, gpu_energy, write_run

from greenlove_tracker.rendering import markdown
from greenlove_tracker.rendering.document import KeyFigures, Table
from greenlove_tracker.rendering.escapes import in_markdown as escaped
from greenlove_tracker.report.build import document


def test_it_says_what_the_other_faces_say(tmp_path):
    write_run(tmp_path, [epoch_row(i, 60.0 + i, gpu_energy(60.0)) for i in range(1, 30)], intensity=GERMANY)
    content = document(tmp_path)
    text = markdown.render(content)
    assert text.startswith(f"# {escaped(content.title)}\n\n")
    for block in content.blocks:
        if isinstance(block, KeyFigures):
            assert all(f"**{escaped(figure.value)}**" in text for figure in block.figures)
        if isinstance(block, Table):
            assert all("| " + " | ".join(map(escaped, row)) + " |" in text for row in block.rows)
    n_points = max(part.count("\n") for part in text.split("\n\n") if part.startswith("| time since the start, min |"))
    assert 5 < n_points <= 13  # a line is thinned out, not listed


def test_hostile_names_stay_text(tmp_path):
    write_run(tmp_path, [epoch_row(1, 5.0)], fields={"project": "<script>alert(1)</script> | [x](javascript:1) `#`"})
    text = markdown.render(document(tmp_path))
    assert text.count("<script") == text.count("\\<script") > 0 and "\\](javascript" in text and "| [x]" not in text
