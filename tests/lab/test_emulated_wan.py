import sys
from pathlib import Path

import pytest

from ingest.core.scratch import Scratch
from lab.emulated_wan import EmulatedWan, missing
from lab.link_schedule import Direction
from lab.site_process import address

RECEIVE = """
import socket, time
with socket.create_server(("0.0.0.0", 5001)) as server:
    print("ready", flush=True)
    with server.accept()[0] as sender:
        sender.recv(1)
        began, count = time.monotonic(), 1
        while found := sender.recv(65536):
            count += len(found)
    print(count, time.monotonic() - began)
"""
SEND = f"""
import socket, time
for _ in range(100):
    try:
        link = socket.create_connection(("{address(1)}", 5001))
        break
    except ConnectionRefusedError:  # the other site is not ready
        time.sleep(0.1)
with link:
    link.sendall(bytes(1_000_000))
"""


def test_bytes_between_sites_take_the_time_of_the_link() -> None:
    if (lack := missing()) is not None:
        pytest.skip(f"no lab here: {lack}")
    links = {pair: Direction([0.0], [20e6], [0.03]) for pair in ((0, 1), (1, 0))}
    with Scratch() as scratch:
        assert scratch.path is not None
        with EmulatedWan(2, links, Path(scratch.path)) as wan:
            receiver = wan.start(1, [sys.executable, "-c", RECEIVE], {})
            sender = wan.start(0, [sys.executable, "-c", SEND], {})
            wan.play()
            assert receiver.stdout is not None and receiver.stdout.readline() == "ready\n"
            count, seconds = receiver.stdout.readline().split()
            assert sender.wait(30) == receiver.wait(30) == 0

    assert int(count) == 1_000_000
    assert 0.38 <= float(seconds) < 2.0  # 8 Mb at 20 Mb/s; TCP begins slowly, and the machine may be busy
