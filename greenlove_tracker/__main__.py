"""``python -m greenlove_tracker``."""

import os
import sys

if not sys.flags.safe_path:  # python -m looks in the working directory first: a click.py there is not ours to execute
    sys.path[0] = os.path.dirname(sys.executable)  # noqa: PTH120  # as the command greenlove has it

from greenlove_tracker.cli import main

if __name__ == "__main__":
    main()
