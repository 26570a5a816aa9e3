"""iperf3 JSON: one file is one run between two sites, named by dataset.toml or the path.

Rows: the run (`source_row` 0, `duration_s` about 10, receiver's rate, mean RTT), then one row for each
second that counts (`source_row` = position in `intervals`, from 1; sender's rate). Warm-up seconds
(`omitted`) are no rows. Times: the run at `start.timestamp`, a second where it lay, after the warm-up.

Ends, the client first, which sends unless the run is reversed (-R): what `[values]` says of `src` and `dst`;
else the path, `host-A/target-B/[proxy-C/]time-.../<prefix>_<from>_<to>_direct<n>`, where `host_target` means
that A sends to B, `proxy_host` C to A; else the addresses in the file, if `[sites]` names them: as they stand
they are no sites, and a run without two sites is rejected.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import PurePath
from typing import Any

from ingest.core.units import NS_PER_S, US, to_ns
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, document, number, text, whole
from ingest.parsing.reader import Reject, RowBatch, rejected_file
from ingest.parsing.source import BOM, Source

_TABLE = "link_samples"
_ROLES = re.compile(r"(?:^|[_-])(host|target|proxy)_(host|target|proxy)(?:_|\.|$)")
_ENDS = ("src", "dst")
_COLUMNS = ("source_row", "ts", "bandwidth_bps", "rtt_s", "retransmits", "duration_s")
_LAST_S = 2**33
"""Seconds since 1970 that still fit the clock."""
Row = tuple[Any, ...]


class Iperf3:
    """Runs of `iperf3 -J`."""

    name = "iperf3"
    version = 1
    tables = ("link_samples",)
    settings = ("values.src", "values.dst")

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the document begins with `start`, which names iperf."""
        start = head.removeprefix(BOM).lstrip()
        return start.startswith(b"{") and start[1:].lstrip().startswith(b'"start"') and b'"iperf 3' in head

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields one batch: the run and its seconds, or one reject for the file."""
        try:
            run = document(source)
        except ValueError as error:
            yield rejected_file(
                _TABLE, "json", source.head[:80].decode("utf-8", "replace"), f"not JSON: {error}"
            )
            return
        try:
            ends = _ends(source.name, run.get("start"), options)
            if isinstance(ends, str):
                if run.get("error"):  # a client that failed to connect has no addresses
                    raise ValueError(run["error"])
                yield rejected_file(_TABLE, "path", source.name, ends)
                return
            yield _batch(run, *ends)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            said = str(run.get("error", "")) if isinstance(run, dict) else ""
            yield rejected_file(_TABLE, "document", said, f"not a complete iperf3 run: {_missing(error)}")

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        origin = "dataset.toml, else the path" if options.values or options.sites else "the path"
        return (
            f"iperf3: sites and direction are taken from {origin}; warm-up seconds are left out; "
            "run rows hold the receiver's rate, second rows the sender's",
        )


@lru_cache(maxsize=4096)
def _sites(folders: tuple[str, ...]) -> dict[str, str]:
    """Role to site, from folders such as `host-lon02_ibm`."""
    found = {}
    for part in folders:
        role, dash, site = part.partition("-")
        if dash and role in ("host", "target", "proxy"):
            found[role] = site
    return found


def _ends(name: str, start: Any, options: DatasetOptions) -> tuple[str, str] | str:
    """Client and server by dataset.toml, path or addresses, in this order; or why they are not known."""
    stated = [options.values.get(end) for end in _ENDS]
    if any(stated) and _reversed(start):
        return (
            "the run is reversed (-R), and [values] of dataset.toml holds for both directions: "
            "name the addresses in [sites] instead"
        )
    of_path = _of_path(name)
    if not isinstance(of_path, str):
        src, dst = (str(said or own) for said, own in zip(stated, of_path, strict=True))
        return src, dst
    client, server = _addresses(start)
    known = [next((a for a in names if a in options.sites), None) for names in (client, server)]
    ends = [said or site for said, site in zip(stated, known, strict=True)]
    if all(ends):
        return str(ends[0]), str(ends[1])
    seen = f", of {' or '.join(client)} and of {' or '.join(server)}" if client and server else ""
    return f"{of_path}; say it in dataset.toml: [values] src and dst, or [sites] of the addresses{seen}"


def _of_path(name: str) -> tuple[str, str] | str:
    """Sender and receiver, or the reason why the path does not name them."""
    path = name.split("/")
    sites = _sites(tuple(path[:-1]))
    roles = _ROLES.search(path[-1])
    if roles is None or roles[1] == roles[2]:
        return "the file name does not say who sends to whom (host_target, proxy_host, ...)"
    missing = [role for role in roles.groups() if role not in sites]
    if missing:
        return f"no folder {missing[0]}-<site> in the path"
    return sites[roles[1]], sites[roles[2]]


def _addresses(start: Any) -> tuple[list[str], list[str]]:
    """Names of client and server in the file, which either of them may have written."""
    given = start if isinstance(start, dict) else {}
    links = [link for link in given.get("connected") or () if isinstance(link, dict)]
    near = list(dict.fromkeys(str(link["local_host"]) for link in links if "local_host" in link))
    far = list(dict.fromkeys(str(link["remote_host"]) for link in links if "remote_host" in link))
    if "accepted_connection" in given:  # the server's own account
        return far, near
    asked = given.get("connecting_to")
    named = [str(asked["host"])] if isinstance(asked, dict) and "host" in asked else []
    return near, list(dict.fromkeys([*far, *named]))


def _reversed(start: Any) -> bool:
    test = start.get("test_start") if isinstance(start, dict) else None
    return bool(isinstance(test, dict) and test.get("reverse"))


def _batch(run: dict[str, Any], src: str, dst: str) -> RowBatch:
    start_ns = whole(run["start"]["timestamp"]["timesecs"], _LAST_S) * NS_PER_S
    test = run["start"]["test_start"]
    streams = whole(test["num_streams"], 2**31 - 1)
    if test.get("reverse"):
        src, dst = dst, src
    rows: list[Row] = [_run_row(run["end"], start_ns)]
    rejects: list[Reject] = []
    warm_up_s = 0.0
    for position, interval in enumerate(run["intervals"], 1):
        try:
            total = interval["sum"]
            if total.get("omitted"):
                warm_up_s += number(total["seconds"])
                continue
            rows.append(_second_row(position, start_ns, warm_up_s, interval, total))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
            rejects.append(
                Reject(position, "intervals", str(interval), f"not an interval: {_missing(error)}")
            )
    count = len(rows)
    columns: dict[str, Any] = {
        name: list(c) for name, c in zip(_COLUMNS, zip(*rows, strict=True), strict=True)
    }
    kind = "tcp" if test.get("protocol", "TCP") == "TCP" else text(test["protocol"]).lower()
    columns.update(src=[src] * count, dst=[dst] * count, streams=[streams] * count, kind=[kind] * count)
    return RowBatch(_TABLE, columns, count + len(rejects), rejects)


def _run_row(end: dict[str, Any], start_ns: int) -> Row:
    received = end["sum_received"]
    sender = end["streams"][0].get("sender", {})
    retransmits = end.get("sum_sent", {}).get("retransmits")
    return (
        0,
        start_ns,
        amount(received["bits_per_second"]),
        _rtt_s(sender.get("mean_rtt")),
        None if retransmits is None else whole(retransmits),
        number(received["seconds"]),
    )


def _second_row(
    position: int, start_ns: int, warm_up_s: float, interval: dict[str, Any], total: dict[str, Any]
) -> Row:
    retransmits = total.get("retransmits")
    return (
        position,
        whole(start_ns + to_ns(warm_up_s + number(total["start"]))),
        amount(total["bits_per_second"]),
        _rtt_s(interval["streams"][0].get("rtt")),
        None if retransmits is None else whole(retransmits),
        number(total["seconds"]),
    )


def _rtt_s(microseconds: Any) -> float | None:
    return None if microseconds is None else number(microseconds) * US


def _missing(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error)
