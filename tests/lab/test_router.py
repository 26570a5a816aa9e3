import os

import pytest

from lab.link_schedule import Direction
from lab.router import QUEUE_S, Router


def packet(target: int, size: int = 125) -> bytes:
    """An IPv4 packet to a site, of which the router reads the version and the last byte of the address."""
    return bytes([0x45]) + bytes(15) + bytes([10, 77, 0, target + 1]) + bytes(size - 20)


@pytest.fixture
def ends() -> tuple[int, int]:
    """A readable and a writable end; what the router writes for site 1 can be read."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    yield read, write
    os.close(read)
    os.close(write)


def made(write: int, link: Direction) -> Router:
    return Router({1: write}, {(0, 1): link}, seed=0)


def test_packets_queue_for_their_link_and_arrive_a_delay_later(ends: tuple[int, int]) -> None:
    read, write = ends
    router = made(write, Direction([0.0], [10_000.0], [0.5]))  # a packet of 1,000 bits takes 0.1 s
    router.accept(0, packet(1), 0.0)
    router.accept(0, packet(1), 0.02)

    assert router.deliver(0.1) == pytest.approx(0.5)
    assert router.deliver(0.6) == pytest.approx(0.1)
    assert router.carried == 1
    assert router.deliver(0.7) is None
    assert len(os.read(read, 1000)) == 250


def test_what_does_not_fit_and_what_has_no_link_is_dropped(ends: tuple[int, int]) -> None:
    router = made(ends[1], Direction([0.0], [10_000.0], [0.5]))
    for _ in range(int(QUEUE_S / 0.1) + 2):
        router.accept(0, packet(1), 0.0)
    router.accept(0, packet(2), 0.0)
    router.accept(0, b"\x60" + bytes(40), 0.0)

    assert router.dropped == 4


def test_loss_drops_its_share(ends: tuple[int, int]) -> None:
    router = made(ends[1], Direction([0.0], [1e9], [0.0], loss=0.25))
    for n in range(2000):
        router.accept(0, packet(1), n)

    assert 400 < router.dropped < 600


def test_packets_of_a_pair_with_a_relay_pass_both_its_links(ends: tuple[int, int]) -> None:
    link = Direction([0.0], [10_000.0], [0.5])
    router = Router(
        {1: ends[1]}, {(0, 1): Direction([0.0], [0.0], [0.5]), (0, 2): link, (2, 1): link}, seed=0
    )
    router.obey([[0, 2, 1]])
    router.accept(0, packet(1), 0.0)

    assert router.deliver(0.6) == pytest.approx(0.6)  # 0.1 s and 0.5 s on each link
    assert router.deliver(1.2) is None
    assert router.carried == 1

    router.obey([])
    router.accept(0, packet(1), 2.0)
    assert router.dropped == 1  # the direct link is dead


def test_lines_that_come_together_are_all_obeyed(ends: tuple[int, int]) -> None:
    router = Router({ends[0]: ends[0]}, {}, seed=0)  # it watches an end that says nothing
    read, write = os.pipe()
    os.write(write, b"[[0, 2, 1]]\n7000000000\n[]")
    os.write(write, b"\n[[1, 2, 0]]\n")
    os.close(write)
    with os.fdopen(read) as commands:
        router.run(commands)
    assert router._epoch_s == 7.0 and router._relays == {(1, 0): (1, 2, 0)}
