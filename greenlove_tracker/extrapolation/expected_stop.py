"""The expected end of a training with early stopping, by simulating how its learning curve goes on.

A running training imports this module: NumPy, and only ``scipy.special`` of SciPy.

The values so far are modelled as a curve a + b · f(t) + c · g(t) with noise: f falls, as t^-p or exp(-t/τ) (Viering and
Loog, The Shape of Learning Curves, IEEE TPAMI 45, 2023, §3), and g rises, as when a network overfits. The choice of f
and g, the autocorrelation of the noise and how the noise fades form a grid. For each point of the grid the curve is a
Bayesian linear regression with a conjugate prior; the grid is averaged by marginal likelihood (Hoeting et al., Bayesian
Model Averaging, Statistical Science 14, 1999). Curves are drawn from the posterior and continued with noise, and the
rule itself decides where each ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
from scipy import special

from greenlove_tracker.extrapolation.draws import NORMAL, SPREAD, Array, split_normal
from greenlove_tracker.vocabulary.forecasting import P99, WIDE_RELATIVE_WIDTH, Estimate, Forecast, WarningCode
from greenlove_tracker.vocabulary.phases import spans
from greenlove_tracker.vocabulary.stopping import ExpectedStop, StoppingRule, unknown_stop

_MOST_PATHS = 300
_FEWEST_PATHS = 60
_MOST_LOOKED_AT = 60_000  # values of all paths together; longer paths are fewer
_MOST_AHEAD = 2000  # values of one path; a path that has not ended by then counts as never ending
_LARGEST = 1e150  # beyond, a value is of a training that diverged, and its square no number
_MOST_FITTED = 200  # the latest values, which a curve is fitted to
_LEAST_VALUES = 4  # for a curve
# Chosen on the trainings of even number of benchmarks/early_stop_forecast.py (docs/method/forecasts.md).
_POWERS = (0.5, 1.0, 2.0)  # p
_TAUS = (1.0, 4.0, 16.0, 64.0, 1024.0)  # τ, in values; the last one is all but a straight line
_EXPONENTIAL = 0.02  # prior weight of each, in that of a power
_RISE_WEIGHTS = (0.1, 0.6, 0.3)  # of none, a linear one, and a root
_AUTOCORRELATIONS = (0.0, 0.4, 0.8, 0.95)
_FADES = (0.0, 1.5, 3.0)  # log of the noise's standard deviation at the first value, in that of now
_CURVE_SCALE = 20.0  # standard deviation of a and b, in that of the noise
_RISE_SCALE = 7.0  # and of c, for a rise over as many values as there are
_NOISE_SHARE = 0.07  # expected noise, as a share of the values' range
_NOISE_FREEDOM = 1.0  # the weight of that expectation, in values
_UNFORESEEN = 0.05  # probability of a curve unlike the model's; all epochs are then equally likely


def expected_stop(
    values: Sequence[float], rule: StoppingRule, most_epochs: int, *, least_epochs: int = 1
) -> ExpectedStop:
    """Return the distribution of the epoch after which the rule ends a training that is still running.

    Args:
        values: the values of the rule's metric so far, in order.
        rule: the rule that ends it.
        most_epochs: the number of epochs without the rule.
        least_epochs: the epochs that are done; the value of the last may still be missing. It ends with none before.
    """
    known = [float(value) for value in values]
    n = len(known)
    every = rule.every
    ended = rule.first_stop(known)
    basis = f"{rule.metric} of {n * every} epochs"
    if ended is not None:  # it ends now: nothing is forecast past a rule that has ended it
        now = min(most_epochs, max(n * every, least_epochs))
        basis = f"{rule.metric} of {ended * every} epochs, after which the rule ends it"
        return _of_counts({now: 1.0}, most_epochs, 0.0, basis)
    ahead = min(_MOST_AHEAD, most_epochs // every - n)
    if ahead <= 0:
        return _of_counts({most_epochs: 1.0}, most_epochs, 1.0, basis)
    prior = _not_before(unknown_stop(rule, most_epochs), max(least_epochs, (n + 1) * every))
    sign = -1.0 if rule.higher_is_better else 1.0
    curve = np.array([value if abs(value) < _LARGEST else math.nan for value in known[-_MOST_FITTED:]])
    if np.isfinite(curve).sum() < _LEAST_VALUES:
        return prior
    rng = np.random.default_rng(0)
    n_paths = int(np.clip(_MOST_LOOKED_AT / (n + ahead), _FEWEST_PATHS, _MOST_PATHS))
    paths = sign * _continued(sign * curve, ahead, n_paths, rng)
    shares: dict[int, float] = {epochs: _UNFORESEEN * share for epochs, share in prior.probabilities}
    none = _UNFORESEEN * prior.probability_of_none
    of_path = (1 - _UNFORESEEN) / n_paths
    for path in paths.tolist():
        stop = rule.first_stop([*known, *path])
        if stop is None:
            epochs = most_epochs
            none += of_path
        else:
            epochs = min(most_epochs, stop * every)
        shares[epochs] = shares.get(epochs, 0.0) + of_path
    return _not_before(_of_counts(shares, most_epochs, none, basis), least_epochs)


def forecast_over_stops(
    stop: ExpectedStop, whole: Forecast, forecast_until: Callable[[int], Forecast], *, least_epochs: int = 1
) -> Forecast:
    """Return the forecast of a training that a rule may end early: a mixture over its possible last epochs.

    A few of these are forecast; between them, and between the ends of phases, all quantities are interpolated. CO2e and
    cost are left to the caller, who knows the rates.

    Args:
        stop: the epochs at which the rule may end it.
        whole: the forecast of all its epochs.
        forecast_until: a function that forecasts the training up to an epoch.
        least_epochs: the epochs that are done.
    """
    stop = _not_before(stop, least_epochs)
    epochs, weights = (np.array(column) for column in zip(*stop.probabilities, strict=True))
    which = np.searchsorted(np.cumsum(weights), SPREAD * weights.sum())
    phase_ends = {end for _, end in spans([part.phase for part in whole.phases]) if epochs[0] < end < epochs[-1]}
    at = sorted({int(epochs[0]), stop.quantile(0.5), int(epochs[-1])} | phase_ends)
    forecasts = [whole if k == stop.most_epochs else forecast_until(k) for k in at]
    level = whole.duration_s.level
    upper_share = (1 + level) / 2
    rng = np.random.default_rng(0)

    def quantiles(ends: Sequence[tuple[float, float, float]], z: float, shares: Sequence[float]) -> Sequence[float]:
        """Return those of a mixture over the epochs, from point, lower and upper end of its parts."""
        of_each = (np.interp(epochs, at, column)[which] for column in zip(*ends, strict=True))
        drawn = split_normal(rng.permutation(NORMAL) / z, *of_each)
        return list(map(float, np.quantile(drawn, shares, method="hazen")))

    def mixed(estimates: Sequence[Estimate | None]) -> Estimate | None:
        ends = [(e.point, e.lower, e.upper) for e in estimates if e is not None]
        if estimates[0] is None or len(ends) < len(estimates):
            return None
        shares = ((1 - level) / 2, 0.5, upper_share)
        lower, point, upper = quantiles(ends, float(special.ndtri(upper_share)), shares)
        return replace(estimates[0], point=point, lower=lower, upper=upper)

    duration = mixed([f.duration_s for f in forecasts]) or whole.duration_s
    not_reached = Estimate(0.0, 0.0, 0.0, level, "s")
    phases = []
    for i, part in enumerate(whole.phases):
        of_part = mixed([f.phases[i].duration_s if i < len(f.phases) else not_reached for f in forecasts])
        phases.append(replace(part, duration_s=of_part or part.duration_s))
    warnings = [*whole.warnings]
    if duration.relative_width > WIDE_RELATIVE_WIDTH:
        width = f"±{duration.relative_width / 2:.0%} ({stop.basis})"
        message = f"early stopping may end it sooner or later: the interval is {width}"
        warnings.append(WarningCode.WIDE.warning(message, "it narrows as the run goes on"))
    energy = mixed([f.energy_kwh for f in forecasts])
    between = mixed([f.between_s for f in forecasts])
    p99s = [(f.duration_s.point, f.duration_s.point, f.duration_p99_s) for f in forecasts if f.duration_p99_s]
    p99_s = None
    if len(p99s) == len(forecasts):
        (p99_s,) = quantiles(p99s, float(special.ndtri(P99)), [P99])
    return replace(
        whole,
        duration_s=duration,
        energy_kwh=energy,
        between_s=between,
        duration_p99_s=p99_s,
        warnings=tuple(warnings),
        phases=tuple(phases),
        expected_stop=stop,
        without_stop=whole,
    )


def _of_counts(shares: dict[int, float], most_epochs: int, none: float, basis: str) -> ExpectedStop:
    total = math.fsum(shares.values())
    found = tuple((epochs, share / total) for epochs, share in sorted(shares.items()) if share > 0)
    return ExpectedStop(found, most_epochs, none, basis)


def _not_before(stop: ExpectedStop, epochs: int) -> ExpectedStop:
    """Return the distribution given that the training did not end before this epoch."""
    epochs = min(epochs, stop.most_epochs)
    left = {k: share for k, share in stop.probabilities if k >= epochs}
    total = math.fsum(left.values())
    if not total:
        return _of_counts({epochs: 1.0}, stop.most_epochs, 0.0, stop.basis)
    return _of_counts(left, stop.most_epochs, stop.probability_of_none / total, stop.basis)


def _forms(n: int, ahead: int) -> tuple[Array, Array, Array, Array]:
    """Return the forms that a curve of n values and those ahead may have, g of them.

    Returns:
        Columns 1, f(t), g(t), of shape (g, n + ahead, 3); standard deviations of the noise relative to the present one,
        of shape (g, n + ahead); correlations of neighbouring noise, and log prior, of shape (g,).
    """
    t = np.arange(1, n + ahead + 1, dtype=float)
    falls = [t**-p for p in _POWERS] + [np.exp(-(t - 1) / tau) for tau in _TAUS]
    now = n - 1
    falls = [(f - f[now]) / max(1e-12, f[0] - f[now]) for f in falls]
    weights = [1.0] * len(_POWERS) + [_EXPONENTIAL] * len(_TAUS)
    rises = [rise - rise[now] for rise in (np.zeros_like(t), t / n, np.sqrt(t / n))]
    fades = [np.exp(fade * (1.0 - np.minimum(t, n) / n)) for fade in _FADES]
    ones = np.ones_like(t)
    columns = []
    priors = []
    correlations = []
    deviations = []
    weighted_falls = zip(falls, weights, strict=True)
    weighted_rises = zip(rises, _RISE_WEIGHTS, strict=True)
    for (fall, p_fall), (rise, p_rise), rho, fade in product(weighted_falls, weighted_rises, _AUTOCORRELATIONS, fades):
        columns.append(np.column_stack([ones, fall, rise]))
        priors.append(p_rise * p_fall)
        correlations.append(rho)
        deviations.append(fade)
    return np.array(columns), np.array(deviations), np.array(correlations), np.log(priors)


def _continued(values: Array, ahead: int, n_paths: int, rng: np.random.Generator) -> Array:
    """Return paths on which the values may go on, where smaller is better; shape (n_paths, ahead)."""
    finite = values[np.isfinite(values)]
    n = len(finite)
    level = float(finite[-1])
    scale = max(float(np.ptp(finite)), 1e-9 * max(1.0, abs(level)))
    y = (finite - level) / scale
    design, deviations, correlations, log_prior = _forms(n, ahead)
    rho = correlations[:, None]
    x = design[:, :n] / deviations[:, :n, None]
    z = y / deviations[:, :n]
    # the noise whitened: of the first value it is that of the stationary process
    first = np.sqrt(1.0 - rho**2)
    x = np.concatenate([x[:, :1] * first[..., None], x[:, 1:] - rho[..., None] * x[:, :-1]], axis=1)
    z = np.concatenate([z[:, :1] * first, z[:, 1:] - rho * z[:, :-1]], axis=1)
    precision = np.diag([_CURVE_SCALE**-2, _CURVE_SCALE**-2, _RISE_SCALE**-2])
    posterior = np.einsum("gni,gnj->gij", x, x) + precision
    covariance = np.linalg.inv(posterior)
    means = np.einsum("gij,gnj,gn->gi", covariance, x, z)
    squares = np.einsum("gn,gn->g", z, z) - np.einsum("gi,gij,gj->g", means, posterior, means)
    freedom = _NOISE_FREEDOM + n
    rate = _NOISE_FREEDOM * _NOISE_SHARE**2 + np.maximum(squares, 0.0)
    log_weights = log_prior + np.log(first[:, 0]) - np.log(deviations[:, :n]).sum(axis=1)
    log_weights = log_weights - 0.5 * np.linalg.slogdet(posterior)[1] - 0.5 * freedom * np.log(rate)
    weights = np.exp(log_weights - log_weights.max())
    models = rng.choice(len(weights), n_paths, p=weights / weights.sum())
    sigma = np.sqrt(rate[models] / rng.chisquare(freedom, len(models)))
    roots = np.linalg.cholesky(covariance)[models]
    drawn = means[models] + sigma[:, None] * np.einsum("kij,kj->ki", roots, rng.standard_normal((len(models), 3)))
    drawn = np.maximum(drawn, [-np.inf, 0.0, 0.0])  # what would fall ever faster, or rise to the first values, is flat
    curves = np.einsum("kti,ki->kt", design[models, n - 1 :], drawn)
    noise = np.empty_like(curves)
    noise[:, 0] = y[-1] - curves[:, 0]
    innovations = sigma[:, None] * rng.standard_normal(curves.shape)
    for i in range(1, curves.shape[1]):
        noise[:, i] = correlations[models] * noise[:, i - 1] + innovations[:, i]
    return np.asarray(level + scale * (curves + noise)[:, 1:])
