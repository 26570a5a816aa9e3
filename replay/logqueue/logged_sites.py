"""The sites of a queue run in its header, and what its jobs ask of them, to and from JSON values."""

from dataclasses import replace
from typing import Any

import numpy as np

from ingest.core.errors import UsageError
from twin.queue.jobs import Int, QueueJobs
from twin.sites.inputs import SiteJobs, SiteLinks, SiteOptions
from twin.sites.simulation import SiteSchedule, SiteWorld

Json = dict[str, Any]
SITES = "sites"
"""Key of the header's scenario."""
MOST_NUMBERS = 1_000_000
"""Numbers of links and rates that a header holds."""


def to_json(done: SiteSchedule) -> Json:
    """Returns the sites, the steps of the links, and the ways to run jobs.

    Raises:
        UsageError: there are too many steps for a header.
    """
    world = done.world
    if (numbers := world.links.kb_s.size + world.options.rate.size) > MOST_NUMBERS:
        raise UsageError(
            f"the links take {numbers:,} numbers, more than the {MOST_NUMBERS:,} that a run keeps: take "
            "links of fewer samples, or fewer sites"
        )
    return {
        "names": list(world.names), "gpus": world.gpus.tolist(), "links": _columns(world.links),
        "options": _columns(world.options),
    }  # fmt: skip


def world_from(stored: Json) -> SiteWorld:
    """Returns the sites of a header."""
    links, options = (_arrays(stored[name]) for name in ("links", "options"))
    options["need"] = options["need"].reshape(-1, len(stored["names"]))
    return SiteWorld(
        tuple(stored["names"]), np.array(stored["gpus"], np.int64), SiteLinks(**links), SiteOptions(**options)
    )


def spec_of(done: SiteSchedule, job: int) -> Json:
    """Returns what a submission tells of a job: its size, its data, and its run time in the log."""
    asked = done.asked
    return {
        "size": int(asked.size[job]), "data_kb": int(asked.data_kb[job]), "data_at": int(asked.data_at[job]),
        "run_ns": int(done.jobs.run_ns[job]),
    }  # fmt: skip


def schedule_from(
    stored: Json, specs: list[Json], ways: list[Json], jobs: QueueJobs, start_ns: Int, overtook: Any
) -> SiteSchedule:
    """Returns the schedule of a run; `jobs` have the time that they held GPUs for a run time."""

    def column(name: str, rows: list[Json]) -> Int:
        return np.array([one[name] for one in rows], np.int64)

    asked = SiteJobs(*(column(name, specs) for name in SiteJobs._fields))
    recorded = replace(jobs, run_ns=column("run_ns", specs))
    return SiteSchedule(
        recorded, asked, world_from(stored), start_ns, start_ns + jobs.run_ns, column("way", ways), overtook
    )


def select(asked: SiteJobs, places: Int) -> SiteJobs:
    """Returns the rows of some jobs."""
    return SiteJobs(*(np.ascontiguousarray(column[places]) for column in asked))


def overfull(done: SiteSchedule) -> list[str]:
    """Returns what cannot be: a site of which more GPUs are in use than it has."""
    need = done.world.options.need[done.option]
    order = np.lexsort((np.repeat((1, 0), len(need)), np.concatenate((done.start_ns, done.end_ns))))
    used = np.cumsum(np.concatenate((need, -need))[order], axis=0)
    most = used.max(axis=0, initial=0)
    return [
        f"{most[site]:,} GPUs are in use at {name}, which has {done.world.gpus[site]:,}"
        for site, name in enumerate(done.world.names)
        if most[site] > done.world.gpus[site]
    ]


def _columns(held: SiteLinks | SiteOptions) -> Json:
    return {name: column.tolist() for name, column in held._asdict().items()}


def _arrays(stored: Json) -> Json:
    return {name: np.array(column, np.int64) for name, column in stored.items()}
