import pytest

from greenlove_tracker.errors import UsageError
from greenlove_tracker.grid import resolve_place
from greenlove_tracker.grid.live.places import ZONES_TABLE, grid_place
from greenlove_tracker.tables.reading import rows


@pytest.mark.parametrize(
    ("text", "iso3", "postcode", "codes"),
    [
        ("Germany", "DEU", "", {}),
        ("ciso", "USA", "", {"eia": "CISO", "electricity_maps": "US-CAL-CISO", "watttime": "CAISO_NORTH"}),
        ("US-TEX-ERCO", "USA", "", {"eia": "ERCO", "electricity_maps": "US-TEX-ERCO"}),
        ("US-PA", "USA", "", {"eia": "PJM", "electricity_maps": "US-MIDA-PJM"}),
        ("DK2", "DNK", "", {"energi_data_service": "DK2", "electricity_maps": "DK-DK2"}),
        ("SW1A 1AA", "GBR", "SW1A", {}),
        ("rg10", "GBR", "RG10", {}),
        ("GB-SE1", "GBR", "SE1", {}),
        ("", "", "", {}),
    ],
)
def test_a_place_in_the_names_of_the_services(text, iso3, postcode, codes):
    place = grid_place(text)
    assert (place.iso3, place.postcode, dict(place.codes)) == (iso3, postcode, codes)


def test_a_state_without_one_grid_is_known_to_the_tables_alone():
    place = grid_place("US-IL")
    assert place.place == resolve_place("US-IL") and not place.codes


@pytest.mark.parametrize("text", ["Germny", "DE-BY", "CISOO"])
def test_an_unknown_place_is_the_users_mistake(text):
    with pytest.raises(UsageError):
        grid_place(text)


def test_every_zone_has_a_country_and_a_source():
    table = rows(ZONES_TABLE)
    assert len({row["zone"] for row in table}) == len(table)
    for row in table:
        assert resolve_place(row["place"]) is not None and row["source"] and row["date_read"]
        assert row["zone"] == row["zone"].upper()
