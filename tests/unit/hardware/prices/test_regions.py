"""Where data may lie: regions of all clouds by country, held against the packaged price list."""

import pytest

from trainwright.hardware.prices.regions import country_of, lies_in, names_place, place_names
from trainwright.hardware.prices.snapshot import packaged

NOWHERE = {"", "all regions same"}
"""What lists print that is no region."""


@pytest.mark.parametrize(
    ("region", "country"),
    [
        ("eu-west-2/euw2-az3", "gb"),
        ("eu-north-1", "se"),
        ("eu-north1", "fi"),
        ("europe-west4", "nl"),
        ("asia-southeast1-b", "sg"),
        ("FIN-03", "fi"),
        ("austin-usa-1", "us"),
        ("Georgia, US, NA", "us"),
        ("British Columbia, CA, NA", "ca"),
        ("Hong Kong, HK, AS", "hk"),
        ("cn-hongkong", "hk"),
        ("cn-north-4", "cn"),
        ("ap-guangzhou", "cn"),
        ("westeurope", "nl"),
        ("westus2", "us"),
        ("somewhere", None),
    ],
)
def test_a_region_lies_in_one_country(region, country):
    assert country_of(region) == country


def test_every_region_of_the_packaged_list_has_its_country():
    regions = {row["region"] for each in packaged() for row in each.rows} - NOWHERE
    assert len(regions) > 90
    assert not [region for region in regions if country_of(region) is None]


def test_the_union_is_its_members_alone_in_every_cloud():
    inside = ("eu-central-1", "europe-west4", "FIN-03", "FR", "paris-france-5", "Poland, PL, EU", "eu-north1")
    outside = ("eu-west-2", "Norway, NO, EU", "Switzerland, CH, EU", "us-east-1", "NORWAY-1")
    assert all(lies_in(region, "eu") for region in inside)
    assert not any(lies_in(region, "EU") for region in outside)
    assert lies_in("NORWAY-1", "eea") and not lies_in("eu-west-2", "eea") and lies_in("eu-west-2", "europe")
    assert lies_in("eu-west-2", "uk") and lies_in("eu-west-2", "gb")


def test_what_is_no_country_goes_by_name():
    assert lies_in("us-east-1/use1-az4", "us-east-1") and lies_in("us-east-1/use1-az4", "us-east")
    assert not lies_in("us-west-2", "us-east")
    assert lies_in("eu-new-9", "eu"), "of a region that no list has, its name is all that is known"
    assert not lies_in("", "eu") and not lies_in("all regions same", "us") and not lies_in("us-east-1", "-")
    assert lies_in("Sichuan, CN, AS", "cn") and not lies_in("Hong Kong, HK, AS", "cn")


def test_a_name_is_a_place_where_it_is_a_country_a_group_or_the_beginning_of_a_region():
    assert names_place("eu", ()) and names_place("Germany", ()) and names_place("vn", ())
    assert names_place("mars-1", ["mars-1a"]) and not names_place("mars-2", ["mars-1a"])
    assert not names_place("", ["mars-1a"]) and {"eea", "usa", "uksouth"} <= set(place_names())
