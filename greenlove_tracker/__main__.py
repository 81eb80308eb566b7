"""``python -m greenlove_tracker``."""

from greenlove_tracker.cli import main

if __name__ == "__main__":
    main()
