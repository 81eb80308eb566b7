"""Forecasts of a training's time and energy from trials, on statsmodels."""

from greenlove_tracker.extrapolation.extrapolate import extrapolate

__all__ = ["extrapolate"]
