"""Plans, sites and links in words: the notation of every table, page, console and export.

    paris: 41 layers (tp 8, pp 2) > berlin: 41 layers (tp 8, pp 2), dp 4, 32 micro-batches of 1, 1f1b

The log stores reasons without the names of sites: `str(plan)` and "d0", "d1", ... for sites by their number.
`with_names` turns such a text into this notation, so that logs of every version read the same.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from twin.core.domain import Pair
from twin.core.plan import Plan, to_json

_SHARE = re.compile(r"d(\d+):(\d+)L\(tp(\d+),pp(\d+)\)")
_ANY_SHARE = r"d\d+:\d+L\(tp\d+,pp\d+\)"
_ANY_ROUTE = r"\d+(?:-\d+){2,}"
_STORED = re.compile(
    rf"(?P<shares>{_ANY_SHARE}(?: [>|] {_ANY_SHARE})*)"
    r" dp(?P<dp>\d+)(?: cp(?P<cp>\d+))?(?: ep(?P<ep>\d+))? mbs(?P<size>\d+) m(?P<count>\d+)"
    r" (?P<schedule>[a-z0-9-]+)(?:\+(?P<ahead>\d+))?(?: v(?P<chunks>\d+))?/(?P<p2p>[a-z]+)(?P<split> sp)?"
    rf"(?: H(?P<every>\d+))?(?P<via>(?: via {_ANY_ROUTE})*)"
    rf"|\b(?P<word>routes?) (?P<routes>{_ANY_ROUTE}(?:, {_ANY_ROUTE})*)"
    r"|\bd(?P<site>\d+)\b"
)
"""`str(plan)`, routes or a site inside a text; in one pass, as a site may be called "d1"."""


def plan_text(plan: Plan | Mapping[str, Any], names: Sequence[str]) -> str:
    """A plan, or one as the log has it, in one line with the sites' names: shares in pipeline order, then
    sizes, schedule and what is not usual. Replicas of the whole model are joined by "|"."""
    fields = to_json(plan) if isinstance(plan, Plan) else plan
    sync, cp = fields.get("sync"), fields.get("context_parallel", 1)
    return _line(
        [_share(names, s["domain"], s["layers"], s["tp"], s["pp"]) for s in fields["shares"]],
        dp=fields["dp"] // cp, cp=cp, ep=fields.get("ep", 1), size=fields["micro_batch"],
        count=fields["micro_batches"], schedule=fields["schedule"], ahead=fields.get("extra_warmup", 0),
        chunks=fields.get("chunks", 1), p2p=fields["p2p"], split=fields.get("sequence_parallel", False),
        every=None if sync is None else sync["inner_steps"],
        routes=[route_text(route, names) for route in fields.get("routes", ())],
    )  # fmt: skip


def sizes_text(plan: Plan) -> str:
    """The part of `plan_text` that follows the shares."""
    return plan_text(replace(plan, routes=()), ()).rpartition("), ")[2]


def with_names(text: str, names: Sequence[str]) -> str:
    """A text of the log with the names of sites for "d0", "d1", ... and plans as in `plan_text`."""
    return _STORED.sub(lambda match: _stored(match, names), text)


def link_text(pair: Pair, names: Sequence[str]) -> str:
    """The link between two sites, both ways."""
    return f"link {names[pair[0]]} <-> {names[pair[1]]}"


def route_text(route: Sequence[int], names: Sequence[str]) -> str:
    """A relay: where messages come from and go to, and the sites that pass them on."""
    ends, between = (route[0], route[-1]), route[1:-1]
    via = ", ".join(_name(names, k) for k in between)
    return f"{_name(names, ends[0])} to {_name(names, ends[1])} via {via}"


def _name(names: Sequence[str], site: int) -> str:
    return names[site] if site < len(names) else f"d{site}"


def _share(names: Sequence[str], site: int, layers: int, tp: int, pp: int) -> str:
    return f"{_name(names, site)}: {layers} layers (tp {tp}, pp {pp})"


def _line(
    shares: Sequence[str], *, dp: int, cp: int, ep: int, size: int, count: int, schedule: str, ahead: int,
    chunks: int, p2p: str, split: bool, every: int | None, routes: Sequence[str],
) -> str:  # fmt: skip
    parts = [(" > " if every is None else " | ").join(shares), f"dp {dp}"]
    parts += [f"cp {cp}"] if cp > 1 else []
    parts += [f"ep {ep}"] if ep > 1 else []
    parts.append(f"{count} micro-batch{'es' if count > 1 else ''} of {size}")
    parts.append(schedule + (f" of {chunks} chunks" if chunks > 1 else ""))
    parts += [] if p2p == "blocking" else [f"{p2p} sends"]
    parts += [f"warm-up +{ahead}"] if ahead else []
    parts += ["sequence parallel"] if split else []
    if every is not None:
        parts.append(f"replicas averaged every {f'{every} steps' if every > 1 else 'step'}")
    return ", ".join([*parts, *routes])


def _stored(match: re.Match[str], names: Sequence[str]) -> str:
    if match["site"] is not None:
        return _name(names, int(match["site"]))
    if match["word"] is not None:
        return f"{match['word']} {', '.join(_routes(match['routes'].split(', '), names))}"
    number = {name: int(match[name] or 1) for name in ("dp", "cp", "ep", "size", "count", "chunks")}
    shares = [_share(names, *(int(x) for x in share.groups())) for share in _SHARE.finditer(match["shares"])]
    return _line(
        shares, **number, schedule=match["schedule"], ahead=int(match["ahead"] or 0), p2p=match["p2p"],
        split=bool(match["split"]), every=int(match["every"]) if match["every"] else None,
        routes=_routes(match["via"].split(" via ")[1:], names),
    )  # fmt: skip


def _routes(texts: Sequence[str], names: Sequence[str]) -> list[str]:
    return [route_text([int(k) for k in text.split("-")], names) for text in texts]
