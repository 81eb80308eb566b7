"""Follows a training as it runs."""

from greenlove_tracker.tracker.facade import Tracker

__all__ = ["Tracker"]
