import pytest

from ingest.core.errors import UsageError
from policy.placement.registry import PLACEMENTS, placement
from twin.placement.recipe import GANGS, SCORES


def test_every_placement_has_its_source_and_every_score_a_placement() -> None:
    assert all(name == one.name and one.summary and one.source for name, one in PLACEMENTS.items())
    assert {one.score for one in PLACEMENTS.values()} == set(SCORES)
    assert {one.gang for one in PLACEMENTS.values()} == set(GANGS)


@pytest.mark.parametrize(
    ("name", "hint"), [("bestfit", "did you mean 'best-fit'"), ("", "known are best-fit")]
)
def test_an_unknown_name_is_told_with_those_that_are_known(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        placement(name)
