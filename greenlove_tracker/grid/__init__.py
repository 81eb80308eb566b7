"""Carbon intensity and electricity price of the place where a run is made, from offline tables."""

from greenlove_tracker.grid.intensity import carbon_intensity
from greenlove_tracker.grid.place import Place, resolve_place
from greenlove_tracker.grid.price import electricity_price

__all__ = ["Place", "carbon_intensity", "electricity_price", "resolve_place"]
