"""``watch``: what is running now."""

from __future__ import annotations

import shutil
import time

import click
from click import IntRange

from greenlove_tracker.cli.base import cli, show
from greenlove_tracker.cli.options import flag, option
from greenlove_tracker.settings.config import DEFAULT_LOG_DIR, load_settings
from greenlove_tracker.vocabulary.errors import UsageError

_OTHER_LINES = 9  # of the screen, beside the runs
_LOOK_S = 2.0  # between two looks at what runs
_MOST_TIME_SHARE = 0.1  # of a core, which may be a training's, for looking at it


@cli.command(short_help="Show what is running now.")
@click.argument("log_dir", required=False)
@flag("--once", "print once and exit; the default where stdout is no terminal")
@option(
    "--serve [PORT]",
    "behind the directory: show it on a page, to browsers of this machine alone",
    type=IntRange(0, 65535),
    is_flag=False,
    flag_value=8765,
)
def watch(log_dir: str | None, once: bool, serve: int | None) -> None:
    """Watch the running trainings of a directory: progress, time left, power and energy so far.

    Ctrl-C ends the view, not the runs. It shows what they log: at least a row a minute. The page of --serve, at port
    8765 unless another is given, has carbon intensity, CO2e, cost and the forecast of each, too.
    """
    from greenlove_tracker.logs.storage import place
    from greenlove_tracker.rendering import html, terminal
    from greenlove_tracker.report.watch import MOST_ENDED, watch_document
    from greenlove_tracker.text.console import can_draw, live_screen
    from greenlove_tracker.text.live_page import live_page

    path = place(load_settings().log_dir if log_dir is None else log_dir)
    is_live = serve is not None or (can_draw() and not once)
    if path.exists() != path.is_dir() or not (is_live or path.exists()):
        raise UsageError(f"{path} is not a directory of logs; by default, a run writes to {DEFAULT_LOG_DIR}")
    if not is_live:
        show(watch_document(path, time.time()))
        return
    most = None
    with live_screen() if serve is None else live_page(serve) as draw:
        while True:  # until Ctrl-C
            begun_s = time.monotonic()
            if serve is None:
                n_lines = shutil.get_terminal_size().lines  # the window may have another size now
                most = max(1, n_lines - MOST_ENDED - _OTHER_LINES)
            seen = watch_document(path, time.time(), most=most)
            draw(terminal.render(seen) if serve is None else html.render(seen))
            took_s = time.monotonic() - begun_s
            time.sleep(max(_LOOK_S, took_s / _MOST_TIME_SHARE))
