"""The report of one run: its answer and one chart, what it learnt and was made of, and how each number is known."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import NamedTuple

from greenlove_tracker.logs.run import GOOD_ENDINGS, SIMULATED_METERS, Run
from greenlove_tracker.logs.run_fields import names_by
from greenlove_tracker.logs.run_rows import kgco2e_by
from greenlove_tracker.logs.totals import LEAST_METERED_S
from greenlove_tracker.logs.uncertainty import run_interval
from greenlove_tracker.rendering import terminal
from greenlove_tracker.rendering.axes import thinned
from greenlove_tracker.rendering.document import (
    BlockIterator,
    Blocks,
    ChartRow,
    Column,
    Document,
    Heading,
    KeyFigure,
    KeyFigures,
    Line,
    LineChart,
    Note,
    Paragraph,
    Point,
    ShadedSpan,
    Table,
    Texts,
    columns,
)
from greenlove_tracker.report import wording
from greenlove_tracker.report.checkpoint_report import checkpoint_blocks, checkpoints_sentence
from greenlove_tracker.report.forecast_report import (
    forecast_blocks,
    issued_after,
    outcome_sentence,
    time_limit_sentence,
)
from greenlove_tracker.report.method import method_blocks
from greenlove_tracker.report.metric_report import final_value, learning_blocks, metric_blocks, number_text
from greenlove_tracker.report.spans import span_blocks
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.records import Row, RunStatus, sum_energies, sum_known
from greenlove_tracker.vocabulary.units import w_from_kwh_s

_ELSEWHERE = "greenlove project compares this training with rented machines."
_ALIKE = 1.1  # epochs that differ by no more than this are given as "n × duration"
_MOST_METRICS = 3
_MOST_BANDS = 60  # epochs that can be told apart in a chart
_MOST_RANKS = 16
_SPOKEN_OF = 0.02  # behind the median rank: a straggler by less is noise


def run_document(run: Run) -> Document:
    """Return the report of one run that can be read; that of an exploration or a comparison begins with its result."""
    figures, *notes = _figures_and_notes(run, _said_of(run))
    title = run_title(run)
    verdict = _verdict(run)
    parts: Blocks
    if run.is_exploration:
        title = f"{'Comparison' if run.is_comparison else 'Exploration'} of {title}"
        verdict, parts = _explored(run, [figures, *notes])
    else:
        parts = [
            figures,
            *power_chart(run),
            *notes,
            *forecast_blocks(run),
            *learning_blocks(run),
            *metric_blocks(run),
            *checkpoint_blocks(run),
            *span_blocks(run),
            *rank_blocks(run),
        ]
    blocks = [*parts, *_settings_blocks(run), *method_blocks(run), Note(" ".join(run_scope(run)))]
    if not run.is_exploration:
        blocks.append(Note(_ELSEWHERE))
    footer = ("greenlove_tracker", wording.field_text(run, "greenlove_version", 20), "·", run.run_id)
    return Document(
        title=title,
        subtitle=_subtitle(run),
        verdict=verdict,
        stamp=wording.stamp(int(run.is_simulated), 1),
        footer=" ".join(filter(None, footer)),
        blocks=blocks,
    )


def _explored(run: Run, own: Blocks) -> tuple[str, Blocks]:
    """Return the verdict and the result of an exploration or a comparison, and what it took itself."""
    # Not with the module: both load statsmodels, which takes over a second, and a training's page needs neither.
    if run.is_comparison:
        from greenlove_tracker.report.comparison import compared_blocks

        verdict, blocks = compared_blocks(run)
        return verdict, [*blocks, Heading("What the comparison itself took"), *own]
    from greenlove_tracker.report.exploration_report import explored_blocks
    from greenlove_tracker.report.projection_report import elsewhere_blocks

    verdict, blocks = explored_blocks(run)
    return verdict, [*blocks, Heading("What the exploration itself took"), *own, *elsewhere_blocks(run)]


def end_screen(
    run: Run, *, exit_code: int | None, wrote: Sequence[str] = (), next_command: str = "", is_verbose: bool = False
) -> str:
    """Return the screen that a tracked run ends with.

    Args:
        run: the run, from its directory.
        exit_code: of the script; None where there is none.
        wrote: the paths written, never shortened.
        next_command: what to type next.
        is_verbose: say what the CO2e is as much as, too.
    """
    ending = f"{fmt.shortened(run.summary.status, 16)} · {wording.progress(run)}"
    if exit_code:
        ending += f" · exit {exit_code}"
    room = terminal.columns() - len(ending) - len("greenlove   · ")
    texts = [wording.loops_sentence(run), *_said_of(run), checkpoints_sentence(run)]
    if is_verbose and run.emissions_kgco2e:
        texts.append(wording.as_much_as(run.emissions_kgco2e))
    blocks = [*_figures_and_notes(run, texts, is_end=True)]
    lines = [terminal.render(Document(f"greenlove  {run.title(room)} · {ending}", blocks=blocks))]
    if wrote or next_command:
        lines.append("")
    lines += [f"{terminal.MARGIN}wrote {path}" for path in wrote]
    if next_command:
        lines.append(f"{terminal.MARGIN}next  {next_command}")
    return "\n".join(lines)


def _figures_and_notes(run: Run, texts: Iterable[str], *, is_end: bool = False) -> BlockIterator:
    """Yield the key figures, what is said beside them, and what spoils them."""
    yield KeyFigures(key_figures(run))
    yield from (Paragraph(wording.sentence(text)) for text in texts if text)
    if is_end or not run.summary.measured_share:  # else the badges say it
        yield Paragraph(wording.sentence(wording.measured_sentence(run)))
    yield from (Paragraph(f"! {text}") for text in wording.warnings(run))


# -- Its head --


def run_title(run: Run) -> str:
    """Return what people call a run: its project and its script; its id where it has neither."""
    names = dict.fromkeys((wording.field_text(run, "project", 60), _script(run)))
    return ": ".join(filter(None, names)) or run.run_id


def _script(run: Run) -> str:
    """Return the name of the script that ran, else of the program; empty of a verb of this package."""
    names = [PurePath(word).name for word in run.text("command").split()]
    scripts = [name for name in names if name.endswith(".py") and name != "__main__.py"]
    scripts += [name for name in names[:1] if name not in ("__main__.py", "greenlove") and not name.startswith("-")]
    return fmt.shortened(next(iter(scripts), ""), 60)


def _verdict(run: Run) -> str:
    """Return what a run took, how sure that is, and whether it ended as planned."""
    summary = run.summary
    verb = "took"
    if summary.status == RunStatus.RUNNING:
        verb = "has taken"
    known = replace(summary, emissions_kgco2e=run.emissions_kgco2e)
    took = wording.took(known, wording.energy_mark(run))
    verdict = f"This training {verb} {took}."
    if run.text("meter") in SIMULATED_METERS:
        verdict += " That is simulated: no machine drew it."
    if summary.status not in (*GOOD_ENDINGS, RunStatus.RUNNING):
        verdict += f" It did not finish: {wording.why_incomplete(summary)}, {wording.progress(run)}."
    return verdict


def _subtitle(run: Run) -> str:
    summary = run.summary
    parts = [fmt.shortened(summary.status, 20)]
    if summary.exit_code:
        parts.append(f"exit {summary.exit_code}")
    if not run.is_exploration:
        parts.append(wording.progress(run))
    if summary.started_at:
        zone = " UTC" if summary.started_at.endswith("Z") else ""  # other tools' logs tell none
        parts.append(f"started {_minute(summary.started_at)}{zone}")
    return " · ".join(filter(None, (*parts, wording.field_text(run, "host", 30), run.run_id)))


def _minute(timestamp: str) -> str:
    """Write a time of a log, which may hold any text, to the minute."""
    return fmt.shortened(timestamp, 30)[:16].replace("T", " ")


def run_scope(run: Run) -> Iterator[str]:
    """Yield period, place and scope of a run, and its market-based emissions."""
    period = filter(None, (_minute(run.started_at), _minute(run.summary.ended_at)))
    if run.started_at:
        yield f"Period: {' to '.join(period)} UTC."
    yield f"Place: {wording.field_text(run, 'country', 40) or 'not given'}."
    coverage = run.carbon_intensity.coverage
    yield wording.scope_sentence(is_rented=run.text("is_rented") == "yes", coverage=coverage)
    emissions = run.emissions_kgco2e
    yield f"CO2e is location-based: {fmt.mass(emissions)}."
    if emissions:
        yield wording.sentence(f"that is {wording.as_much_as(emissions, has_sources=True)}")
    contract = run.market_intensity
    market_kg = kgco2e_by(contract, run.summary.energy_kwh)
    if market_kg is None or contract is None:
        yield "Market-based: no contract was given."
    else:
        yield f"Market-based: {fmt.mass(market_kg)} ({fmt.shortened(contract.source, 60)})."


def _said_of(run: Run) -> Texts:
    """Return what a run came to beside its figures; of what is not known, nothing."""
    return (
        _learnt_sentence(run),
        wording.early_stop_sentence(run),
        outcome_sentence(run),
        time_limit_sentence(run),
        wording.wait_sentence(run),
        wording.kind_sentence(run),
        wording.place_sentence(run),
        wording.nodes_sentence(run),
    )


def _learnt_sentence(run: Run) -> str:
    """Return the first metrics of a run, at its best epoch where early stopping went back to that; empty of none."""
    metrics = run.summary.metrics[:_MOST_METRICS]
    learnt = ", ".join(f"{fmt.shortened(m.name, 30)} {number_text(final_value(run, m.name))}" for m in metrics)
    if not learnt:
        return ""
    best = run.amount("best_epoch")
    if run.stopped_early_after is not None and best is not None:
        return f"with the weights of its best epoch, {best:,.0f}: {learnt}"
    return f"at its last epoch: {learnt}"


# -- Its figures --


def key_figures(run: Run) -> tuple[KeyFigure, ...]:
    """Return time, energy, CO2e and cost of a run; a tilde stands before what no hardware measured."""
    summary = run.summary
    tilde = wording.energy_mark(run)
    badge = wording.badge(summary.measured_share)
    if run.calibration:
        badge = "calibrated"
    elif run.text("meter") in SIMULATED_METERS:
        badge = "simulated"
    emissions = run.emissions_kgco2e
    why = "the energy is unknown"
    if not run.knows_carbon_intensity:
        why = "no carbon intensity in the log"
    epochs = _epochs_text(run)
    energy, mass, cost = (run_interval(run, quantity) for quantity in ("energy_kwh", "emissions_kgco2e", "cost_usd"))
    return (
        wording.tile("duration_s", summary.duration_s or None, None, epochs, epochs),
        wording.tile("energy_kwh", summary.energy_kwh, energy, badge, wording.why_no_energy(run), tilde),
        wording.tile("emissions_kgco2e", emissions, mass, badge, why, tilde),
        wording.tile("cost_usd", summary.cost_usd, cost, summary.cost_basis, wording.why_no_cost(run)),
    )


def _epochs_text(run: Run) -> str:
    """Write the epochs of a run: ``48 × 29 min 10 s``."""
    durations_s = [epoch.duration_s for epoch in run.epochs if epoch.is_complete]
    if not durations_s or run.is_exploration:
        return "" if run.summary.duration_s else "nothing was recorded"
    if max(durations_s) <= _ALIKE * min(durations_s):
        return f"{len(durations_s):,} × {fmt.duration(statistics.fmean(durations_s))}"
    span = f"{fmt.duration(min(durations_s))} to {fmt.duration(max(durations_s))}"
    return f"{fmt.plural(len(durations_s), 'epoch')} of {span}"


# -- Its power --


def power_chart(run: Run) -> BlockIterator:
    """Yield the power over time with epochs as bands."""
    powers = list[Point]()
    elapsed_s = 0.0
    begins_s = dict[int, float]()  # of epochs
    ends_s = {}
    for row in run.metered_rows:
        begin_s = elapsed_s
        elapsed_s = elapsed_s + row.gap_before_s + row.duration_s
        if row.epoch is not None:
            begins_s.setdefault(row.epoch, begin_s + row.gap_before_s)
            ends_s[row.epoch] = elapsed_s
        if elapsed_s > begin_s:
            powers += _metered_stretch(row, begin_s)
    if len(powers) < 4:
        return
    time = fmt.time_scale(elapsed_s)
    power = fmt.power_scale(max(w for _, w in powers))
    title = "Power, before PUE"
    spans = []
    if 1 < len(ends_s) <= _MOST_BANDS:
        title += f"; every other one of {len(ends_s)} epochs is shaded"
        shaded = list(zip(begins_s.values(), ends_s.values(), strict=True))[::2]
        spans = [ShadedSpan(time.value(begin_s), time.value(end_s)) for begin_s, end_s in shaded]
    points = thinned([(time.value(s), power.value(w)) for s, w in powers])
    x_label = f"time since the start, {time.unit}"
    yield ChartRow([LineChart(title, x_label, power.unit, [Line("", points)], spans=spans)])
    if run.summary.n_nodes > 1:
        yield Note(f"The chart shows the first of {run.summary.n_nodes} nodes.")
    if run.calibration:
        yield Note("Power is as metered, before calibration.")


def power_now(run: Run) -> str:
    """Write the mean power of all nodes over their latest rows with a meter, before PUE."""
    power_w = sum_known(map(_latest_power_w, run.timed_streams))
    return fmt.UNKNOWN if power_w is None else f"{wording.energy_mark(run)}{fmt.power(power_w)}"


def _latest_power_w(rows: Sequence[Row]) -> float | None:
    return next((power_w for row in reversed(rows) for _, power_w in _metered_stretch(row, 0.0)), None)


def _metered_stretch(row: Row, begin_s: float) -> Iterator[Point]:
    """Yield the power of what was metered of a row and its gap, at its begin and its end; nothing where none was."""
    to_s = begin_s + row.gap_before_s
    from_s = begin_s if row.gap_before.is_known else to_s
    if row.energy.is_known:
        to_s += row.duration_s
    metered_kwh = sum_energies((row.gap_before, row.energy)).total_kwh
    if metered_kwh is None or (metered_kwh == 0 and to_s - from_s < LEAST_METERED_S):  # it is uncounted
        return
    power_w = w_from_kwh_s(metered_kwh, to_s - from_s)
    if power_w is not None:
        yield from_s, power_w
        yield to_s, power_w


# -- As long as it goes on --


def live_blocks(run: Run) -> Blocks:
    """Return what a run draws now, what it used so far, and what it is expected to have used at its end."""
    factor = run.carbon_intensity
    intensity = fmt.UNKNOWN
    if run.knows_carbon_intensity:
        intensity = f"{fmt.significant(factor.value)} g/kWh"
    source = factor.source
    for row in run.metered_rows:
        if row.carbon_intensity_gco2e_per_kwh is not None:  # the latest stays
            intensity = f"{fmt.significant(row.carbon_intensity_gco2e_per_kwh)} g/kWh"
            source = row.carbon_intensity_source
    now = (
        KeyFigure("power now", power_now(run), "mean of its latest row"),
        KeyFigure("carbon intensity now", intensity, fmt.shortened(source.partition(" (")[0], 60)),
    )
    title = Heading(wording.run_label(run.run_id, run.label))
    blocks: Blocks = [title, KeyFigures(now), Paragraph("So far:"), KeyFigures(key_figures(run))]
    if run.forecasts:
        latest = run.forecasts[-1]
        tiles = [wording.forecast_tile(quantity, total, "") for quantity, total in latest.estimates.items()]
        blocks += [Paragraph(f"Forecast of the whole run, {issued_after(latest)}:"), KeyFigures(tiles)]
    return [*blocks, *power_chart(run)]


# -- Its settings --


def _settings_blocks(run: Run) -> BlockIterator:
    yield Heading("Settings and hardware")
    rows = []
    for label, names in names_by("setting").items():
        text = " · ".join(filter(None, (wording.field_text(run, name) for name in names)))
        if text:
            rows.append((label, text))
    if not run.text("country"):
        rows.append(("place", "not set"))
    yield Table((Column(""), Column("", 3.6)), rows)


# -- Its ranks --


class RankTimes(NamedTuple):
    """A rank, the number of epochs that it finished, and the mean time of those that all ranks finished."""

    rank: int
    n_epochs: int
    mean_s: float


def rank_times(run: Run) -> list[RankTimes]:
    """Return the times of each rank that finished an epoch, by number; none where there are fewer than two."""
    finished = {}
    for stream in run.rows:
        rank = run.joined.get(stream, stream)
        durations_s = {epoch.epoch: epoch.duration_s for epoch in run.epochs_of(stream) if epoch.is_complete}
        if durations_s and rank in finished:
            return []  # a command that trained several times: its streams are no ranks of one training
        if durations_s:
            finished[rank] = durations_s
    if len(finished) < 2:
        return []
    common = set.intersection(*map(set, finished.values()))
    return [
        RankTimes(rank, len(durations_s), statistics.fmean(durations_s[epoch] for epoch in common or durations_s))
        for rank, durations_s in sorted(finished.items())
    ]


def behind(times: Sequence[RankTimes]) -> tuple[RankTimes, float]:
    """Return the slowest rank, and by how much more than the median rank it takes, as a share."""
    slowest = max(times, key=lambda of_rank: of_rank.mean_s)
    median_s = statistics.median(of_rank.mean_s for of_rank in times)
    if not median_s:
        return slowest, 0.0
    return slowest, slowest.mean_s / median_s - 1.0


def ranks_sentence(run: Run) -> str:
    """Say which rank is behind, and how far; empty where none is by more than noise, or there is one rank."""
    times = rank_times(run)
    if not times:
        return ""
    slowest, share = behind(times)
    if share < _SPOKEN_OF:
        return ""
    more = f"{fmt.percent(share)} more than the median rank"
    return f"rank {slowest.rank} is behind: {fmt.duration(slowest.mean_s)} an epoch, {more}"


def rank_blocks(run: Run) -> BlockIterator:
    """Yield the mean epoch of each rank the slowest first; nothing of a run with one rank."""
    times = sorted(rank_times(run), key=lambda of_rank: -of_rank.mean_s)
    if not times:
        return
    rows = [(f"rank {of.rank}", f"{of.n_epochs:,}", fmt.duration(of.mean_s)) for of in times[:_MOST_RANKS]]
    said = ranks_sentence(run) or f"no rank is behind: all are within {fmt.percent(behind(times)[1], 1)} of the median"
    title = "the slowest first" if len(times) > _MOST_RANKS else "rank"
    yield Heading("Ranks")
    yield Paragraph(wording.sentence(said))
    yield Table(columns({title: 2}, ("epochs", "mean epoch")), rows)
