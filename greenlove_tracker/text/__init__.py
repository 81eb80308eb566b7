"""Text on a terminal: where it goes, and how a number is written."""
