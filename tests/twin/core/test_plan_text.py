"""One notation of plans: a plan in words, and the same from the text that the log stores."""

from dataclasses import replace

import pytest

from twin.core.plan import Plan, Share, Sync
from twin.core.plan_text import link_text, plan_text, with_names

NAMES = ("paris", "us-east-1", "d0")
"""One site is called as the log calls another."""
TWO = Plan((Share(0, 20, 2, 2, tuple(range(8))), Share(1, 14, 2, 1, tuple(range(4)))), 2, 1, 8)
ALL = [
    TWO,
    replace(TWO, shares=TWO.shares[:1]),
    replace(TWO, extra_warmup=2, p2p="overlapped", routes=((0, 2, 1), (1, 2, 0)), sequence_parallel=True),
    replace(TWO, schedule="zb-v", chunks=2, p2p="rendezvous"),
    replace(TWO, context_parallel=2, ep=2),
    replace(TWO, shares=(Share(2, 34, 2, 1, (0, 1, 2, 3)), Share(0, 34, 1, 2, (0, 1, 2, 3))), sync=Sync(50)),
]


def test_a_plan_in_words() -> None:
    assert plan_text(TWO, NAMES) == (
        "paris: 20 layers (tp 2, pp 2) > us-east-1: 14 layers (tp 2, pp 1), dp 2, 8 micro-batches of 1, 1f1b"
    )
    assert plan_text(ALL[2], NAMES).endswith(
        "1f1b, overlapped sends, warm-up +2, sequence parallel, "
        "paris to us-east-1 via d0, us-east-1 to paris via d0"
    )
    assert plan_text(ALL[5], NAMES) == (
        "d0: 34 layers (tp 2, pp 1) | paris: 34 layers (tp 1, pp 2), dp 2, 8 micro-batches of 1, 1f1b, "
        "replicas averaged every 50 steps"
    )


@pytest.mark.parametrize("plan", ALL)
def test_the_text_of_the_log_becomes_the_same_words(plan: Plan) -> None:
    assert with_names(f"best expected plan: {plan}; turns", NAMES) == (
        f"best expected plan: {plan_text(plan, NAMES)}; turns"
    )


def test_sites_and_relays_in_a_reason_get_their_names() -> None:
    stored = "d1: stage 3 needs 90 GiB; turns to routes 0-2-1, 1-2-0 and to a warm-up of 2 more; d7 is new"
    assert with_names(stored, ("paris", "berlin", "rome")) == (
        "berlin: stage 3 needs 90 GiB; turns to routes paris to berlin via rome, berlin to paris via rome "
        "and to a warm-up of 2 more; d7 is new"
    )
    assert link_text((0, 1), NAMES) == "link paris <-> us-east-1"
