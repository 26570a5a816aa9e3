"""The stream of events: everybody gets all in order, and who does not keep up is let go."""

import asyncio

import pytest

from service.api import stream
from service.api.stream import Hub


def event(seq: int) -> dict[str, object]:
    return {"seq": seq, "event": "decided", "at": 1.5}


async def taken(hub: Hub, count: int, after: int | None = None) -> list[bytes]:
    """The first texts of a new client."""
    found = []
    async for text in hub.events(after):
        found.append(text)
        if len(found) == count:
            break
    return found


def test_all_clients_get_all_events_in_order_and_the_missed_ones() -> None:
    async def run() -> None:
        hub = Hub()
        hub.attach()
        both = [asyncio.create_task(taken(hub, 4)) for _ in range(2)]
        await asyncio.sleep(0)
        hub.publish([event(1), event(2)])
        await asyncio.sleep(0)
        hub.publish([event(3)])
        first, second = await asyncio.gather(*both)
        assert first == second and first[0] == b"retry: 2000\n\n"
        assert [text.partition(b"\n")[0] for text in first[1:]] == [b"id: 1", b"id: 2", b"id: 3"]
        assert first[1].endswith(b'data: {"seq":1,"event":"decided","at":1.5}\n\n')
        late = await taken(hub, 2, after=2)
        assert late[1].startswith(b"id: 3\n")

    asyncio.run(run())


def test_a_slow_client_is_let_go_and_the_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "QUEUED", 4)

    async def run() -> None:
        hub = Hub()
        hub.attach()
        slow = hub.events(None)
        await anext(slow)
        quick = asyncio.create_task(taken(hub, 9))
        for seq in range(8):
            await asyncio.sleep(0.001)
            hub.publish([event(seq)])
        assert len(await quick) == 9
        assert hub.dropped == 1
        assert [text async for text in slow] == []

    asyncio.run(run())


def test_closing_ends_every_stream_and_silence_has_a_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BEAT_S", 0.01)

    async def run() -> None:
        hub = Hub()
        hub.attach()
        one = asyncio.create_task(taken(hub, 99))
        assert (await taken(hub, 2))[1] == b": beat\n\n"
        hub.close_soon()
        await asyncio.wait_for(one, 1)
        assert hub.clients == 0
        hub.publish([event(1)])  # nobody is there, nothing happens

    asyncio.run(run())


def test_a_stream_ends_when_it_is_allowed_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "CHECK_S", 0.01)

    async def run() -> None:
        hub, allowed = Hub(), [True]
        hub.attach()
        events = hub.events(None, lambda: allowed[0])
        assert await anext(events) == b"retry: 2000\n\n"
        hub.publish([event(1)])
        assert (await anext(events)).startswith(b"id: 1")
        allowed[0] = False
        hub.publish([event(2)])  # it gets none of what comes after
        assert [text async for text in events] == []
        allowed[0] = True
        silent = hub.events(None, lambda: allowed[0])
        await anext(silent)
        allowed[0] = False
        assert await asyncio.wait_for(anext(silent, None), 1) is None

    asyncio.run(run())
