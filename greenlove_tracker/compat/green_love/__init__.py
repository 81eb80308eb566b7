"""The names of green-love 0.2.2 over the parts of this package: change the import, keep the script.

``docs/coming-from-green-love.md`` describes the parameters and the differences.
"""

from greenlove_tracker.compat.green_love.estimator import (
    BENCHMARK_TASKS,
    CrusoeEstimator,
    GreenLoveEstimator,
    sample_dataloader,
    sample_dataset,
)
from greenlove_tracker.compat.green_love.results import BenchmarkResults, CO2Equivalence, CrusoeGPUEstimate
from greenlove_tracker.text.format import duration as format_time
from greenlove_tracker.text.format import mass as format_co2
from greenlove_tracker.text.format import money as format_cost

__all__ = [
    "BENCHMARK_TASKS",
    "BenchmarkResults",
    "CO2Equivalence",
    "CrusoeEstimator",
    "CrusoeGPUEstimate",
    "GreenLoveEstimator",
    "format_co2",
    "format_cost",
    "format_time",
    "sample_dataloader",
    "sample_dataset",
]
