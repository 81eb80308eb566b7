from __future__ import annotations

from dataclasses import replace

import pytest

from greenlove_tracker.projection.listings import billed, offers_of, targets_of
from greenlove_tracker.tables.offers import bundled_offers, read_offers
from greenlove_tracker.vocabulary.errors import UsageError

OURS = "provider,gpu,access,price,unit,gpus_per_instance,country,date_read\n"


@pytest.fixture
def file(tmp_path):
    def write(text: str, name: str = "prices.csv"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def names(found) -> list[str]:
    return [listing.gpu.name for listing in targets_of(found, 1)]


@pytest.mark.parametrize(
    ("sizes", "wanted", "paid"),
    [((8,), 1, 8), ((1, 2, 4, 8), 1, 1), ((1, 2, 4, 8), 3, 4), ((8,), 9, 16), ((1, 4), 6, 8), ((1,), 5, 5)],
)
def test_what_is_billed(sizes, wanted, paid):
    assert billed(sizes, wanted) == paid


def test_a_file_in_our_columns(file):
    path = file(
        OURS
        + "Acme,NVIDIA L40S,on demand,1.20,USD/GPU-hour,1;2,DE,2026-11-01\n"
        + "Acme,H100 SXM,reserved,24.00,USD/instance-hour,8,DE,2026-11-01\n"
        + "Acme,B200,,,USD/GPU-hour,8,DE,2026-11-01\n"
    )
    l40s, h100, b200 = read_offers(path)
    assert (l40s.provider, l40s.usd_per_gpu_hour, l40s.gpus_per_instance) == ("acme", 1.20, (1, 2))
    assert h100.usd_per_gpu_hour == 3.0  # 24 / 8
    assert (b200.usd_per_gpu_hour, b200.status) == (None, "contact sales")
    assert l40s.price_date == "2026-11-01"
    assert names(offers_of("acme", path)) == ["L40S", "H100 SXM5 80GB", "B200 SXM"]


def test_a_file_stands_beside_crusoe_or_in_its_place(file):
    path = file(OURS + "acme,L40S,on demand,1.20,USD/GPU-hour,1,DE,2026-11-01\n")
    assert {o.provider for o in offers_of(None, path)} == {"acme", "crusoe"}
    assert {o.provider for o in offers_of("ACME", path)} == {"acme"}
    newer = file(OURS + "crusoe,L40S,on demand,1.80,USD/GPU-hour,1,US,2026-11-20\n")
    assert [o.usd_per_gpu_hour for o in offers_of(None, newer)] == [1.80]


def test_a_file_of_other_columns_is_refused(file):
    with pytest.raises(UsageError, match="it has no column"):
        read_offers(file("gpu,eur\nL40S,1\n"))


def test_the_smallest_instance_comes_before_the_cheapest_gpu():
    base = next(o for o in bundled_offers() if o.gpu == "L40S")
    one = replace(base, gpus_per_instance=(1,), usd_per_gpu_hour=2.0)
    eight = replace(base, gpus_per_instance=(8,), usd_per_gpu_hour=1.0)
    cheaper_one = replace(base, gpus_per_instance=(1,), usd_per_gpu_hour=1.8)
    (listing,) = targets_of([eight, one, cheaper_one], 1)
    assert listing.offer is cheaper_one and listing.billed_gpus == 1
    (listing,) = targets_of([eight, replace(one, usd_per_gpu_hour=0.5)], 8)  # one machine before several small ones
    assert listing.offer is eight
    (listing,) = targets_of([one, eight], 2)
    assert listing.offer is one and listing.billed_gpus == 2
