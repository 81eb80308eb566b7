"""Exporters by name: MLflow, Weights & Biases, TensorBoard, Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from greenlove_tracker.vocabulary.errors import UsageError

if TYPE_CHECKING:
    from greenlove_tracker.tracker.events import Exporter

_CLASSES = {
    "mlflow": "MLflowExporter",
    "wandb": "WandbExporter",
    "tensorboard": "TensorBoardExporter",
    "prometheus": "PrometheusExporter",
}
"""The class of each, in the module of its name; its first argument is what stands behind ``=``."""


def exporter_from(text: str) -> Exporter:
    """Return the exporter for a name such as ``mlflow``, or for ``prometheus=/a/file.prom`` if it writes a file.

    Raises:
        UsageError: for an unknown name, or a place for a service.
        MissingExtraError: where its package is not installed; the message is the line that installs it.
    """
    name, _, place = text.partition("=")
    name = name.strip().lower()
    if name not in _CLASSES:
        raise UsageError(f"{{argument}} knows no {name!r}; there are {', '.join(_CLASSES)}", argument="export")
    if place and name in ("mlflow", "wandb"):
        raise UsageError(f"{{argument}}: {name} takes the run that is active: leave ={place} out", argument="export")
    module = import_module(f"{__name__}.{name}")
    make: Callable[..., Exporter] = getattr(module, _CLASSES[name])
    place = place.strip()
    if place:
        return make(place)
    return make()
