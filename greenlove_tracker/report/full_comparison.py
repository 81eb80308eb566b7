"""Logged runs beside a baseline: what each took, what it learnt for that, and what else differed between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from greenlove_tracker import format as fmt
from greenlove_tracker.format import Scale, energy_scale, time_scale
from greenlove_tracker.logs.forecasts import GOOD_ENDINGS
from greenlove_tracker.logs.intensity_sources import is_mock
from greenlove_tracker.logs.metrics import points
from greenlove_tracker.logs.run import Run
from greenlove_tracker.records import MetricSummary
from greenlove_tracker.rendering import document as doc
from greenlove_tracker.rendering import terminal
from greenlove_tracker.rendering.axes import Points
from greenlove_tracker.report import wording
from greenlove_tracker.report.learning_curves import (
    Curve,
    is_held_out,
    is_learning_rate,
    learning_rate_chart,
    line_chart,
    mean_line,
    metric_charts,
    rank_of_metric,
    value_at_epoch,
)
from greenlove_tracker.report.metric_report import number_text
from greenlove_tracker.report.run_report import duration_by_epoch_s, energy_by_epoch_kwh

Groups = Sequence[tuple[str, Sequence[Run]]]

_DASH = "–"
_THE_SAME = "is the same"
_ALIKE = 0.005  # a difference below it, as a share, is none that a reader would act on
_MOST_LINES = 5  # of a chart: further ones would look like the first (rendering.svg.N_LINE_STYLES)
_MOST_METRICS = 3
_NAME_WIDTH = 40
_LEAST_SIDES = 2

# What may differ between runs, beside the technique: the label, and the fields that are joined for it.
_OF_MACHINE = (
    ("host", ("host",)),
    ("system", ("os",)),
    ("CPU", ("cpu_model",)),
    ("CPU threads", ("cpu_threads",)),
    ("GPUs", ("gpu_models",)),
    ("meter", ("meter",)),
)
_OF_TRAINING = (
    ("technique", ("technique",)),
    ("command", ("command",)),
    ("git commit", ("git_commit",)),
    ("batch size", ("batch_size",)),
    ("seed", ("seed",)),
    ("epochs planned", ("epochs_planned",)),
    ("steps planned", ("total_steps_planned",)),
    ("ranks", ("world_size",)),
    ("GPU power limit, W", ("gpu_power_limit_w",)),
    ("place", ("country",)),
    ("PUE", ("pue",)),
    ("node overhead, assumed", ("node_overhead",)),
    ("PyTorch", ("torch_version",)),
    ("Python", ("python",)),
    ("greenlove_tracker", ("greenlove_version",)),
)


def run_blocks(groups: Groups) -> tuple[doc.Block, ...]:
    """Return what logged runs took and learnt, and what else differed between them; the first group is the baseline.

    Args:
        groups: runs by name. Those that did not come to their end are named and left out.
    """
    sides = [side_of(name, runs) for name, runs in groups]
    if not any(side.runs for side in sides):
        return ()
    metrics = shared_metrics(sides)
    return (
        doc.Heading("Whole runs"),
        *(doc.Paragraph(text) for text in (*_unlike(sides), *_trade_offs(sides, metrics))),
        doc.Table(_TAKEN_COLUMNS, tuple(_taken(side) for side in sides)),
        *learnt_blocks(sides, metrics),
        doc.Heading("Memory, waits and carbon intensity"),
        circumstance_table(sides),
        *(doc.Paragraph(text) for text in wait_texts(sides)),
        *chart_blocks(sides, metrics),
        *difference_blocks(sides),
        *(doc.Paragraph(text, is_note=True) for text in side_notes(sides)),
    )


def run_lines(groups: Groups) -> list[str]:
    """Return the same for the screen, in short: a line a group, and the trade-offs in sentences."""
    sides = [side_of(name, runs) for name, runs in groups]
    metrics = shared_metrics(sides)[:1]
    if not any(side.runs for side in sides):
        return []
    lines = side_table(sides, metrics)
    texts = [*_unlike(sides), *_trade_offs(sides, metrics), *wait_texts(sides), *side_notes(sides)]
    for text in texts:
        lines += ["", *terminal.wrap(text, terminal.MARGIN, terminal.MARGIN)]
    return lines


def side_table(sides: Sequence[Side], metrics: Sequence[SharedMetric]) -> list[str]:
    """Return a line for each side on the screen: the means of what its runs took, and of what they learnt."""
    several = any(len(side.runs) > 1 for side in sides)
    head = ["", *(["runs"] if several else []), "time", "energy", "CO2e", "peak memory"]
    rows = [[*head, *(f"{metric.kind} {fmt.shortened(metric.name, 24)}" for metric in metrics)]]
    for side in sides:
        figures = [_mean_text(side.values(q), fmt.QUANTITIES[q][1]) for q in _ON_SCREEN]
        learnt = [_mean_text([metric.of(run) for run in side.runs], number_text) for metric in metrics]
        number = [f"{len(side.runs)}"] if several else []
        rows.append([side.name, *number, *figures, _peaks(side, _mean_text), *learnt])
    names = terminal.name_widths([row[:1] for row in rows], [row[1:] for row in rows])
    return [f"{terminal.MARGIN}{line}" for line in terminal.table(rows, "<" + ">" * (len(rows[0]) - 1), widths=names)]


@dataclass(frozen=True, slots=True)
class SharedMetric:
    """A metric that runs are compared by.

    Attributes:
        name: of it.
        kind: ``best``, ``last`` or ``final``: which of its values counts. ``final`` is that of the weights that a
            training ends with: of the best epoch where early stopping ended it, else of the last one.
        higher_is_better: None where that is not known.
    """

    name: str
    kind: str
    higher_is_better: bool | None

    def of(self, run: Run) -> float | None:
        """Return the value that counts of a run; None where it has none, or none that is finite."""
        found = run.metrics.get(self.name)
        if found is None:
            return None
        best_epoch = run.text("best_epoch") if self.kind == "final" and run.stopped_early_after is not None else ""
        if best_epoch.isdecimal():
            value = value_at_epoch(run, self.name, int(best_epoch))
        else:
            value = found.best if self.kind == "best" else found.last
        return value if value is not None and math.isfinite(value) else None


@dataclass(frozen=True)
class Side:
    """The runs of one name.

    Attributes:
        name: of them.
        runs: trainings that came to their end.
        left_out: the others.
    """

    name: str
    runs: tuple[Run, ...]
    left_out: tuple[Run, ...] = ()

    @cached_property
    def short_name(self) -> str:
        """The name, within a cell."""
        return fmt.shortened(self.name, _NAME_WIDTH)

    def values(self, quantity: str) -> list[float | None]:
        """Return a total of each run, by the name of its field."""
        if quantity == "emissions_kgco2e":
            return [run.emissions_kgco2e for run in self.runs]
        return [getattr(run.summary, quantity) for run in self.runs]

    def text(self, quantity: str) -> str:
        """Write a total: the mean of the runs, and their range."""
        return _spread(self.values(quantity), fmt.QUANTITIES[quantity][1])

    def metric_text(self, metric: SharedMetric) -> str:
        """Write a metric likewise."""
        return _spread([metric.of(run) for run in self.runs], number_text)


def side_of(name: str, runs: Sequence[Run]) -> Side:
    """Return the runs of one name: trainings that came to their end, and apart from them the others."""
    kept = tuple(run for run in runs if _is_whole(run))
    return Side(name, kept, tuple(run for run in runs if run not in kept))


def _is_whole(run: Run) -> bool:
    """Return True for a training that came to its end."""
    return _is_training(run) and run.summary.status in GOOD_ENDINGS and not run.summary.exit_code


def _is_training(run: Run) -> bool:
    return not run.is_exploration and not run.has_parts


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean; None where there is no value, or any is not known."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(values) else None


def _spread(values: Sequence[float | None], text: fmt.Text) -> str:
    """Write the mean of values with their range, and of how many it is where some are not known; a dash: of none."""
    known = [value for value in values if value is not None]
    if not known:
        return _DASH
    written, low, high = text(math.fsum(known) / len(known)), text(min(known)), text(max(known))
    ends = f" ({low} to {high})" if low != high else ""
    return f"{written}{ends}{f', {len(known)} of {len(values)} runs' if len(known) < len(values) else ''}"


def _mean_text(values: Sequence[float | None], text: fmt.Text) -> str:
    mean = _mean(values)
    return _DASH if mean is None else text(mean)


# -- What it took --

_ON_SCREEN = ("duration_s", "energy_kwh", "emissions_kgco2e")

_TAKEN_COLUMNS = (
    doc.Column("", 2.4),
    doc.Column("runs", 0.5, True),
    doc.Column("time", 1.3, True),
    doc.Column("energy", 1.4, True),
    doc.Column("of it measured", 1.1, True),
    doc.Column("CO2e", 1.4, True),
    doc.Column("cost", 1.2, True),
)


def _taken(side: Side) -> tuple[str, ...]:
    shares = [run.summary.measured_share for run in side.runs]
    measured = _spread(shares, lambda share: "none, modelled" if share == 0 else fmt.percent(share))
    time, energy, emissions, cost = map(side.text, ("duration_s", "energy_kwh", "emissions_kgco2e", "cost_usd"))
    return (side.short_name, f"{len(side.runs)}", time, energy, measured, emissions, cost)


def circumstance_table(sides: Sequence[Side]) -> doc.Table:
    """Return the memory, the waits and the carbon intensity of each side."""
    columns = (
        doc.Column("", 1.6),
        doc.Column("peak memory", 1.3, True),
        doc.Column("waited", 0.8, True),
        doc.Column("g/kWh at start", 1.0, True),
        doc.Column("g/kWh, mean", 1.0, True),
        doc.Column("location-based, from", 2.8),
    )
    return doc.Table(columns, tuple(map(_circumstances, sides)))


def _circumstances(side: Side) -> tuple[str, ...]:
    waits = _spread([wording.amount_in(run, "wait_s") for run in side.runs], fmt.duration)
    at_start = _spread([_intensity_at_start(run) for run in side.runs], lambda v: fmt.significant(v or 0.0))
    means = [run.carbon_intensity.value if run.knows_carbon_intensity else None for run in side.runs]
    mean = _spread(means, lambda v: fmt.significant(v or 0.0))
    sources = "; ".join(dict.fromkeys(_intensity_source(run) for run in side.runs if run.knows_carbon_intensity))
    return (side.short_name, _peaks(side), waits, at_start, mean, sources or _DASH)


def _peaks(side: Side, text_of: Callable[[Sequence[float | None], fmt.Text], str] = _spread) -> str:
    """Write the peak memory: of the tensors on one GPU, else of the process."""
    on_gpu = [wording.amount_in(run, "peak_gpu_memory_gb") or None for run in side.runs]  # 0: torch used no GPU
    if any(on_gpu):
        return text_of(on_gpu, _memory_text)
    own = text_of([wording.amount_in(run, "peak_memory_gb") for run in side.runs], _memory_text)
    return own if own == _DASH else f"{own}, process"


def _memory_text(value_gb: float | None) -> str:
    return f"{fmt.significant(value_gb or 0.0)} GiB"


def _intensity_at_start(run: Run) -> float | None:
    """Return the intensity of the grid when a run began; None where only a mean of years is known."""
    if (waited := wording.amount_in(run, "intensity_at_start_gco2e_per_kwh")) is not None:
        return waited
    return next((row.carbon_intensity_gco2e_per_kwh for row in run.metered_rows), None)


def _intensity_source(run: Run) -> str:
    sources = run.intensity_sources
    if not sources:
        factor = run.carbon_intensity
        return ", ".join(filter(None, (wording.short_source(factor), fmt.shortened(factor.year, 12))))
    names = ", ".join(dict.fromkeys(source.described for source in sources))
    return f"MOCK: {names}" if is_mock(sources) else names


def wait_texts(sides: Sequence[Side]) -> list[str]:
    """Say how the runs waited for a cleaner grid, and paused; once where all did alike."""
    said: dict[str, list[str]] = {}
    for side in sides:
        texts = [wording.wait_sentence(run) for run in side.runs]
        for text in dict.fromkeys(filter(None, texts)):
            said.setdefault(text, []).append(side.short_name)
    return [f"{listed(names)} {text}." for text, names in said.items()]


# -- What it learnt for that --


def shared_metrics(sides: Sequence[Side]) -> list[SharedMetric]:
    """Return the metrics that the baseline and another side have, the one to compare by first."""
    if not sides:
        return []
    baseline = _metrics_of(sides[0])
    others = {name for side in sides[1:] for name in _metrics_of(side)}
    shared = [metric for name, metric in baseline.items() if name in others]
    if not shared:  # without a baseline, or beside it: what any side has
        shared = list({name: metric for side in sides for name, metric in _metrics_of(side).items()}.values())
    shared.sort(key=rank_of_metric)
    stops_early = any(run.stopped_early_after is not None for side in sides for run in side.runs)
    return [
        SharedMetric(
            m.name,
            _kind(m, stops_early=stops_early),
            m.higher_is_better,
        )
        for m in shared[:_MOST_METRICS]
    ]


def _kind(metric: MetricSummary, *, stops_early: bool) -> str:
    if stops_early and (metric.higher_is_better or is_held_out(metric.name)):
        return "final"
    return "best" if metric.higher_is_better else "last"


def _metrics_of(side: Side) -> Mapping[str, MetricSummary]:
    found: dict[str, MetricSummary] = {}
    for run in side.runs:
        found = {**run.metrics, **found}
    return {n: m for n, m in found.items() if m.higher_is_better is not None and not is_learning_rate(n)}


def learnt_blocks(sides: Sequence[Side], metrics: Sequence[SharedMetric]) -> tuple[doc.Block, ...]:
    """Return how long each side trained, and the metrics that it came to."""
    if not metrics:
        text = (
            "Model quality is not in the logs: no metric is in the baseline's and another's. eval_fn in a task, or "
            "tracker.log_metric() in a loop, puts it there."
        )
        return (doc.Paragraph(text),)
    titles = [f"{metric.kind} {fmt.shortened(metric.name, 24)}" for metric in metrics]
    columns = (doc.Column("", 2.0), doc.Column("trained", 2.2), *(doc.Column(title, 1.4, True) for title in titles))
    rows = tuple((side.short_name, _trained(side), *map(side.metric_text, metrics)) for side in sides)
    return (doc.Heading("Model quality"), doc.Table(columns, rows))


def _trained(side: Side) -> str:
    return "; ".join(dict.fromkeys(wording.progress(run) for run in side.runs)) or "did not finish"


def learnt_differences(groups: Groups) -> Mapping[str, str]:
    """Return by group how what it learnt differs from the first one's, as a clause; none where it is the same."""
    baseline, *others = (side_of(name, runs) for name, runs in groups)
    metrics = shared_metrics([baseline, *others])
    found = {}
    for side in others if baseline.runs else ():
        text = next((t for metric in metrics if (t := learnt_text(side, baseline, metric))), "") if side.runs else ""
        if text and _THE_SAME not in text:
            found[side.name] = text
    return found


def _trade_offs(sides: Sequence[Side], metrics: Sequence[SharedMetric]) -> list[str]:
    """Say of each side what it took and learnt beside the baseline, a sentence each."""
    baseline, *others = sides
    missing = [side.short_name for side in sides if not side.runs]
    texts = [f"{listed(missing)} did not finish."] if missing else []
    if not baseline.runs:
        return [*texts, "Without a baseline nothing can be compared with it."]
    return [*texts, *(_trade_off(side, baseline, metrics) for side in others if side.runs)]


def _trade_off(side: Side, baseline: Side, metrics: Sequence[SharedMetric]) -> str:
    energy, time = (_change(side.values(q), baseline.values(q)) for q in ("energy_kwh", "duration_s"))
    verb = "used" if len(side.runs) == 1 else "used on average"
    has_one_each = len(side.runs) == len(baseline.runs) == 1
    model = "modelled " if all(run.summary.measured_share == 0 for s in (side, baseline) for run in s.runs) else ""
    if energy is None:
        text = f"{side.short_name} took {_change_text(time)} time ({_unknown_energy(side, baseline)})"
    else:
        chance = (
            " (the ranges of their runs overlap)"
            if ranges_overlap(*(s.values("energy_kwh") for s in (side, baseline)))
            else ""
        )
        text = (
            f"{side.short_name} {verb} {_change_text(energy)} {model}energy{chance} and took {_change_text(time)} time"
        )
    learnt = next((t for metric in metrics if (t := learnt_text(side, baseline, metric))), "")
    text = f"In one run each, {text}" if has_one_each else text
    return f"{text}{f', and {learnt}' if learnt else '; no metric says what it learnt for that'}."


def _unknown_energy(side: Side, baseline: Side) -> str:
    unknown = [s.short_name for s in (baseline, side) if None in s.values("energy_kwh")]
    return f"the energy of {listed(unknown)} is unknown"


def _change(values: Sequence[float | None], baseline: Sequence[float | None]) -> float | None:
    mean, of_baseline = _mean(values), _mean(baseline)
    return None if mean is None or not of_baseline else mean / of_baseline


def _change_text(ratio: float | None) -> str:
    if ratio is None:
        return "an unknown amount of"
    if abs(ratio - 1) < _ALIKE:
        return "as much"
    if ratio >= 2:  # twice
        return f"{fmt.significant(ratio, 2)} times the"
    digits = 0 if abs(ratio - 1) >= 0.1 else 1  # two digits either way
    return f"{fmt.percent(abs(ratio - 1), digits)} {'less' if ratio < 1 else 'more'}"


def learnt_text(side: Side, baseline: Side, metric: SharedMetric) -> str:
    """Say how a metric of a side differs from the baseline's; empty where it is not known of both."""
    own, of_baseline = ([metric.of(run) for run in s.runs] for s in (side, baseline))
    mean, mean_before = _mean(own), _mean(of_baseline)
    if mean is None or mean_before is None:
        return ""
    what = f"its {metric.kind} {fmt.shortened(metric.name, 24)}"
    values = f"{number_text(mean)}, the baseline's {number_text(mean_before)}"
    overlap = "; the ranges of their runs overlap" if ranges_overlap(own, of_baseline) else ""
    if number_text(mean) == number_text(mean_before):
        return f"{what} {_THE_SAME} ({number_text(mean)})"
    direction = "lower" if mean < mean_before else "higher"
    scales = {_point_scale(run.metrics[metric.name]) for s in (side, baseline) for run in s.runs}
    if len(scales) == 1 and (scale := scales.pop()) is not None:
        by = f"{fmt.significant(abs(mean - mean_before) * scale, 2)} points {direction}"
    elif mean_before:
        by = f"{fmt.percent(abs(mean / mean_before - 1), 1)} {direction}"
    else:
        by = direction
    return f"{what} is {by} ({values}{overlap})"


def _point_scale(metric: MetricSummary) -> float | None:
    """Return what a score is multiplied by to be in points, which are hundredths; None of any other metric."""
    in_points, best = points(metric), metric.best
    return None if in_points is None or not best else float(round(in_points / best))


def ranges_overlap(first: Sequence[float | None], second: Sequence[float | None]) -> bool:
    """Return True where the ranges of several runs overlap: what differs may be chance."""
    a, b = ([v for v in values if v is not None] for values in (first, second))
    return len(a) > 1 and len(b) > 1 and min(a) <= max(b) and min(b) <= max(a)


# -- As it went on --


def chart_blocks(sides: Sequence[Side], metrics: Sequence[SharedMetric]) -> tuple[doc.Block, ...]:
    """Return the curves of the sides: what they learnt, their learning rates, and what their epochs took."""
    drawn = [side for side in sides if side.runs][:_MOST_LINES]
    not_drawn = [side.short_name for side in sides if side.runs][_MOST_LINES:]
    named = [(side.short_name, side.runs) for side in drawn]
    rows = []
    for metric in metrics:
        charts = metric_charts(fmt.shortened(metric.name, _NAME_WIDTH), named, metric.name)
        rows += [doc.ChartRow(charts)] if charts else []
    rows += [doc.ChartRow((rate,))] if (rate := learning_rate_chart(named)) else []
    of_epochs = [
        _epoch_chart("Duration of each epoch", drawn, duration_by_epoch_s, time_scale),
        _epoch_chart("Energy of each epoch, before PUE", drawn, energy_by_epoch_kwh, energy_scale),
    ]
    if any(of_epochs):
        rows.append(doc.ChartRow(tuple(chart for chart in of_epochs if chart)))
    if not rows:
        return ()
    notes = []
    if any(len(side.runs) > 1 for side in drawn):
        notes.append("A line of several runs is their mean, where all of them have a value.")
    if not_drawn:
        notes.append(f"Not drawn, for want of room: {listed(not_drawn)}.")
    return (doc.Heading("Side by side"), *rows, *(doc.Paragraph(note, is_note=True) for note in notes))


def _epoch_chart(
    title: str, sides: Sequence[Side], points_of: Callable[[Run], Points], scale_for: Callable[[float], Scale]
) -> doc.LineChart | None:
    lines = [mean_line(s.short_name, [Curve(dict(points_of(run)), {}, {}) for run in s.runs]) for s in sides]
    highest = max((y for line in lines if line for _, y in line.points), default=0.0)
    if highest <= 0:
        return None
    scale = scale_for(highest)
    scaled = [line and doc.Line(line.name, tuple((x, scale.value(y)) for x, y in line.points)) for line in lines]
    return line_chart(title, "epoch", scale.unit, scaled)


# -- What else differed --


def _differences(sides: Sequence[Side], fields: Iterable[tuple[str, tuple[str, ...]]]) -> list[tuple[str, list[str]]]:
    """Return the fields that are not the same in all groups, each with its text of every group."""
    found = []
    for label, names in fields:
        texts = [_field_text(side, names) for side in sides]
        if len(set(texts)) > 1:
            found.append((label, [text or _DASH for text in texts]))
    return found


def _field_text(side: Side, names: Sequence[str]) -> str:
    """Return what the runs of a side have in a field; what all lack is empty."""
    each = [" ".join(filter(None, (wording.field_text(run, name, 60) for name in names))) for run in side.runs]
    different = list(dict.fromkeys(each))
    shown = [text or _DASH for text in different[:_MOST_TEXTS]]
    more = f", and {len(different) - len(shown)} more" if len(different) > len(shown) else ""
    return ", ".join(shown) + more if any(different) else ""


_MOST_TEXTS = 3  # of a field, within one group


def difference_blocks(sides: Sequence[Side]) -> tuple[doc.Block, ...]:
    """Return which settings, versions and machines were not the same, beside the techniques."""
    sides = [side for side in sides if side.runs]
    is_of_experiment = any(run.text("experiment_run") for side in sides for run in side.runs)
    fields = [
        pair for pair in _OF_TRAINING if not (is_of_experiment and pair[0] == "command")
    ]  # it names each by a key
    found = _differences(sides, (*fields, *_OF_MACHINE))
    found = [(label, texts) for label, texts in found if texts != [side.short_name for side in sides]]  # the techniques
    if len(sides) < _LEAST_SIDES:
        return ()
    if not found:
        text = "Machine, versions and settings are the same in all of these runs, as far as their logs say."
        return (doc.Paragraph(text),)
    columns = (doc.Column("", 1.2), *(doc.Column(side.short_name, 2.0) for side in sides))
    return (
        doc.Heading("What differed between the runs"),
        doc.Table(columns, tuple((label, *texts) for label, texts in found)),
    )


def _unlike(sides: Sequence[Side]) -> list[str]:
    """Say what makes the runs a comparison of something else than of ways to train."""
    texts = []
    if machines := _differences([side for side in sides if side.runs], _OF_MACHINE):
        texts.append(
            f"Machine or meter are not the same in all of these runs ({listed([label for label, _ in machines])}): "
            "what differs in time and energy is not the way of training alone."
        )
    counts = {side.short_name: _work(side) for side in sides if side.runs}
    if len({text for text in counts.values() if text}) > 1:
        each = "; ".join(f"{name}: {text or 'not in the log'}" for name, text in counts.items())
        is_stopped = any(run.stopped_early_after is not None for side in sides for run in side.runs)
        meaning = "some were stopped early" if is_stopped else "their totals are of different work"
        texts.append(f"They did not train equally long ({each}): {meaning}.")
    return texts


def _work(side: Side) -> str:
    """Write how much runs trained on: samples, else epochs; empty where neither is known."""
    samples = {run.summary.counts.samples for run in side.runs}
    if None not in samples:
        return " or ".join(f"{n:,} samples" for n in sorted(n for n in samples if n is not None))
    epochs = sorted({run.summary.epochs_done for run in side.runs} - {0})
    return " or ".join(fmt.plural(n, "epoch") for n in epochs)


def side_notes(sides: Sequence[Side]) -> list[str]:
    """Return the notes of techniques, which runs are left out, and what single runs cannot tell."""
    found = []
    for side in sides:
        notes = [t for t in dict.fromkeys(run.text("technique_note") for run in side.runs) if t]
        more = f" (the notes of {fmt.plural(len(notes) - 1, 'more run')} are alike)" if len(notes) > 1 else ""
        found += [f"{side.short_name}: {t}{more}." for t in notes[:1]]
        for run in side.left_out:
            how = f"{run.summary.status}, {wording.progress(run)}" if _is_training(run) else "no training of its own"
            found.append(f"{side.short_name}: {run.run_id} is left out ({how}).")
    if any(len(side.runs) == 1 and side.runs[0].metrics for side in sides):
        found.append(
            "One run says nothing about chance: with another seed, one and the same training learns a little "
            "more or less. Several seeds each would show by how much."
        )
    return found


def listed(names: Sequence[str]) -> str:
    """Write ``a, b and c``."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
