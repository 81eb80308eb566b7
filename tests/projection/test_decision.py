from __future__ import annotations

import re
from dataclasses import replace

import pytest
from projection_samples import forecast, projected

from greenlove_tracker import format as fmt
from greenlove_tracker.projection.decision import Work, decide
from greenlove_tracker.projection.ranking import JointDraws
from greenlove_tracker.projection.types import ProjectionOptions

CARD_USD = 1_800.0
OFFERS = """provider,gpu,access,price,unit,gpus_per_instance,regions,country,date_read
acme,L40S,on demand,1.50,USD/GPU-hour,1,,DE,2026-11-01
acme,A100 PCIe 80GB,on demand,0.1,USD/GPU-hour,8,,DE,2026-11-01
acme,H100 SXM5 80GB,reserved,0.1,USD/GPU-hour,8,,DE,2026-11-01
"""


def reason(start: str, rows, **options) -> str:
    """The one reason of the decision that holds these words."""
    (found,) = (text for text in decide(rows, ProjectionOptions(**options)).reasons if start in text)
    return found


def break_even_h(text: str) -> float:
    return float(re.search(r"after ([\d,]+) h of training here", text)[1].replace(",", ""))


def bought(**options) -> str:
    rows = projected(forecast(half_width=0.0), gpus=["L40S"], custom_speedup=1.0, **options)
    return reason("uying the card", rows, card_price_usd=CARD_USD)


def test_a_card_is_paid_off_by_the_rent_less_its_electricity():
    """At equal speed an hour of the L40S costs $1.50; 455 W here cost 0.455 × $0.419 an hour in Germany."""
    text = bought()
    assert break_even_h(text) == pytest.approx(CARD_USD / (1.50 - 0.455 * 0.419), rel=0.01)
    assert text.startswith("Buying the card") and "ithout electricity" not in text


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"country": None}, "whose price here is not known"),
        ({"price_usd_per_gpu_hour": 9.0}, "which is in the price of the machine here"),
    ],
)
def test_an_electricity_that_is_not_known_is_not_free(options, why: str):
    text = bought(**options)
    assert text.startswith(f"Without electricity, {why}, buying the card") and text.endswith("; with it, after more.")
    assert break_even_h(text) == pytest.approx(CARD_USD / 1.50, rel=0.01)


def test_a_card_is_not_compared_where_no_gpu_is_known_here():
    text = reason("Buying a card", projected(forecast(), local_gpu=None), card_price_usd=CARD_USD)
    assert text == "Buying a card is not compared: which GPU is here is not known."


def test_the_price_of_electricity_that_the_user_gives_is_counted():
    assert break_even_h(bought(country=None, electricity_price=1.0)) == pytest.approx(
        CARD_USD / (1.50 - 0.455), rel=0.01
    )
    assert "never pays" in bought(electricity_price=9.0)


# -- minimum terms --


@pytest.fixture
def offered(tmp_path):
    """An L40S now; dearer in no way but its minimum term: eight A100 as a whole machine, eight H100 reserved."""
    prices = tmp_path / "acme.csv"
    prices.write_text(OFFERS)
    speedups = {"L40S": 2.0, "A100 PCIe 80GB": 3.0, "H100 SXM5 80GB": 9.0}
    return lambda: projected(forecast(), provider="acme", prices=prices, custom_speedup=speedups)


def recommended(rows, **options):
    decision = decide(rows, ProjectionOptions(**options))
    row = decision.recommended
    return (row.name, row.obtained, row.billed_gpus), " ".join((decision.sentence, *decision.reasons))


def test_what_has_a_minimum_term_is_recommended_only_where_nothing_else_will_do(offered):
    rows = offered()
    now, whole, reserved = (
        ("L40S", "on demand", 1),
        ("A100 PCIe 80GB", "on demand", 8),
        ("H100 SXM5 80GB", "reserved", 8),
    )
    assert [row.is_for_rent_now for row in rows[1:]] == [row.name == "L40S" for row in rows[1:]]
    assert recommended(rows)[0] == now
    assert recommended(rows, within_s=11 * 3600)[0] == now
    for rest, hours, expected in ((rows, 2, whole), (rows, 0.5, reserved)):
        assert recommended(rest, within_s=hours * 3600)[0] == expected
    without_now = [row for row in rows if row.name != "L40S"]
    assert recommended(without_now)[0] == whole
    assert recommended([row for row in without_now if row.name != whole[0]])[0] == reserved


def test_a_minimum_term_and_a_code_for_several_gpus_are_said(offered):
    rows = offered()
    _, now = recommended(rows)
    assert "minimum term" not in now and "whole machine" not in now and "at once" not in now
    _, whole = recommended(rows, within_s=2 * 3600)
    assert "as a whole machine alone: all 8 GPUs are paid for, and used." in whole
    _, reserved = recommended(rows, within_s=1800)
    assert reserved.startswith("Reserve 8 × H100 SXM5 80GB") and "the minimum term of 7 d is an assumption" in reserved
    assert all("The code must train on 8 GPUs at once." in text for text in (whole, reserved))
    many = [replace(row, n_gpus=8) if row.is_local else row for row in rows]
    assert "at once" not in recommended(many, within_s=1800)[1]


# -- what a part of the work costs --


@pytest.mark.parametrize(
    ("count", "part", "name"), [(50_000_000, 1e6, "A million"), (50_000, 1e3, "A thousand"), (999, None, "")]
)
def test_a_part_of_the_work_has_its_share_of_cost_and_co2e(count: int, part: float | None, name: str):
    decision = decide(projected(), work=Work(count, "token"))
    said = [text for text in decision.reasons if "tokens" in text]
    if part is None:
        assert said == []
        return
    row = decision.recommended
    cost, co2e = fmt.money(row.cost_usd.point * part / count), fmt.mass(row.emissions_kgco2e.point * part / count)
    (text,) = said
    assert text.startswith(f"{name} tokens cost {cost} [") and f" and emit {co2e} [" in text


def test_a_part_of_a_training_here_costs_electricity_and_emits_where_that_has_no_price():
    def said(**options):
        rows = [row for row in projected(forecast(half_width=0.0), **options) if row.is_local]
        return next(text for text in decide(rows, work=Work(9_100, "step")).reasons if "steps" in text)

    assert said() == "A thousand steps cost $0.42 of electricity and emit 381 g CO2e."  # 1 kWh in Germany
    assert said(country=None, carbon_intensity=500.0) == "A thousand steps emit 500 g CO2e."


def test_a_gpu_of_amd_says_what_its_stack_needs(tmp_path):
    prices = tmp_path / "acme.csv"
    header = "provider,gpu,price,unit,gpus_per_instance,country,date_read\n"
    prices.write_text(header + "acme,Instinct MI300X,0.5,USD/GPU-hour,1,FR,2026-11-01\n")
    how = {"provider": "acme", "prices": prices, "include_all": True}
    chosen, text = recommended(projected(forecast(), **how))
    assert chosen[0] == "Instinct MI300X" and "AMD's GPUs need PyTorch's ROCm build" in text
    from_amd = projected(forecast(), **how, local_gpu="Instinct MI210")
    assert "ROCm" not in recommended(from_amd)[1]


def test_a_faster_gpu_is_not_left_for_a_slower_one_that_costs_more():
    decision = decide(projected(local_gpu="H100 SXM5 80GB"))
    assert decision.sentence.startswith("Train here on your H100 SXM5 80GB: 20 h [19 h 30 min – 20 h 30 min], $3.")
    assert decision.reasons[0].startswith(
        "None of those to rent now is likely to save money, or 10 min. The cheapest is 1 × A100"
    )
    assert decision.recommended.is_local and not decision.alternatives and decision.trial is None
    assert not decide(projected(local_gpu="T4")).recommended.is_local


def test_a_trial_is_advised_only_where_something_is_left_to_settle():
    open_between_two = decide(projected(local_gpu="GeForce RTX 3090"))
    assert {c.machine.name for c in open_between_two.alternatives} == {"L40S"} and open_between_two.trial is not None
    settled = decide(projected(custom_speedup={"L40S": 5.0}, gpus=["L40S"]))
    assert settled.recommended.name == "L40S" and settled.probability >= 0.9 and settled.trial is None


def test_within_limits_the_cheapest_to_rent_stands_beside_the_gpu_here():
    decision = decide(projected(), ProjectionOptions(within_s=48 * 3600, max_cost_usd=200))
    assert decision.recommended.is_local and "over 99% likely" in decision.sentence
    assert decision.reasons[0].startswith("The cheapest to rent within 2 d for at most $200.00 is 1 × A100 PCIe")


def test_an_offer_of_another_provider_and_a_spot_one_are_called_so(tmp_path):
    """Three offers of one GPU: without provider and access nobody knows which of them to rent."""
    path = tmp_path / "prices.csv"
    path.write_text(
        "provider,gpu,access,price,unit,country,date_read\n"
        "acme,L40S,on demand,1.20,USD/GPU-hour,DE,2026-11-01\n"
        "acme,L40S,spot,0.50,USD/GPU-hour,DE,2026-11-01\n"
    )
    rows = projected(forecast(), gpus=["L40S"], custom_speedup=1.5, prices=path)
    made = decide(rows, ProjectionOptions())
    assert made.sentence.startswith("Rent 1 × L40S (acme): ")
    assert made.reasons[-1].startswith("A spot offer is cheaper: 1 × L40S (acme, spot): ")
    assert "may be taken away" in made.reasons[-1]
    assert "spot" not in " ".join(decide([row for row in rows if row.obtained != "spot"]).reasons)
    alone = decide([row for row in rows if row.obtained in ("here", "spot")])  # of nothing else: it is asked for
    assert alone.sentence.startswith("Rent 1 × L40S (acme, spot): ")
    assert any(text.startswith("It is a spot offer, which may be taken away") for text in alone.reasons)


def test_a_spot_offer_is_named_where_it_alone_keeps_the_limits(spot_beside):
    cost = next(row for row in spot_beside if row.obtained == "spot").cost_usd.point
    made = decide(spot_beside, ProjectionOptions(max_cost_usd=1.5 * cost))
    assert made.recommended is None
    assert made.reasons[-1].startswith("Only a spot offer does: 1 × L40S (acme, spot): ")
    assert not any("spot offer" in text for text in decide(spot_beside, ProjectionOptions(max_cost_usd=0.01)).reasons)


@pytest.fixture
def spot_beside(tmp_path):
    """An L40S on demand, the same as a spot offer, and electricity here that costs more than both."""
    path = tmp_path / "prices.csv"
    path.write_text(
        "provider,gpu,access,price,unit,country,date_read\n"
        "acme,L40S,on demand,1.20,USD/GPU-hour,DE,2026-11-01\n"
        "acme,L40S,spot,0.50,USD/GPU-hour,DE,2026-11-01\n"
    )
    return projected(forecast(), provider="acme", prices=path, custom_speedup=1.5, electricity_price=9.0)


# -- limits, and the minimum term of a reservation --

HOURS_WITHIN = 12


@pytest.fixture(scope="module")
def slow_here():
    """20 h here; within 12 h, what is for rent may do, and what can only be reserved does."""
    return projected(forecast(half_width=0.0), local_gpu="GeForce RTX 3090")


def within(rows, hours=HOURS_WITHIN, usd=60.0):
    return decide(rows, ProjectionOptions(within_s=hours * 3600, max_cost_usd=usd))


def test_a_reservation_does_not_keep_a_cost_that_its_minimum_term_exceeds(slow_here):
    made = within(slow_here)
    assert (made.recommended.name, made.recommended.obtained) == ("A100 PCIe 80GB", "on demand")
    assert 0.5 < made.meets < 0.9
    chance = fmt.chance(made.meets)
    start = f"Nothing compared is 90% sure to finish within 12 h for at most $60.00. The best chance ({chance})"
    assert made.sentence.startswith(f"{start}: rent 1 × A100 PCIe 80GB at Crusoe Cloud: $")
    (reserved,) = (text for text in made.reasons if "H200" in text)
    assert reserved.endswith("can only be reserved, and a minimum term of 7 d (assumed) alone costs more.")
    assert all(chance.machine.obtained != "reserved" for chance in made.alternatives)


def test_the_minimum_term_costs_the_price_of_all_gpus_for_its_days(slow_here):
    h200 = next(row for row in slow_here if row.name == "H200 SXM")
    assert h200.minimum_term_usd == pytest.approx(4.29 * 8 * 24 * 7)
    assert all(row.minimum_term_usd is None for row in slow_here if row.obtained != "reserved")
    dear = within(slow_here, hours=2, usd=h200.minimum_term_usd + 1)
    assert dear.recommended.obtained == "reserved" and dear.sentence.startswith("Reserve 8 × ")
    nothing = within(slow_here, hours=2)
    assert nothing.recommended is None
    in_time, for_cost = nothing.reasons
    assert in_time.startswith("Within 2 h alone: reserve 8 × ") and "for a minimum term of 7 d" in in_time
    assert for_cost.startswith("For at most $60.00 alone: train here on your RTX 3090: 20 h")


def test_what_a_reservation_costs_is_its_minimum_term(slow_here):
    made = within(slow_here, hours=2, usd=None)
    best, term_usd = made.recommended, made.recommended.minimum_term_usd
    reserved = [row for row in slow_here if row.is_compared and row.obtained == "reserved"]
    assert term_usd == min(row.minimum_term_usd for row in reserved if row.duration_s.upper < 2 * 3600)
    assert (best.payable_usd.point, best.payable_usd.lower) == (term_usd, term_usd) and best.cost_usd.point < term_usd
    assert f"at least {fmt.money(term_usd)} for a minimum term of 7 d" in made.sentence
    assert any("The training itself uses $" in text for text in made.reasons)


def test_without_a_limit_of_cost_a_reservation_is_named_behind_a_likely_offer_for_rent(slow_here):
    made = within(slow_here, usd=None)
    assert made.recommended.name == "A100 PCIe 80GB"
    assert made.reasons[0].startswith("Surer, but with a minimum term to pay: 8 × H200 SXM (over 99%) or ")
    assert within(slow_here, hours=2, usd=None).recommended.obtained == "reserved"  # nothing for rent is likely to


def test_a_given_time_here_is_said_as_it_is(slow_here):
    assert "The RTX 3090 here: takes 20 h." in within(slow_here).reasons
    measured = projected(forecast(half_width=0.03), local_gpu="GeForce RTX 3090")
    assert any(
        "here: over 99% likely to take over 12 h (10% is accepted)." in text for text in within(measured).reasons
    )


def test_what_is_open_has_no_clear_winner(slow_here):
    assert any(text.startswith("No clear winner: the cheapest to rent now is ") for text in decide(slow_here).reasons)
    assert within(slow_here, hours=40, usd=200.0).recommended is not None


@pytest.mark.parametrize(("seconds", "is_short"), [(599.0, True), (601.0, False)])
def test_a_training_of_seconds_is_not_worth_moving(seconds: float, is_short: bool):
    rows = projected(forecast(hours=seconds / 3600, kwh=0.005, half_width=0.0), local_gpu="T4")
    made = decide(rows)
    assert made.recommended.is_local
    if not is_short:
        assert "None of those to rent now is likely to save money, or 10 min." in made.reasons[0]
    else:
        assert (made.sentence, made.reasons) == ("Train here: 9 min 59 s is too short to be worth moving.", ())
        late = decide(rows, ProjectionOptions(within_s=30.0))
        assert (late.meets, late.reasons) == (0.0, ("The T4 here: takes 9 min 59 s.",))


def test_a_machine_here_that_keeps_the_time_is_named_where_its_cost_is_not_known():
    rows = projected(forecast(half_width=0.0), country=None)
    made = decide(rows, ProjectionOptions(within_s=2 * rows[0].duration_s.point))
    assert made.recommended.is_local and made.sentence == "Train here on your RTX 4090: 20 h, within 1 d 16 h."
    assert "of electricity cost less than 1 × A100 PCIe 80GB: $31.38" in made.reasons[0]
    assert "unless a kWh costs over $3.45." in made.reasons[0]
    late = decide(rows, ProjectionOptions(within_s=rows[0].duration_s.point / 2))
    assert not any(text.startswith("Train here") for text in late.reasons)


def test_where_nothing_is_cheap_enough_it_is_said_whose_cost_nobody_knows():
    rows = projected(forecast(half_width=0.0), country=None)
    made = decide(rows, ProjectionOptions(max_cost_usd=0.01))
    assert made.recommended is None and made.sentence == "Nothing compared finishes for at most $0.010."
    assert made.reasons[0] == "RTX 4090: its cost is not known."


def test_why_a_machine_for_rent_is_not_chosen_is_said_before_reservations(tmp_path):
    path = tmp_path / "prices.csv"
    kept = ["H100 SXM5 80GB", "H200 SXM", "A100 SXM4 80GB", "A100 PCIe 80GB", "A40"]  # each with a reason of its own
    reserved = "".join(f"acme,{gpu},reserved,{5 + n},USD/GPU-hour,DE,2026-11-01\n" for n, gpu in enumerate(kept))
    path.write_text(
        "provider,gpu,access,price,unit,country,date_read\n"
        f"{reserved}acme,L40S,on demand,1.5,USD/GPU-hour,DE,2026-11-01\n"
        "acme,L4,on demand,8,USD/GPU-hour,DE,2026-11-01\n"
    )
    wide = {gpu: (1.0 + n / 20, 0.5, 2.0) for n, gpu in enumerate(kept)}
    custom = {"L4": (1.0, 0.9, 1.1), "L40S": 1.0, **wide}
    rows = projected(forecast(half_width=0.0), provider="acme", prices=path, custom_speedup=custom)
    hours = rows[0].duration_s.point / 3600
    made = decide(rows, ProjectionOptions(max_cost_usd=7.5 * hours))
    assert any(text.startswith("1 × L4 (acme)") for text in made.reasons)


# -- what is left out of the choice --


def test_a_card_that_cannot_hold_the_training_is_no_choice():
    rows = projected(local_gpu="GeForce RTX 4090", peak_memory_gb=60.0)
    made = decide(rows)
    assert made.recommended.is_rented and "or train here" not in made.sentence
    assert made.reasons[0] == "The RTX 4090 here (24 GB) cannot hold the training's peak memory."
    assert decide(projected(local_gpu="GeForce RTX 4090", peak_memory_gb=20.0)).reasons[0] != made.reasons[0]


def test_the_card_at_hand_is_not_rented_again(tmp_path):
    prices = tmp_path / "prices.csv"
    prices.write_text("gpu,price,unit,date_read\nRTX 4090,0.40,USD/GPU-hour,2026-11-01\n")
    rows = projected(local_gpu="GeForce RTX 4090", prices=prices, provider="prices", gpus=["RTX 4090"])
    assert decide(rows).recommended.is_local


def test_a_wide_forecast_is_to_be_narrowed_first():
    wide = decide(projected(forecast(half_width=1.2)))
    assert wide.reasons[0].startswith("First narrow the forecast: the time here may be off by ±100%.")
    assert not decide(projected(forecast(half_width=0.3))).reasons[0].startswith("First narrow")


def test_the_rented_one_that_is_named_beside_here_is_the_cheapest_of_them():
    """Here is cheaper than each in all draws, which leaves none a share of the first place."""
    rows = projected()
    made = decide(rows, ProjectionOptions(within_s=30 * 3600.0))
    assert made.recommended.is_local
    (named,) = (text for text in made.reasons if text.startswith("The cheapest to rent within"))
    drawn = JointDraws(rows)
    first = drawn.best([row for row in rows if row.is_for_rent_now], "cost")[0].machine
    assert first.name in named
