"""Logs of other tools, read as runs: carbontracker's and CodeCarbon's."""
