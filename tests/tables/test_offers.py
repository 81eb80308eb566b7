from __future__ import annotations

from datetime import date

import pytest

from greenlove_tracker.tables.electricity import sites
from greenlove_tracker.tables.gpus import gpus
from greenlove_tracker.tables.offers import bundled_offers, read_offers
from greenlove_tracker.tables.reading import rows
from greenlove_tracker.vocabulary.errors import UsageError

OURS = "provider,gpu,access,price,unit,gpus_per_instance,country,date_read\n"


@pytest.fixture
def file(tmp_path):
    def write(text: str, name: str = "prices.csv"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_our_table_names_gpus_and_sites_that_exist_each_once():
    offers = bundled_offers()
    assert len({(o.provider, o.gpu, o.access, o.gpus_per_instance) for o in offers}) == len(offers)
    assert len({o.provider for o in offers}) >= 6 and offers[0].provider == "crusoe"
    for offer in offers:
        assert offer.gpu in gpus() and offer.source
        assert all((offer.provider, region) in {*sites(), *in_clouds()} for region in offer.regions)
        assert date.fromisoformat(offer.price_date) <= date.today()


def in_clouds():
    return {(row["provider"], row["region"]) for row in rows("cloud_regions.csv")}


def test_prices_of_our_table_as_read_in_september_2026():
    offers = [offer for offer in bundled_offers() if offer.provider == "crusoe"]
    price = {o.gpu: o.usd_per_gpu_hour for o in offers}
    assert {name: usd for name, usd in price.items() if usd is not None} == {
        "H200 SXM": 4.29,
        "H100 SXM5 80GB": 3.90,
        "A100 SXM4 80GB": 2.30,
        "A100 PCIe 80GB": 2.00,
        "L40S": 1.50,
        "Instinct MI300X": 3.45,
    }
    status = {o.gpu: o.status for o in offers}
    assert {status[name] for name in ("B300 SXM", "GB200", "B200 SXM", "Instinct MI355X")} == {"contact sales"}
    assert status["A40"] == status["A100 PCIe 40GB"] == "not listed"
    sizes = {o.gpu: o.gpus_per_instance for o in offers}
    assert sizes["H100 SXM5 80GB"] == sizes["H200 SXM"] == sizes["A100 SXM4 80GB"] == (8,)
    assert sizes["L40S"] == (1, 2, 4, 5, 8, 10)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("acme,L40S,,1.20,,1,DE,2026-11-01", "row 2: unit must be USD/GPU-hour or USD/instance-hour, not ''"),
        ("acme,L40S,,1.20,EUR/h,1,DE,2026-11-01", "unit must be .*, not 'EUR/h'"),
        ("acme,L40S,,-1.20,USD/GPU-hour,1,DE,2026-11-01", "price must be a positive number"),
        ("acme,L40S,,nan,USD/GPU-hour,1,DE,2026-11-01", "price must be a positive number"),
        ("acme,L40S,,1500,USD/GPU-hour,1,DE,2026-11-01", "price must be a positive number"),
        ("acme,L40S,,150,USD/GPU-hour,1,DE,2026-11-01", "in USD for an hour: not in cents"),
        ("acme,L40S,,900,USD/instance-hour,1,DE,2026-11-01", "in USD for an hour"),
        ("acme,L40S,,1.20,USD/GPU-hour,0,DE,2026-11-01", "numbers of GPUs, such as 1;2;4, not '0'"),
        ("acme,L40S,,1.20,USD/GPU-hour,1,DE,yesterday", "date_read must be a date"),
        ("acme,,,1.20,USD/GPU-hour,1,DE,2026-11-01", "the column gpu is empty"),
        ("acme", "unit must be"),
    ],
)
def test_a_bad_row_is_refused_with_its_number(file, row, message):
    with pytest.raises(UsageError, match=message):
        read_offers(file(OURS + row + "\n"))


def test_memory_in_mb_is_refused_with_its_line(file):
    with pytest.raises(UsageError, match=r"row 2: memory_gb must be that of one GPU in GB, not '24576'"):
        read_offers(file("gpu,price,unit,date_read,memory_gb\nL4,0.8,USD/GPU-hour,2026-11-01,24576\n"))
