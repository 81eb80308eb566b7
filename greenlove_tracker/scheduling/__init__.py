"""When and where to run: the start that is expected to emit or cost least, and whether it is worth waiting for."""

from greenlove_tracker.scheduling.advice import StartAdvice
from greenlove_tracker.scheduling.windows import best_start

__all__ = ["StartAdvice", "best_start"]
