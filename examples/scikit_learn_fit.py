"""Forecast a fit that has no epochs: scikit-learn's support vector machine, from fits on small parts of the data.

``python examples/scikit_learn_fit.py`` fits on 50 samples, then on twice as many, and so on for five seconds; then it
says what all 50,000 would take. This fit's time grows faster than its data: how fast is found on the way, and shown.
"""

from sklearn.datasets import make_classification
from sklearn.svm import SVC

from greenlove_tracker import explore_callable

x, y = make_classification(50_000, n_features=40, n_informative=20, flip_y=0.2, random_state=0)


def fit(n_samples: int) -> None:
    """Fit anew on the first so many samples."""
    SVC().fit(x[:n_samples], y[:n_samples])


estimation = explore_callable(fit, samples=len(x), budget_s=5, country="DE")
time = estimation.forecast.duration_s
print(f"all {len(x):,} samples take {time.point:.0f} s, with 95% probability {time.lower:.0f} to {time.upper:.0f} s")
