"""Follows a training as it runs."""

from greenlove_tracker.tracker.tracker import Tracker

__all__ = ["Tracker"]
