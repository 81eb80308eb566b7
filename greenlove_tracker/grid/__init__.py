"""Carbon intensity and electricity price of the place where a run is made, from offline tables."""

from greenlove_tracker.grid.factors import carbon_intensity, electricity_price
from greenlove_tracker.grid.place import Place, resolve_place

__all__ = ["Place", "carbon_intensity", "electricity_price", "resolve_place"]
