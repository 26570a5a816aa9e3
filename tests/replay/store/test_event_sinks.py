"""A re-execution that differs names the event and the first field that does."""

from typing import Any

import pytest

from replay.log.events import Event
from replay.store.event_sinks import Compare, DivergenceError, Reached, difference

PAYLOAD = {"plan": {"dp": 4, "shares": [{"layers": 10}, {"layers": 12}]}, "reason": "best"}


def event(seq: int = 3, kind: str = "decided", payload: Any = PAYLOAD, job: str = "") -> Event:
    return Event(seq, 1_000, kind, 1, job, payload)


@pytest.mark.parametrize(
    ("sim_ns", "kind", "payload", "job", "said"),
    [
        (1_000, "triggered", PAYLOAD, "", "type is decided, was made again as triggered"),
        (1_001, "decided", PAYLOAD, "", "decided at 1000 ns, was made again at 1001 ns"),
        (1_000, "decided", PAYLOAD, "b", "decided of job '', was made again for 'b'"),
        (1_000, "decided", {**PAYLOAD, "reason": "no"}, "", 'payload.reason is "best", made again "no"'),
        (1_000, "decided", {"reason": "best"}, "", "payload.plan is only in the log"),
        (1_000, "decided", {**PAYLOAD, "more": 1}, "", "payload.more is only in the re-execution"),
        (1_000, "decided", {**PAYLOAD, "plan": {"dp": 4, "shares": [{"layers": 10}]}}, "",
         "payload.plan.shares has 2 entries, made again 1"),
        (1_000, "decided", {**PAYLOAD, "plan": {"dp": 4, "shares": [{"layers": 10}, {"layers": 13}]}}, "",
         "payload.plan.shares[1].layers is 12, made again 13"),
    ],
)  # fmt: skip
def test_the_first_difference_is_named(
    sim_ns: int, kind: str, payload: dict[str, Any], job: str, said: str
) -> None:
    message = difference(event(), sim_ns, kind, payload, job)
    assert message is not None and message.endswith(said)


def test_equal_events_do_not_differ() -> None:
    assert difference(event(), 1_000, "decided", dict(reversed(PAYLOAD.items()))) is None


def test_a_log_that_ends_early_or_goes_on_differs() -> None:
    compare = Compare("a", iter([event(0)]))
    assert compare.append(1_000, "decided", PAYLOAD) == 0
    with pytest.raises(DivergenceError, match=r"event 1 differs.*the log ends here.*goes on with triggered"):
        compare.append(1_000, "triggered", {})
    compare = Compare("a", iter([event(0, "run_finished", {"totals": {}}), event(1)]))
    with pytest.raises(DivergenceError, match=r"event 1 differs.*the log goes on with decided"):
        compare.finish({}, sim_ns=1_000)


def test_a_log_of_a_run_that_has_not_ended_may_stop_anywhere() -> None:
    compare = Compare("a", iter([event(0)]), partial=True)
    compare.append(1_000, "decided", PAYLOAD)
    with pytest.raises(Reached):
        compare.append(1_000, "triggered", {})
