"""Random small worlds of changing jobs."""

from hypothesis import strategies as st

from twin.queue.jobs import QueueJobs
from twin.sharing.changes import CHANGES, ChangeRules, pauses_ns
from twin.sharing.engine import SharingWorld
from twin.sharing.speeds import Rigid


@st.composite
def sharing_worlds(draw: st.DrawFn, most: int = 16, rules: ChangeRules | None = None) -> SharingWorld:
    """Jobs of seconds to hours on a few nodes; small ranges make ties of all kinds common."""
    count = draw(st.integers(1, most))
    nodes, size = draw(st.sampled_from(((1, 8), (2, 4), (3, 2))))

    def column(low: int, high: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    top = draw(st.sampled_from((5, 400, 20_000)))
    run, more = column(1, top), column(0, top)
    jobs = QueueJobs.of_seconds(
        column(0, draw(st.sampled_from((0, 5, 2 * top)))), run, column(1, nodes * size),
        [one + extra for one, extra in zip(run, more, strict=True)], deadline=column(-1, 3 * top),
    )  # fmt: skip
    models = draw(st.lists(st.sampled_from(("bert", "a2c", None)), min_size=count, max_size=count))
    chosen = rules or draw(st.sampled_from(list(CHANGES.values())))
    return SharingWorld(
        jobs, jobs.estimate_ns, pauses_ns(models, jobs.processors), nodes, size, chosen, Rigid()
    )
