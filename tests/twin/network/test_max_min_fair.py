"""Max-min fairness: what it promises, on random networks and by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twin.network.max_min_fair import GREEDY, max_min

Case = tuple[list[float], list[list[int]], dict[int, float]]


@st.composite
def networks(draw: st.DrawFn) -> Case:
    """Up to 8 flows over up to 6 resources; some resources are dead, some flows ask for little."""
    size = draw(st.integers(1, 6))
    capacity = {r: draw(st.sampled_from([0.0, 1e9, 2e9, 2.5e9, 1e10])) for r in range(size)}
    flows = draw(st.integers(1, 8))
    route = st.lists(st.integers(0, size - 1), min_size=1, max_size=size, unique=True)
    routes = [draw(route) for _ in range(flows)]
    demands = [draw(st.one_of(st.just(GREEDY), st.floats(0, 4e9))) for _ in range(flows)]
    return demands, routes, capacity


@given(networks())
def test_no_resource_carries_more_than_it_can_and_no_flow_more_than_it_asks_for(case: Case) -> None:
    demands, routes, capacity = case
    rates = max_min(*case)
    for resource, limit in capacity.items():
        assert sum(r for r, route in zip(rates, routes, strict=True) if resource in route) <= limit * (
            1 + 1e-9
        )
    assert all(0 <= rate <= demand for rate, demand in zip(rates, demands, strict=True))


@given(networks())
def test_nobody_gains_without_one_with_less_losing(case: Case) -> None:
    """The bottleneck condition: a flow below its demand uses a full resource on which nobody has more."""
    demands, routes, capacity = case
    rates = max_min(*case)
    for flow, route in enumerate(routes):
        if rates[flow] >= demands[flow]:
            continue
        users = {r: [n for n, other in enumerate(routes) if r in other] for r in route}
        assert any(
            sum(rates[n] for n in users[r]) >= capacity[r] * (1 - 1e-9)
            and rates[flow] >= max(rates[n] for n in users[r]) * (1 - 1e-9)
            for r in route
        )


@given(networks(), st.randoms())
def test_the_order_of_the_flows_does_not_matter(case: Case, random: object) -> None:
    demands, routes, capacity = case
    order = list(range(len(routes)))
    random.shuffle(order)  # type: ignore[attr-defined]
    mixed = max_min([demands[n] for n in order], [routes[n] for n in order], capacity)
    assert mixed == pytest.approx([max_min(*case)[n] for n in order], rel=1e-9)


def test_by_hand_a_long_flow_over_two_links_and_a_short_one_on_each() -> None:
    # Link 0 carries 1, link 1 carries 2: flows 0 and 1 halve link 0, flow 2 takes what is left of link 1.
    assert max_min([GREEDY] * 3, [[0, 1], [0], [1]], {0: 1.0, 1: 2.0}) == [0.5, 0.5, 1.5]


def test_by_hand_a_modest_flow_leaves_the_rest() -> None:
    assert max_min([0.2, GREEDY, GREEDY], [[0], [0], [0]], {0: 1.0}) == [0.2, 0.4, 0.4]
