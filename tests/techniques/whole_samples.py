"""A stand-in for what early stopping puts into the parts of a training."""

import copy

from greenlove_tracker.stopping import StoppingRule
from greenlove_tracker.techniques.technique import Stage, Technique


class PatientStop:
    """Stops after so many values in a row that are no better than the best, and keeps the best weights."""

    def __init__(self, metric, patience, model):
        self.rule = object.__new__(StoppingRule)  # whatever a rule checks of itself
        object.__setattr__(self.rule, "metric", metric)
        self.patience, self.model, self.values, self.best = patience, model, [], None

    @property
    def best_at(self):
        return self.values.index(min(self.values)) + 1 if self.values else None

    @property
    def has_stopped(self):
        return bool(self.values) and len(self.values) - self.best_at >= self.patience

    def step(self, value):
        self.values.append(float(value))
        if self.best_at == len(self.values):
            self.best = copy.deepcopy(self.model.state_dict())
        return self.has_stopped

    def restore_best(self):
        self.model.load_state_dict(self.best)
        return True

    def state_dict(self):
        return {"values": list(self.values), "best": self.best}

    def load_state_dict(self, state):
        self.values, self.best = list(state["values"]), copy.deepcopy(state["best"])


def stops_early(metric="val_loss", patience=2):
    """A technique that ends a training once it no longer improves."""

    def apply(parts):
        return {**parts, "early_stopping": PatientStop(metric, patience, parts["model"])}

    return Technique("stops-early", apply, Stage.SCHEDULE, is_of_whole=True)
