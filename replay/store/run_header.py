"""The first event of a run: everything that the rest follows from, and how to start again from it."""

import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from ingest.core.errors import DamageError, UsageError
from ingest.core.names import STORED
from ingest.core.terminal import clipped
from replay.store.decision_codec import digest
from twin.engines.engine import EngineName
from twin.filters.link_filter import AlarmRule
from twin.scenario.prepare import Scenario
from twin.settings.window import Part, SeriesIdentity, TimeSpan, Window

STARTED = "started_epoch_ns"
"""Among the wall-clock facts of the first event: when the run was first started; resuming leaves it."""
MADE_BY = "made_by"
"""Among them, too: the command that made the run as a part of something larger; absent: nothing larger."""

QUEUE = "queue"
"""Policy named in the header of a queue run; its scheduler stands in the scenario, under this name too."""
NO_WORLD = "a queue run has no world of domains and links; `twin queue LOG -p A -p B` compares schedulers"

PACKAGES = ("ingest", "twin", "policy", "replay")


@cache
def code_version() -> dict[str, str]:
    """Returns the version of the distribution and the SHA-256 over the sources of its packages."""
    total = hashlib.sha256()
    root = Path(__file__).resolve().parents[2]
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py"), key=lambda p: p.relative_to(root).as_posix()):
            total.update(path.relative_to(root).as_posix().encode() + b"\0")
            total.update(hashlib.sha256(path.read_bytes()).digest())
    try:
        version = metadata.version("twin")
    except metadata.PackageNotFoundError:  # run from a source tree that was never installed
        version = "source"
    return {"version": version, "sources": total.hexdigest()}


@dataclass(frozen=True, slots=True)
class Header:
    """All inputs of a run: runs with equal headers have equal digests."""

    world: Mapping[str, Any]  # `PreparedScenario.header()`: scenario, data set, window, seed, trace digests
    policy: str
    engine: EngineName
    checkpoint: str | None  # digest; the files lie in the store under this name
    enforce_deadline: bool
    code: Mapping[str, str] = field(default_factory=code_version)
    branch: Mapping[str, Any] | None = None  # of a what-if: {"run", "decision", "window_ns"}, see `whatif`
    plan: Mapping[str, Any] | None = None  # that a run was told to keep, as `plan_to_json` writes it
    part_of: str | None = None  # the retraining that this run is an evaluation of
    live: Mapping[str, Any] | None = None  # of a service: `origin_epoch_ns`, `order_s`
    made_by: str | None = None  # `MADE_BY`; outside the payload, so that a run is the same whoever made it

    @property
    def seed(self) -> int:
        """Seed of every generator of the run."""
        return int(self.world["seed"])

    @property
    def window(self) -> Part:
        """Part of the series that is run."""
        if "span" in self.world:
            return TimeSpan(**self.world["span"])
        return cast(Window, self.world["window"])

    @property
    def window_ns(self) -> int:
        """Length of the window, ns; a what-if that ends earlier stores it in its branch."""
        return int((self.branch or {}).get("window_ns", self.world["end_ns"]))

    @property
    def seen(self) -> SeriesIdentity:
        """Identity of the series that the run was made from."""
        return SeriesIdentity(
            int(self.world["origin_epoch_ns"]), self.window_ns, self.world["traces"]["source"]
        )

    @property
    def alarm_rule(self) -> AlarmRule:
        """What counted as an alarm in the run; its decisions depend on it."""
        return cast(AlarmRule, self.world.get("alarm_rule", "restart"))

    @property
    def config_digest(self) -> str:
        """SHA-256 of the user's choices, without code and traces."""
        chosen = ("scenario", "window", "seed")
        config = {name: self.world[name] for name in chosen}
        own: dict[str, Any] = {
            "policy": self.policy,
            "engine": self.engine,
            "checkpoint": self.checkpoint,
            "enforce_deadline": self.enforce_deadline,
        }
        if isinstance(self.window, TimeSpan):
            own |= {"from_ns": self.window.from_ns, "to_ns": self.window.to_ns}
        if self.plan is not None:
            own |= {"plan": dict(self.plan)}
        if self.branch is not None:
            own |= {"branch": dict(self.branch), "end_ns": self.world["end_ns"]}
        if self.live is not None:
            own |= {"live": True}
        return digest({**config, **own})

    def payload(self) -> dict[str, Any]:
        """Returns the payload of `run_started`."""
        return {
            **self.world,
            "policy": self.policy,
            "engine": self.engine,
            "checkpoint": self.checkpoint,
            "enforce_deadline": self.enforce_deadline,
            "config_digest": self.config_digest,
            "code": dict(self.code),
            **({} if self.branch is None else {"branch": dict(self.branch)}),
            **({} if self.plan is None else {"plan": dict(self.plan)}),
            **({} if self.part_of is None else {"part_of": self.part_of}),
            **({} if self.live is None else {"live": dict(self.live)}),
        }

    def scenario(self) -> Scenario:
        """Returns the resolved scenario as an object.

        Raises:
            UsageError: it is that of a queue run. DamageError: no version wrote it.
        """
        if QUEUE in self.world["scenario"]:
            raise UsageError(NO_WORLD)
        try:  # from JSON text: only there do strict models accept lists for tuples
            return Scenario.model_validate_json(json.dumps(self.world["scenario"]), context=STORED)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            at = clipped(".".join(map(str, first["loc"])))
            raise DamageError(
                f"the scenario in the first event of the run is none ({at}: {first['msg']}); no version "
                "wrote it"
            ) from None


def from_payload(payload: Mapping[str, Any]) -> Header:
    """Returns the header that `Header.payload` wrote."""
    own = ("policy", "engine", "checkpoint", "enforce_deadline", "code")
    derived, later = "config_digest", ("branch", "plan", "part_of", "live")
    world = {name: value for name, value in payload.items() if name not in (*own, derived, *later)}
    return Header(
        world,
        **{name: payload[name] for name in own},
        branch=payload.get("branch"),
        plan=payload.get("plan"),
        part_of=payload.get("part_of"),
        live=payload.get("live"),
    )


def unfinished(header: Header, run_id: str) -> str:
    """Returns that a run is not finished, and what goes on with it."""
    way = f"`twin replay --resume {run_id}` goes on"
    if header.live is not None:
        way = "it is that of a service, which has no end; `twin audit`, `twin report` and `twin sql` read it"
    return f"{run_id}: the run is not finished; {way}"


def environment() -> dict[str, str]:
    """Returns interpreter, libraries and processor, which are logged outside the digest."""
    libraries = {name: _version(name) for name in ("numpy", "numba", "simpy", "torch", "torch-geometric")}
    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cpus": str(os.cpu_count() or 0),
        **libraries,
    }


def opening(made_by: str | None = None) -> dict[str, Any]:
    """Returns the wall-clock facts of a run's first event: its environment, its start (ns since the epoch),
    and `made_by` where something larger made it."""
    own = {} if made_by is None else {MADE_BY: made_by}
    return {"environment": environment(), STARTED: time.time_ns(), **own}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "absent"
