"""Forecasts of a training's time and energy: from trials, on statsmodels, and while it runs, on SciPy alone."""
