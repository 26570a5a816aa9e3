"""Carries packets between the TUN devices of sites with the rate, delay and loss of a played trace.

    python -m lab.router SETTINGS

A packet of direction (i, j) leaves when those before it have left and its bits have passed at the rate of the
moment, and arrives one delay later: the same fluid link as in the twin. A queue of `QUEUE_S` seconds at most;
what does not fit is dropped, as routers do. A pair with a relay sends its packets link by link over it.
SETTINGS is a JSON file: `socket`, `sites`, `seed` and `directions` (`lab.link_schedule.encoded`). A line on
standard input is a JSON value. A number is time 0 of the schedule in nanoseconds of the monotonic clock;
until then the links are as at time 0. A list has the relays from now on, each a list of sites from the first
to the last.
"""

import gc
import heapq
import json
import os
import random
import select
import socket
import sys
import time
from pathlib import Path
from typing import TextIO

from lab.link_schedule import Direction, decoded
from lab.site_process import end_with_parent

QUEUE_S = 2.0
"""Longest time that a packet waits for its link; longer than any message of a step, so that TCP sees a link
and no loss but the one that is asked for."""
LARGEST_PACKET = 65536
FAR_S = 1e7
"""So far in the future that all of the schedule lies behind it."""
EARLY_S = 0.0001
"""A packet due within this time is handed on now: a sleep would end later."""


class Router:
    """The packets under way; `devices` maps sites to file descriptors of their TUN devices."""

    def __init__(
        self, devices: dict[int, int], directions: dict[tuple[int, int], Direction], seed: int
    ) -> None:
        self._devices = devices
        self._sites = {descriptor: site for site, descriptor in devices.items()}
        self._directions = directions
        self._free_s = dict.fromkeys(directions, 0.0)
        self._flying: list[tuple[float, int, tuple[int, ...], bytes]] = []
        self._relays: dict[tuple[int, int], tuple[int, ...]] = {}
        self._random = random.Random(seed)
        self._number = 0
        self._epoch_s = FAR_S  # time 0 of the links on the monotonic clock
        self.carried = self.dropped = 0

    def accept(self, source: int, packet: bytes, now_s: float) -> None:
        """Puts a packet of a site on its link; one to nobody, and one that does not fit, is dropped."""
        target = packet[19] - 1 if len(packet) >= 20 and packet[0] >> 4 == 4 else -1
        self._send(self._relays.get((source, target), (source, target)), packet, now_s)

    def _send(self, path: tuple[int, ...], packet: bytes, now_s: float) -> None:
        """Puts a packet on the first link of its path."""
        source, target = path[:2]
        link = self._directions.get((source, target))
        if link is None or (link.loss and self._random.random() < link.loss):
            self.dropped += 1
            return
        start_s = max(now_s, self._free_s[source, target])
        leaves_s = self._epoch_s + link.departure_s(start_s - self._epoch_s, 8 * len(packet))
        if leaves_s - now_s > QUEUE_S:
            self.dropped += 1
            return
        self._free_s[source, target] = leaves_s
        self._number += 1
        due_s = leaves_s + link.delays_s[link.index(leaves_s - self._epoch_s)]
        heapq.heappush(self._flying, (due_s, self._number, path[1:], packet))

    def deliver(self, now_s: float) -> float | None:
        """Hands on all packets that are due; seconds until the next one, None if there is none."""
        while self._flying and self._flying[0][0] <= now_s + EARLY_S:
            due_s, _, path, packet = heapq.heappop(self._flying)
            if len(path) > 1:
                self._send(path, packet, due_s)
                continue
            try:
                os.write(self._devices[path[0]], packet)
                self.carried += 1
            except OSError:  # the site has ended, its device is down
                self.dropped += 1
        return self._flying[0][0] - now_s if self._flying else None

    def obey(self, said: int | list[list[int]]) -> None:
        """Takes time 0 of the schedule, ns, or the relays from now on."""
        if isinstance(said, int):
            self._epoch_s = said / 1e9
        else:
            self._relays = {(path[0], path[-1]): tuple(path) for path in said}

    def run(self, commands: TextIO) -> None:
        """Carries packets until all devices are gone, or `commands` ends."""
        watched, rest = {*self._sites, commands.fileno()}, b""
        while len(watched) > 1:
            wait_s = self.deliver(time.monotonic())
            ready, _, _ = select.select(list(watched), [], [], 1.0 if wait_s is None else max(0.0, wait_s))
            now_s = time.monotonic()
            for descriptor in ready:
                if descriptor == commands.fileno():
                    chunk = os.read(descriptor, LARGEST_PACKET)  # all that is there: `select` sees no buffer
                    if not chunk:
                        return
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        self.obey(json.loads(line))
                    continue
                try:
                    while True:
                        self.accept(self._sites[descriptor], os.read(descriptor, LARGEST_PACKET), now_s)
                except BlockingIOError:
                    continue
                except OSError:  # the namespace, and the device with it, is gone
                    watched.discard(descriptor)


def main(settings_path: str) -> None:
    """Takes the device of every site over the socket, then carries packets."""
    end_with_parent()
    settings = json.loads(Path(settings_path).read_text())
    devices: dict[int, int] = {}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(settings["socket"])
        listener.listen(settings["sites"])
        print("ready", flush=True)
        held = []
        while len(devices) < settings["sites"]:
            site, _ = listener.accept()
            number, descriptors, _, _ = socket.recv_fds(site, 1, 1)
            devices[number[0]] = descriptors[0]
            held.append(site)
        for site in held:  # all begin together
            site.sendall(b"1")
            site.close()
    gc.disable()  # nothing here is cyclic, and a collection would delay packets
    router = Router(devices, decoded(settings["directions"]), settings["seed"])
    router.run(sys.stdin)


if __name__ == "__main__":
    main(sys.argv[1])
