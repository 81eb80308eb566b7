"""The final screen of a run, from its log; what the disk did not take of that, from memory."""

from __future__ import annotations

import logging
import textwrap
from collections.abc import Sequence

from greenlove_tracker.console import say
from greenlove_tracker.tracker.session import Session
from greenlove_tracker.tracker.troubles import unwritten_text


def show(session: Session, wrote: Sequence[str] = (), next_command: str = "", exit_code: int | None = None) -> None:
    """Print the final screen of a closed run; a failure to do so is logged, and nothing more."""
    if not session.is_shown:
        return
    try:
        say(_screen(session, wrote, next_command, exit_code))
    except Exception:  # the training is over, and its exit code is not ours to change
        logging.getLogger("greenlove_tracker").warning("greenlove: the final screen failed", exc_info=True)


def _screen(session: Session, wrote: Sequence[str], next_command: str, exit_code: int | None) -> str:
    from greenlove_tracker.logs.parser import Run
    from greenlove_tracker.report.text import WIDTH, end_screen

    unwritten = session.writer.unwritten
    run = Run(session.run_dir, session.writer.held() if unwritten else None)
    code = run.summary.exit_code if exit_code is None else exit_code
    if not unwritten:
        return end_screen(run, exit_code=code, wrote=(f"{session.shown_dir}/", *wrote), next_command=next_command)
    lost = (
        f"! the log in {session.shown_dir}/ is not complete: {unwritten_text(unwritten)}; the figures are from memory"
    )
    wrapped = textwrap.wrap(lost, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join([end_screen(run, exit_code=code, wrote=wrote), "", *wrapped])
