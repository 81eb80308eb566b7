"""The page of an experiment: what its optimised trainings saved against the baseline, and what they learnt for that.

Times, energies and emissions of a training are those of all runs that it took, lost work included
(``logs.continued_runs.whole_training``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean

import greenlove_tracker
from greenlove_tracker import format as fmt
from greenlove_tracker.comparisons import Comparison, ComparisonRow, Verdict, is_modelled
from greenlove_tracker.extrapolation.run_comparison import compare_runs, saving_order
from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.logs.continued_runs import training_interruptions
from greenlove_tracker.logs.intensity_sources import is_mock
from greenlove_tracker.logs.run import Run
from greenlove_tracker.rendering import document as doc
from greenlove_tracker.rendering import terminal
from greenlove_tracker.report import wording
from greenlove_tracker.report.checkpoint_report import costs_text
from greenlove_tracker.report.comparison_report import background_blocks, ratio_blocks
from greenlove_tracker.report.comparison_screen import share_text
from greenlove_tracker.report.full_comparison import (
    SharedMetric,
    Side,
    chart_blocks,
    circumstance_table,
    difference_blocks,
    learnt_blocks,
    learnt_text,
    listed,
    ranges_overlap,
    shared_metrics,
    side_notes,
    side_of,
    side_table,
    wait_texts,
)
from greenlove_tracker.report.metric_report import number_text
from greenlove_tracker.secret_masking import mask_secrets
from greenlove_tracker.units import GRAMS_PER_KG, gco2e_from_kwh

_MOST_SAID = 3  # groups whose savings are said in sentences
_MOST_ROWS = 100
_LEAST_RANKED = 3  # groups: of two the verdict says all
_NAME_WIDTH = 44
_DASH = "–"
_LABEL = 9  # columns of the screen


@dataclass(frozen=True, slots=True)
class ExperimentRecord:
    """An experiment as far as it is done: its trainings, and why others are missing.

    Attributes:
        name: of the experiment.
        text: of its file, as it was written.
        sha256: of the file's bytes.
        groups: trainings by the name of their group, the baseline's first; each one run (of several runs,
            ``logs.continued_runs.whole_training`` makes one). Trainings of a group differ in their seed alone.
        not_run: name and reason of each training of which there is no run.
        notes: on the whole: sentences without a full stop.
        budget: what all trainings used and may use together, by the total's name in ``format.QUANTITIES``.
    """

    name: str
    text: str
    sha256: str
    groups: tuple[tuple[str, tuple[Run, ...]], ...]
    not_run: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    budget: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def runs(self) -> tuple[Run, ...]:
        """All trainings, those too that did not come to their end."""
        return tuple(run for _, runs in self.groups for run in runs)


def experiment_document(record: ExperimentRecord) -> doc.Document:
    """Return the page of an experiment: the verdict, the trade-off, every training, and what it was asked for."""
    sides = _sides(record)
    metrics = shared_metrics(sides)
    comparisons = _comparisons(sides)
    ranking = _ranking_blocks(sides, metrics)
    notes = [*record.notes, *(text.rstrip(".") for text in side_notes(sides))]
    blocks: tuple[doc.Block, ...] = (
        *(doc.Paragraph(text) for text in _verdict(record, sides, metrics, comparisons)),
        *(
            block
            for comparison in comparisons[:_MOST_SAID]
            for block in ratio_blocks(comparison, has_key_figures=comparison is comparisons[0])
        ),
        *ranking,
        *_training_blocks(record, metrics),
        *(learnt_blocks(sides, metrics) if not ranking else ()),
        *chart_blocks(_drawn_first(sides, metrics, comparisons), metrics),
        *_circumstance_blocks(record),
        *difference_blocks(sides),
        *(doc.Paragraph(f"{text}.", is_note=True) for text in notes),
        *_not_run_blocks(record),
        *_budget_blocks(record),
        *(background_blocks(comparisons[0]) if comparisons else ()),
        doc.Heading("The file of the experiment"),
        doc.Paragraph(f"SHA-256 of its bytes: {record.sha256}.", is_note=True),
        doc.Verbatim(mask_secrets(record.text)),
    )
    version = f"greenlove_tracker {greenlove_tracker.__version__}"
    return doc.Document(
        title=f"Experiment {record.name}",
        subtitle=_subtitle(record, sides),
        footer=f"{version} · {fmt.shortened(record.name, 40)} · file {record.sha256[:12]}",
        blocks=blocks,
    )


def experiment_lines(record: ExperimentRecord) -> list[str]:
    """Return the same in short for the screen: the verdict, a line a group, and what is missing."""
    sides = _sides(record)
    metrics = shared_metrics(sides)[:2]
    name = fmt.shortened(record.name, _NAME_WIDTH)
    lines = [f"greenlove experiment   {name}   {_subtitle(record, sides)}", ""]
    for text in _verdict(record, sides, metrics, _comparisons(sides)):
        lines += [*terminal.wrap(text, terminal.MARGIN, terminal.MARGIN, breaks_hyphens=False), ""]
    if any(side.runs for side in sides):
        lines += [*side_table(sides, metrics[:1]), ""]
    remarks = [("best", text) for text in _best_texts(sides, metrics)]
    remarks += [("waits", text) for text in _waiting_texts(record)]
    remarks += [("lost", text) for text in _lost_texts(record)]
    remarks += [("not run", f"{name}: {reason}") for name, reason in record.not_run[:_MOST_SAID]]
    if len(record.not_run) > _MOST_SAID:
        remarks.append(("not run", f"and {len(record.not_run) - _MOST_SAID} more"))
    remarks += [("budget", " · ".join(f"{used} of {limit}" for _, used, limit, _ in _budget_rows(record)))]
    remarks += [("note", note) for note in record.notes]
    for label, text in remarks:
        first, further = f"{terminal.MARGIN}{label:<{_LABEL}}", terminal.MARGIN + " " * _LABEL
        lines += terminal.wrap(text, first, further, breaks_hyphens=False) if text else []
    return lines


def _subtitle(record: ExperimentRecord, sides: Sequence[Side]) -> str:
    n_finished = sum(len(side.runs) for side in sides)
    n_all = len(record.runs) + len(record.not_run)
    parts = [f"{n_finished:,} of {fmt.plural(n_all, 'training')} finished"]
    parts += [fmt.plural(len(sides), "group")] if len(sides) > 1 else []
    if starts := [run.started_at for run in record.runs if run.started_at]:
        parts.append(f"begun {min(starts)[:16].replace('T', ' ')} UTC")
    return " · ".join(parts)


# -- The verdict --


def _sides(record: ExperimentRecord) -> list[Side]:
    """Return the groups; where all are of one arm, without its name."""
    arms = {run.text("arm") for run in record.runs}
    arm = arms.pop() if len(arms) == 1 else ""
    return [side_of(name.removeprefix(f"{arm}, ") if arm else name, runs) for name, runs in record.groups]


def _comparisons(sides: Sequence[Side]) -> list[Comparison]:
    """Return the ratios to the baseline's totals: of several arms, within each combination of the matrix by itself.

    A combination without a finished training of the baseline and of another arm has none.
    """
    arms = [_arm(side) for side in sides]
    combinations: dict[str, list[Side]] = {}
    for side, arm in zip(sides, arms, strict=True):
        combination = side.name.removeprefix(arm) if len(set(arms)) > 1 else ""
        combinations.setdefault(combination, []).append(side)
    found = []
    for own in combinations.values():
        done = [(side.name, side.runs) for side in own if side.runs]
        if len(done) > 1 and own[0].runs and _arm(own[0]) == arms[0]:
            found.append(compare_runs(done, of_whole=True))
    return found


def _arm(side: Side) -> str:
    return (side.runs or side.left_out)[0].text("arm") if side.runs or side.left_out else side.name.partition(", ")[0]


def _drawn_first(
    sides: Sequence[Side], metrics: Sequence[SharedMetric], comparisons: Sequence[Comparison]
) -> list[Side]:
    """Return the groups in the order that charts have room for: those that the verdict names, then the best."""
    first = [name for found, row in _by_saving(comparisons)[:_MOST_SAID] for name in (found.baseline.name, row.name)]
    ordered = [*sides[:1], *_best_first(sides[1:], metrics)]
    return sorted(ordered, key=lambda side: first.index(side.name) if side.name in first else len(first))


def _by_saving(comparisons: Sequence[Comparison]) -> list[tuple[Comparison, ComparisonRow]]:
    """Return all groups beside a baseline, those that save most first."""
    pairs = [(comparison, row) for comparison in comparisons for row in comparison.rows]
    return sorted(pairs, key=lambda pair: saving_order(pair[1]))


def _verdict(
    record: ExperimentRecord,
    sides: Sequence[Side],
    metrics: Sequence[SharedMetric],
    comparisons: Sequence[Comparison],
) -> list[str]:
    """Say what was saved, at which cost in what was learnt; and what is invented, or missing."""
    texts = []
    if comparisons:
        by_name = {side.name: side for side in sides}
        pairs = _by_saving(comparisons)
        texts = [
            _row_verdict(found, row, by_name[row.name], by_name[found.baseline.name], metrics)
            for found, row in pairs[:_MOST_SAID]
        ]
        if len(pairs) > _MOST_SAID:
            texts.append(f"{fmt.plural(len(pairs) - _MOST_SAID, 'more group')}: see the tables.")
        if any(ratio.has_interval for _, row in pairs for ratio in _ratios(row).values()):
            texts.append(_interval_text(sides))
    elif sides:
        missing = [side.name for side in sides if not side.runs]
        what = f"no training of {listed(missing)} has finished" if missing else "there is one group of trainings"
        texts.append(f"Nothing can be compared: {what}.")
    else:
        texts.append("No training has been run.")
    if any(is_mock(run.intensity_sources) for run in record.runs):
        texts.append(
            "MOCK: the carbon intensity is invented, and so are the CO2e, the waits and any saving they seem to show."
        )
    n_unfinished = sum(len(side.left_out) for side in sides)
    if n_unfinished or record.not_run:
        parts = [f"{n_unfinished:,} did not finish"] if n_unfinished else []
        parts += (
            [f"{len(record.not_run):,} were not run" if len(record.not_run) > 1 else "1 was not run"]
            if (record.not_run)
            else []
        )
        texts.append(f"Of {fmt.plural(len(record.runs) + len(record.not_run), 'training')}, {' and '.join(parts)}.")
    return texts


def _ratios(row: ComparisonRow) -> dict[str, Estimate]:
    named = {"energy": row.energy_ratio, "CO2e": row.co2e_ratio, "cost": row.cost_ratio, "time": row.time_ratio}
    return {name: ratio for name, ratio in named.items() if ratio is not None and math.isfinite(ratio.point)}


def _row_verdict(
    comparison: Comparison, row: ComparisonRow, side: Side, baseline: Side, metrics: Sequence[SharedMetric]
) -> str:
    """Say what one group saved and what it learnt for that, beside the baseline, in one sentence or two."""
    model = "modelled " if is_modelled(comparison.energy_method) else ""
    alike: dict[str, list[str]] = {}
    ratios = _ratios(row)
    for name, ratio in ratios.items():
        alike.setdefault(share_text(ratio, ""), []).append(name)
    saved, spent, same = list[str](), list[str](), list[str]()
    for names in alike.values():
        ratio = ratios[names[0]]
        named = [f"{model}{name}" if name == "energy" else name for name in names]
        if ratio.upper < 1:
            saved.append(share_text(ratio, listed(named)))
        elif ratio.lower > 1:
            spent.append(share_text(ratio, listed(named)))
        else:
            same += named
    parts = [f"saved {listed(saved)}"] if saved else []
    parts += [f"took {listed(spent)}"] if spent else []
    if same:
        parts.append(f"{'showed ' if not parts else ''}no measurable difference in {listed(same)}")
    missing = [name for name in ("energy", "CO2e", "cost") if name not in ratios]
    if row.verdict is Verdict.TOO_SHORT and same and not (saved or spent):
        text = f"These are too few trainings to tell what {row.name} saves in {listed(same)}"
    elif parts:
        text = f"{row.name} {', but '.join(parts[:2])}{f', with {parts[2]}' if len(parts) > 2 else ''}"
    else:
        text = f"What {row.name} saved is not known"
    text = f"{text} against {baseline.name}{_absolute(side, baseline)}"
    learnt = next((found for metric in metrics if (found := learnt_text(side, baseline, metric))), "")
    learnt = f"{learnt[0].upper()}{learnt[1:]}" if learnt else "No metric says what it learnt for that"
    unknown = ""
    if missing and ratios:
        is_estimated = all(_mean_of(s, "energy_kwh") is not None for s in (side, baseline))
        why = ": too little of it was metered" if is_estimated else ""
        unknown = f" How its {listed(missing)} {'differs' if len(missing) == 1 else 'differ'} is unknown{why}."
    return f"{text}. {learnt}.{unknown}"


def _absolute(side: Side, baseline: Side) -> str:
    """Write what a training of either took on average: `` (1:02 instead of 1:40, 3.1 instead of 5.0 Wh)``."""
    parts = []
    own_s, before_s = (_mean_of(s, "duration_s") for s in (side, baseline))
    if own_s is not None and before_s is not None:
        parts.append(f"{fmt.duration(own_s)} instead of {fmt.duration(before_s)}")
    own_kwh, before_kwh = (_mean_of(s, "energy_kwh") for s in (side, baseline))
    if own_kwh is not None and before_kwh is not None:
        scale = fmt.energy_scale(max(own_kwh, before_kwh))
        parts.append(f"{scale.text(own_kwh)} instead of {scale.text(before_kwh)} {scale.unit}")
    mean = ", geometric means" if max(len(side.runs), len(baseline.runs)) > 1 else ""
    return f" ({', '.join(parts)}{mean})" if parts else ""


def _mean_of(side: Side, quantity: str) -> float | None:
    """Return the geometric mean of a total, whose ratios the percentages are; None where a training lacks it."""
    values = [value for value in side.values(quantity) if value]
    return geometric_mean(values) if values and len(values) == len(side.runs) else None


def _interval_text(sides: Sequence[Side]) -> str:
    counts = sorted({len(side.runs) for side in sides if side.runs})
    if counts == [1]:
        return (
            "In parentheses: 95% intervals. With one training each, they assume how much two identical trainings "
            "differ; several seeds would show it."
        )
    each = " or ".join(str(n) for n in counts)
    return f"In parentheses: 95% intervals, from how much the {each} trainings of a group differ among themselves."


# -- Which combination is best --


def _best_first(sides: Sequence[Side], metrics: Sequence[SharedMetric]) -> list[Side]:
    """Return the sides by their mean of the first metric, the best first; those without one last."""
    if not metrics:
        return sorted(sides, key=lambda side: _mean_of(side, "energy_kwh") or math.inf)
    metric = metrics[0]

    def place(side: Side) -> tuple[bool, float]:
        mean = _metric_mean(side, metric)
        return mean is None, 0.0 if mean is None else -mean if metric.higher_is_better else mean

    return sorted(sides, key=place)


def _metric_mean(side: Side, metric: SharedMetric) -> float | None:
    values = [value for run in side.runs if (value := metric.of(run)) is not None]
    return math.fsum(values) / len(values) if values else None


def _best_texts(sides: Sequence[Side], metrics: Sequence[SharedMetric]) -> list[str]:
    """Say which group learnt best and which took least energy, and how far chance allows to say so."""
    ran = [side for side in sides if side.runs]
    if len(ran) < _LEAST_RANKED or not metrics:
        return []
    metric = metrics[0]
    best, *others = [side for side in _best_first(ran, metrics) if _metric_mean(side, metric) is not None]
    text = f"{best.name} has the best {metric.name}: {best.metric_text(metric)}"
    values = {side.name: [metric.of(run) for run in side.runs] for side in ran}
    tied = [side.name for side in others if ranges_overlap(values[best.name], values[side.name])]
    if max(len(side.runs) for side in ran) == 1:
        text += ". With one training each this may be chance: several seeds would tell"
    elif tied:
        named = f"those of {listed(tied)}" if len(tied) <= _MOST_SAID else f"{len(tied)} others"
        text += f". Its range over seeds overlaps with {named}: which of them is best may be chance"
    elif others:
        text += ". No other group's range over seeds reaches it"
    by_energy = [(mean, side.name) for side in ran if (mean := _mean_of(side, "energy_kwh")) is not None]
    texts = [f"{text}."]
    if by_energy:
        least_kwh, name = min(by_energy)
        own = next(side for side in ran if side.name == name).values("energy_kwh")
        rivals = [s.name for s in ran if s.name != name and ranges_overlap(own, s.values("energy_kwh"))]
        hedge = f", in a range that overlaps with {fmt.plural(len(rivals), 'other group')}" if rivals else ""
        texts.append(f"{name} took the least energy: {fmt.energy(least_kwh)} a training{hedge}.")
    return texts


def _ranking_blocks(sides: Sequence[Side], metrics: Sequence[SharedMetric]) -> tuple[doc.Block, ...]:
    """Return the groups, the best first, and a table of two swept settings where there are just two."""
    ran = [side for side in sides if side.runs]
    if len(ran) < _LEAST_RANKED:
        return ()
    columns = (
        doc.Column("", 2.4),
        doc.Column("runs", 0.65, True),
        *(doc.Column(f"{metric.kind} {fmt.shortened(metric.name, 24)}", 1.5, True) for metric in metrics),
        doc.Column("energy", 1.3, True),
        doc.Column("CO2e", 1.3, True),
        doc.Column("time", 1.2, True),
    )
    rows = tuple(
        (
            side.short_name,
            f"{len(side.runs)}",
            *map(side.metric_text, metrics),
            *(side.text(quantity) for quantity in ("energy_kwh", "emissions_kgco2e", "duration_s")),
        )
        for side in _best_first(ran, metrics)
    )
    return (
        doc.Heading("The combinations, the best first"),
        *(doc.Paragraph(text) for text in _best_texts(sides, metrics)),
        doc.Table(columns, rows[:_MOST_ROWS]),
        *_grid(ran, metrics),
    )


def _grid(sides: Sequence[Side], metrics: Sequence[SharedMetric]) -> tuple[doc.Block, ...]:
    """Return the mean of the first metric and the energy by two settings; nothing unless just two were swept."""
    found = [_settings(side) for side in sides]
    names = list(dict.fromkeys(name for settings in found for name in settings))
    swept = {name: list(dict.fromkeys(settings.get(name, _DASH) for settings in found)) for name in names}
    swept = {name: values for name, values in swept.items() if len(values) > 1}
    if len(swept) != 2 or not metrics:
        return ()
    (down, rows), (across, heads) = swept.items()
    cells = {(s.get(down, _DASH), s.get(across, _DASH)): side for s, side in zip(found, sides, strict=True)}

    def cell(row: str, head: str) -> str:
        side = cells.get((row, head))
        mean = None if side is None else _metric_mean(side, metrics[0])
        if side is None or mean is None:
            return _DASH
        return f"{number_text(mean)} · {fmt.energy(_mean_of(side, 'energy_kwh'))}"

    title = (
        f"Mean {metrics[0].kind} {metrics[0].name} and energy of a training, by {down} (down) and {across} (across):"
    )
    table = doc.Table(
        (doc.Column("", 1.2), *(doc.Column(fmt.shortened(head, 24), 1.0, True) for head in heads)),
        tuple((fmt.shortened(row, 30), *(cell(row, head) for head in heads)) for row in rows),
    )
    return doc.Paragraph(title), table


def _settings(side: Side) -> dict[str, str]:
    """Return the arm and the values of the matrix that a group's name holds: ``optimised, batch_size=64``."""
    arm = side.runs[0].text("arm") or side.name.partition(", ")[0]
    rest = side.name.removeprefix(arm).removeprefix(", ")
    pairs = (part.partition("=") for part in rest.split(", ") if "=" in part)
    return {"arm": arm, **{name: value for name, _, value in pairs}}


# -- Every training --

_TRAINING_COLUMNS = (
    doc.Column("", 2.0),
    doc.Column("trained", 1.5),
    doc.Column("time", 0.9, True),
    doc.Column("energy", 1.2, True),
    doc.Column("CO2e", 1.2, True),
    doc.Column("cost", 1.5, True),
)


def _training_blocks(record: ExperimentRecord, metrics: Sequence[SharedMetric]) -> tuple[doc.Block, ...]:
    if not record.runs:
        return ()
    titles = (f"{metric.kind} {fmt.shortened(metric.name, 24)}" for metric in metrics[:2])
    columns = (*_TRAINING_COLUMNS, *(doc.Column(title, 1.0, True) for title in titles), doc.Column("status", 0.9))
    rows = []
    for side in _trainings(record):
        (run,) = side.runs
        figures = (side.text(quantity) for quantity in ("duration_s", "energy_kwh", "emissions_kgco2e", "cost_usd"))
        learnt = (side.metric_text(metric) for metric in metrics[:2])
        status = fmt.shortened(run.summary.status, 20)
        if len(run.parts) > 1:
            status += f", {len(run.parts)} runs"
        rows.append((side.name, wording.progress(run), *figures, *learnt, status))
    lost = [doc.Paragraph(text) for text in _lost_texts(record)]
    more = [doc.Paragraph(f"and {len(rows) - _MOST_ROWS:,} more")] if len(rows) > _MOST_ROWS else []
    return doc.Heading("The trainings"), doc.Table(columns, tuple(rows[:_MOST_ROWS])), *more, *lost


def _trainings(record: ExperimentRecord) -> list[Side]:
    """Return each training by itself, under its own name."""
    found = []
    for name, runs in record.groups:
        for run in runs:
            seed = run.text("seed")
            own = name if not seed and len(runs) == 1 else f"{name}, {f'seed {seed}' if seed else run.run_id}"
            found.append(Side(fmt.shortened(own, _NAME_WIDTH), (run,)))
    return found


def _lost_texts(record: ExperimentRecord) -> list[str]:
    """Say of each training that was interrupted what that cost; it is in the totals."""
    texts = []
    for side in _trainings(record):
        found = training_interruptions(side.runs[0]) if side.runs[0].parts else None
        if found is not None and found.interruptions:
            texts.append(
                f"{side.name} took {fmt.plural(len(found.runs), 'run')}. {costs_text(found)}; its totals hold it."
            )
    return texts


# -- Waits, carbon intensity, memory --


def _circumstance_blocks(record: ExperimentRecord) -> tuple[doc.Block, ...]:
    trainings = _trainings(record)
    if not trainings:
        return ()
    groups = [Side(name, runs) for name, runs in record.groups]
    texts = [*wait_texts(groups)[:_MOST_SAID], *_waiting_texts(record)]
    return (
        doc.Heading("Memory, waits and carbon intensity"),
        circumstance_table(trainings[:_MOST_ROWS]),
        *(doc.Paragraph(text) for text in texts),
    )


def _waiting_texts(record: ExperimentRecord) -> list[str]:
    """Say how long trainings waited, and what that saved against the grid as it was when their waits began.

    An estimate: it takes the carbon intensity of that moment for the whole training, as if it had begun then.
    """
    waited = [run for run in record.runs if (wording.amount_in(run, "wait_s") or 0.0) >= 1]
    if not waited:
        return []
    total_s = math.fsum(wording.amount_in(run, "wait_s") or 0.0 for run in waited)
    text = f"{fmt.plural(len(waited), 'training')} waited for a cleaner grid, {fmt.duration(total_s)} in all"
    known = [
        (at_request, run.summary.energy_kwh, run.emissions_kgco2e)
        for run in waited
        if (at_request := wording.amount_in(run, "intensity_at_request_gco2e_per_kwh")) is not None
        and run.intensity_sources  # else its emissions are of a mean of years, which no wait changes
        and run.summary.energy_kwh is not None
        and run.emissions_kgco2e is not None
    ]
    if not known:
        return [f"{text}; what that saved is not known: the carbon intensity when a wait began is not in the logs."]
    at_once_kg = math.fsum(gco2e_from_kwh(kwh or 0.0, intensity) / GRAMS_PER_KG for intensity, kwh, _ in known)
    came_to_kg = math.fsum(kg or 0.0 for _, _, kg in known)
    change = 1 - came_to_kg / at_once_kg if at_once_kg > 0 else 0.0
    share = fmt.percent(abs(change))
    effect = "changed nothing" if share == "0%" else f"{'saved' if change > 0 else 'cost'} {share}"
    mock = "MOCK: " if any(is_mock(run.intensity_sources) for run in waited) else ""
    who = f"{len(known)} of them" if len(known) < len(waited) else "They" if len(waited) > 1 else "It"
    return [
        f"{mock}{text}. {who} emitted {fmt.mass(came_to_kg)}; at the carbon intensity when each wait began it "
        f"would have been {fmt.mass(at_once_kg)}: waiting {effect}. "
        f"This is an estimate: what the grid would have been had they begun at once is not known."
    ]


# -- What is missing, and limits --


def _not_run_blocks(record: ExperimentRecord) -> tuple[doc.Block, ...]:
    if not record.not_run:
        return ()
    rows = tuple((fmt.shortened(name, _NAME_WIDTH), fmt.shortened(reason, 200)) for name, reason in record.not_run)
    columns = (doc.Column("", 1.5), doc.Column("reason", 3.5))
    return doc.Heading("Not run"), doc.Table(columns, rows[:_MOST_ROWS])


def _budget_rows(record: ExperimentRecord) -> list[tuple[str, str, str, str]]:
    """Return each limit with what it is of, what was used, the limit, and the share."""
    rows = []
    for quantity, (used, limit) in record.budget.items():
        name, text = fmt.QUANTITIES[quantity]
        rows.append((name, text(used), text(limit), fmt.percent(used / limit) if limit > 0 else _DASH))
    return rows


def _budget_blocks(record: ExperimentRecord) -> tuple[doc.Block, ...]:
    rows = _budget_rows(record)
    if not rows:
        return ()
    columns = (
        doc.Column("", 1.2),
        doc.Column("used", 1.6, True),
        doc.Column("limit", 1, True),
        doc.Column("share", 0.7, True),
    )
    return doc.Heading("Budget"), doc.Table(columns, tuple(rows))
