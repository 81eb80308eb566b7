"""``demo``: the whole story on this machine."""

from __future__ import annotations

from greenlove_tracker.cli.base import cli
from greenlove_tracker.cli.options import country_option, log_dir_option, option
from greenlove_tracker.vocabulary.errors import require


@cli.command(short_help="Tell the whole story in a minute: explore, train, compare, report.")
@log_dir_option
@option("-o", "--output FILE", "the report, a PDF; HTML beside; default demo.pdf")
@country_option
def demo(log_dir: str | None, output: str | None, country: str | None) -> None:
    """Forecast and track a small network that learns digits, compare an example with other GPUs, and write a report."""
    require("sklearn", "demo", "the demo needs scikit-learn")
    from greenlove_tracker import demo as story

    story.main(output or "demo.pdf", country, log_dir)
