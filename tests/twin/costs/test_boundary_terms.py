"""Terms of a boundary by hand, and the same for scalars and arrays."""

import numpy as np

from twin.costs.boundary_terms import ends_ns, terms, terms_compiled
from twin.pipeline.kernel import LONGEST_NS


def test_terms_by_hand() -> None:
    """1 MB at 8 Mb/s takes a second; the exchange of 2 MB two, and the latency on top."""
    assert terms_compiled(1e6, 2e6, 8e6, 5e7) == (1e9, 5e7, 2e9 + 5e7)
    assert ends_ns(2e9, 3e9) == 2 * 3e9


def test_nothing_is_exchanged_where_nothing_is_tied() -> None:
    assert terms_compiled(1e6, 0.0, 8e6, 5e7).tied == 0


def test_over_a_dead_link_messages_and_exchanges_never_arrive() -> None:
    dead = terms_compiled(1e6, 1e6, 0.0, 5e7)
    assert min(dead.occupancy, dead.tied) >= LONGEST_NS


def test_arrays_have_the_terms_of_scalars() -> None:
    rng = np.random.default_rng(3)
    message, tied = rng.uniform(0, 1e9, 50), rng.choice([0.0, 3e8], 50)
    rate, latency = rng.choice([0.0, 1.0, 7.3e9, np.inf], 50), rng.uniform(0, 2e8, 50)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = terms(message, tied, rate, latency)
    alone = [terms_compiled(*row) for row in np.stack([message, tied, rate, latency], axis=1).tolist()]
    assert np.array_equal(np.stack(found, axis=1), np.array(alone))
