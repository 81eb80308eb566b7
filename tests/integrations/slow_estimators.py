"""Estimators whose fits take a set time; a module that processes started by joblib can import by itself."""

from __future__ import annotations

import time

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

FIT_S = 3.0


class SlowClassifier(ClassifierMixin, BaseEstimator):
    """Fits for a time that is set, without callbacks of its own."""

    pass_s = staticmethod(lambda _: None)

    def __init__(self, size=1.0):
        self.size = size

    def fit(self, x, y):
        if self.size < 0:
            raise RuntimeError("out of luck")
        self.pass_s(FIT_S)
        self.classes_ = np.unique(y)
        return self

    def predict(self, x):
        return np.zeros(len(x), dtype=int)


class SleepingClassifier(SlowClassifier):
    """Fits for a time that passes in other processes too, which know no clock of a test."""

    def fit(self, x, y):
        time.sleep(0.2)
        return super().fit(x, y)
