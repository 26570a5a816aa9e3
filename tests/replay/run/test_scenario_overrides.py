"""What people type after `--link` becomes a change of the scenario, or a message."""

import pytest

from ingest.core.errors import UsageError
from replay.run import scenario_overrides
from twin.scenario import prepare
from twin.settings.disturbances import LinkChange


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a>b=0.5", LinkChange(src="a", dst="b", bandwidth_factor=0.5)),
        (" a > b = x2 ", LinkChange(src="a", dst="b", bandwidth_factor=2)),
        ("a<>b=1e-1", LinkChange(src="a", dst="b", bandwidth_factor=0.1, both_ways=True)),
        ("us-east-1_x > * = 0", LinkChange(src="us-east-1_x", dst="*", bandwidth_factor=0)),
        ("a > b = 0.5 @ 3600", LinkChange(src="a", dst="b", bandwidth_factor=0.5, at_s=3600)),
        ("a > b = 50%", LinkChange(src="a", dst="b", bandwidth_factor=0.5)),
        ("a<>b=150 % @ 60", LinkChange(src="a", dst="b", bandwidth_factor=1.5, both_ways=True, at_s=60)),
        ("a>b=.5@60+30", LinkChange(src="a", dst="b", bandwidth_factor=0.5, at_s=60, for_s=30)),
    ],
)
def test_a_link_is_read(text: str, wanted: LinkChange) -> None:
    assert scenario_overrides.parse_link(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a>b",
        "a b=1",
        "a>b=fast",
        "a>b=-1",
        "a>b=1@soon",
        "a>b=1@5+0",
        "a>b=nan",
        "a>b=%",
        "a>b=5%%",
        "a>b=-5%",
        "a>b=nan%",
    ],
)
def test_what_is_no_change_of_a_link_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="--link"):
        scenario_overrides.parse_link(text)


def test_a_domain_has_no_link_to_itself_but_a_star_to_a_star_is_every_link() -> None:
    scenario = prepare.load("tri-7b")
    with pytest.raises(UsageError, match="us-east-1 > us-east-1 is no link: name two domains"):
        scenario_overrides.relinked(scenario, [scenario_overrides.parse_link("us-east-1 > us-east-1 = 0.5")])
    everywhere = scenario_overrides.parse_link("* > * = 0.5")
    assert scenario_overrides.relinked(scenario, [everywhere]).link_changes[-1] == everywhere


def test_an_unknown_domain_is_named_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match=r"no domain 'eu-west'; did you mean 'eu-west-1'\?"):
        scenario_overrides.scenario("tri-7b", links=["us-east-1 > eu-west = 0.5"])


def test_changes_come_on_top_of_those_of_the_scenario() -> None:
    twice = scenario_overrides.relinked(
        scenario_overrides.scenario("tri-7b", links=["us-east-1 > * = 0.5"]),
        [scenario_overrides.parse_link("* > eu-west-1 = 2")],
    )
    assert [change.bandwidth_factor for change in twice.link_changes] == [0.5, 2]
    assert prepare.load("tri-7b").link_changes == ()
