"""Print to the terminal; the only user of rich. Only watch, plan and compare use stdout, which is the script's."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from greenlove_tracker.text.format import printable
from greenlove_tracker.vocabulary.forecasting import WarningCode

if TYPE_CHECKING:
    from rich.text import Text

_JOINT = " · "  # between the parts of a line


def say(text: str, stream: TextIO | None = None) -> None:
    """Print a screen; on a terminal its name, status and labels stand out.

    Args:
        text: the screen.
        stream: default: stderr; in a notebook the output of the cell, as stderr is red there.
    """
    text = printable(text)
    if stream is None and show_in_cell(text):
        return
    stream = stream or sys.stderr
    if not is_terminal(stream):
        _write(stream, text + "\n")  # no need to load rich for a file
        return
    from rich.console import Console
    from rich.text import Text

    Console(file=stream, highlight=False, soft_wrap=True).print(_styled(Text(text), _SCREEN))


_SCREEN = {
    "bold green": r"(?m)^greenlove|\AStart .*|▲━*|\A\S+ saves .*",
    "bold": r"(?m)^  (time|energy|CO2e|cost|compute|forecast|wrote|next) |\ANot worth waiting here",
    "yellow": rf"(?m)^! MOCK .*$|\?{{2,}}|\bunknown\b|! ({'|'.join(WarningCode)})\b",
}
_WATCHED = {
    "bold green": r"(?m)^greenlove watch",
    "bold": r"(?m)^  \S+(?=   )",
    "green": r"━+|(?<=   )running\b",
    "yellow": r"(?m)seems? dead|\bfailed\b|\boverdue\b|^ +!.*$",
}


def _styled(text: Text, styles: Mapping[str, str]) -> Text:
    for style, pattern in styles.items():
        text.highlight_regex(pattern, style)
    return text


def show_in_cell(text: str) -> Callable[[str], None] | None:
    """Show a text below the cell of a notebook that runs now.

    Returns:
        A function that replaces it there, on any thread and while any cell runs; None outside of a notebook.
    """
    if getattr(_shell(), "kernel", None) is None:
        return None
    from IPython.display import DisplayHandle, Pretty

    handle = DisplayHandle()
    handle.display(Pretty(text))
    return lambda text: handle.update(Pretty(printable(text)))


def _shell() -> Any:
    """Return the running IPython; None without one."""
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def say_above_bars(text: str) -> None:
    """Print a line on stderr, above open progress bars of tqdm; rich handles its own bars.

    It imports nothing, since it is called while the training runs.
    """
    stream = sys.stderr
    text = printable(text)
    tqdm: Any = getattr(sys.modules.get("tqdm"), "tqdm", None)
    if stream is None or not getattr(tqdm, "_instances", None):  # no bar of its is open
        _write(stream, text + "\n")
        return
    with contextlib.suppress(OSError, ValueError):
        tqdm.write(_encodable(text, stream), file=stream)


def can_draw() -> bool:
    """Return True if stdout is a terminal that can be redrawn."""
    return is_terminal(sys.stdout) and os.environ.get("TERM") != "dumb"


@contextlib.contextmanager
def live_screen() -> Iterator[Callable[[str], None]]:
    """Yield a function that draws a full-screen picture on stdout, over the one before. The last picture stays."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False)  # which knows NO_COLOR
    picture = Text()
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:

            def draw(text: str) -> None:
                nonlocal picture
                picture = _styled(Text(text, no_wrap=True, overflow="crop"), _WATCHED)
                live.update(picture, refresh=True)

            yield draw
    finally:
        console.print(picture, soft_wrap=True)


class StatusLine:
    """A line on stderr that is redrawn in place; nothing is drawn if stderr is not a terminal."""

    def __init__(self) -> None:
        self._stream = sys.stderr
        self._is_drawn = False

    def draw(self, text: str) -> None:
        """Draw over the line before."""
        if is_terminal(self._stream):
            width = shutil.get_terminal_size().columns - 1  # a line that wraps could not be wiped
            _write(self._stream, f"\r\x1b[2K{fitting(printable(text), width)}\r")
            self._is_drawn = True

    def clear(self) -> None:
        """Wipe the line."""
        if self._is_drawn:
            _write(self._stream, "\r\x1b[2K")
            self._is_drawn = False


def fitting(text: str, width: int) -> str:
    """Return as many whole parts of a line as fit."""
    while len(text) > width and _JOINT in text:
        text = text.rpartition(_JOINT)[0]
    return text[:width]


def can_ask() -> bool:
    """Return True if there is a terminal to ask on."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def confirm(question: str, default: bool | None = None) -> bool | None:
    """Ask a yes-or-no question on the terminal; return None if there is none.

    Args:
        question: the question; the choice is added.
        default: the meaning of an empty answer; None: ask again.
    """
    choice = "[y/n]"
    if default is True:
        choice = "[Y/n]"
    elif default is False:
        choice = "[y/N]"
    if not can_ask():
        return None
    while True:
        _write(sys.stderr, f"{question} {choice} ")
        line = sys.stdin.readline()
        if not line:
            return None
        answer = line.strip().lower()
        if not answer and default is not None:
            return default
        if answer.startswith(("y", "n")):
            return answer.startswith("y")


def open_page(uri: str) -> bool:
    """Open a page in a browser if there is a terminal and a display; return True if it was opened."""
    if not is_terminal(sys.stderr):
        return False
    if sys.platform not in ("win32", "darwin") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False  # a browser in the terminal would hold the training up
    import webbrowser

    return webbrowser.open(uri)


def is_terminal(stream: TextIO | None) -> bool:
    """Return True if the stream is a terminal."""
    return stream is not None and not stream.closed and stream.isatty()


def is_interactive() -> bool:
    """Return True in a notebook or an interactive interpreter, where cells may be interrupted and run again."""
    return hasattr(sys, "ps1") or _shell() is not None


def print_any_sign() -> None:
    """Make stdout and stderr print ``?`` for characters that their encoding lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _write(stream: TextIO | None, text: str) -> None:
    # A closed or broken stderr must never end a training.
    with contextlib.suppress(OSError, ValueError):
        if stream is not None:
            stream.write(_encodable(text, stream))
            stream.flush()


def _encodable(text: str, stream: TextIO) -> str:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)
