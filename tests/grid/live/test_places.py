import pytest

from greenlove_tracker.grid import carbon_intensity, resolve_place
from greenlove_tracker.grid.place import REGIONS_TABLE, ZONES_TABLE, cloud_regions, grid_place, zones
from greenlove_tracker.tables.reading import rows
from greenlove_tracker.vocabulary.errors import UsageError


@pytest.mark.parametrize(
    ("text", "iso3", "codes"),
    [
        ("Germany", "DEU", {}),
        ("ciso", "USA", {"eia": "CISO", "electricity_maps": "US-CAL-CISO"}),
        ("US-TEX-ERCO", "USA", {"eia": "ERCO", "electricity_maps": "US-TEX-ERCO"}),
        ("US-PA", "USA", {"eia": "PJM", "electricity_maps": "US-MIDA-PJM"}),
        ("DK2", "DNK", {"electricity_maps": "DK-DK2"}),
        ("", "", {}),
    ],
)
def test_a_place_in_the_names_of_the_services(text, iso3, codes):
    place = grid_place(text)
    assert (place.iso3, dict(place.codes)) == (iso3, codes)


@pytest.mark.parametrize("text", ["Germny", "DE-BY", "CISOO"])
def test_an_unknown_place_is_the_users_mistake(text):
    with pytest.raises(UsageError):
        grid_place(text)


PJM = {"eia": "PJM", "electricity_maps": "US-MIDA-PJM"}
BPAT = {"eia": "BPAT", "electricity_maps": "US-NW-BPAT"}
CALIFORNIA = {"eia": "CISO", "electricity_maps": "US-CAL-CISO"}


@pytest.mark.parametrize(
    ("text", "iso3", "state", "codes"),
    [
        ("us-east-1", "USA", "VA", PJM),  # Amazon
        ("US-East-1a", "USA", "VA", PJM),
        ("us-east1", "USA", "SC", {"eia": "SC", "electricity_maps": "US-CAR-SC"}),  # Google
        ("us-east1-b", "USA", "SC", {"eia": "SC", "electricity_maps": "US-CAR-SC"}),
        ("eastus", "USA", "VA", PJM),  # Microsoft
        ("East US 2", "USA", "VA", PJM),
        ("us-west-1", "USA", "CA", CALIFORNIA),
        ("westus", "USA", "CA", CALIFORNIA),  # no zone of its own in the table: that of the state
        ("us-northcentral1-a", "USA", "MT", {}),  # Crusoe
        ("us-southcentral1-a", "USA", "TX", {"eia": "ERCO", "electricity_maps": "US-TEX-ERCO"}),
        ("eu-iceland1-a", "ISL", "", {}),
        ("europe-west1", "BEL", "", {}),
        ("europe-west4", "NLD", "", {}),
        ("westeurope", "NLD", "", {}),
        ("eu-west-1", "IRL", "", {}),
        ("gcp:us-west1-a", "USA", "OR", BPAT),
        ("crusoe:us-west1-a", "USA", "", {}),
        ("ca-central-1", "CAN", "QC", {"electricity_maps": "CA-QC"}),
        ("CA-QC", "CAN", "QC", {"electricity_maps": "CA-QC"}),
        ("AU-NSW", "AUS", "", {"electricity_maps": "AU-NSW"}),
        ("ap-southeast-2", "AUS", "", {"electricity_maps": "AU-NSW"}),
        ("XK", "XKX", "", {}),
        ("Kosovo", "XKX", "", {}),
        ("SC", "SYC", "", {}),  # the Seychelles, not the utility of South Carolina
        ("NO2", "NOR", "", {"electricity_maps": "NO-NO2"}),
        ("SE-SE1", "SWE", "", {"electricity_maps": "SE-SE1"}),
        ("SE1", "SWE", "", {"electricity_maps": "SE-SE1"}),
    ],
)
def test_a_place_as_clouds_and_grids_name_it_is_one_for_tables_and_services(text, iso3, state, codes):
    place = grid_place(text)
    region = place.place.region if place.place else ""
    assert (place.iso3, region, dict(place.codes)) == (iso3, state, codes)
    assert resolve_place(text) == place.place


def test_amazons_and_googles_region_of_nearly_one_name_are_two_states():
    assert carbon_intensity(resolve_place("us-east-1")).source.startswith("Virginia")
    assert carbon_intensity(resolve_place("us-east1")).source.startswith("South Carolina")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("us-west1-a", r"in two clouds: write gcp:us-west1-a \(US-OR\) or crusoe:us-west1-a \(US\)"),
        ("us-east1-a", "write gcp:us-east1-a .US-SC. or crusoe:us-east1-a .US-VA."),
        ("us-esat-1", "did you mean us-west-1 or us-east-1"),
        ("europ-west4", "did you mean europe-west4"),
        ("estus2", "did you mean westus2 or eastus2"),
        ("ca-centrl-1", "did you mean ca-central-1"),
        ("aws:us-east1", "is not an ISO 3166 code"),
        ("us-east-11", "did you mean us-east-1"),
        ("us-east-1-b", "did you mean"),
        ("ERC0", "did you mean ERCO"),
        ("SW1A 1AA", "for a British postcode, write GB"),
    ],
)
def test_what_is_in_two_places_or_in_none_is_told_with_near_names(text, message):
    with pytest.raises(UsageError, match=message):
        resolve_place(text)


def test_every_region_of_a_cloud_is_found_with_a_country_that_the_tables_know():
    regions = cloud_regions()
    names = [(row["provider"], row["region"]) for row in regions]
    assert len(set(names)) == len(names) and {p for p, _ in names} == {"aws", "azure", "crusoe", "gcp"}
    for row in regions:
        found = grid_place(f"{row['provider']}:{row['region']}")
        assert found.place == resolve_place(row["place"]) and found.place is not None, row
        assert not row["grid_zone"] or row["grid_zone"] in zones(), row
        if row["grid_zone"]:  # it is in the same country, and where that has one, in the same state
            of_zone = resolve_place(zones()[row["grid_zone"]]["place"])
            assert of_zone is not None and of_zone.iso3 == found.place.iso3, row
            assert not of_zone.region or of_zone.region == found.place.region, row
        assert 0 < carbon_intensity(found.place).value < 1500, row
    for row in rows(REGIONS_TABLE):
        assert row["source"] and row["date_read"] and row["provider"] != "crusoe", row  # those are in cloud_sites.csv


def test_a_name_without_a_cloud_is_in_one_place_or_refused():
    refused = set()
    for row in cloud_regions():
        try:
            assert grid_place(row["region"]).place == resolve_place(row["place"]), row
        except UsageError:
            refused.add(row["region"])
    assert refused == {"us-east1-a", "us-west1-a", "us-east2-a"}


def test_every_zone_has_a_country_and_a_source():
    table = rows(ZONES_TABLE)
    assert len({row["zone"] for row in table}) == len(table)
    for row in table:
        assert resolve_place(row["place"]) is not None and row["source"] and row["date_read"]
        assert row["zone"] == row["zone"].upper()
