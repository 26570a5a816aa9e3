"""What the run is, above everything, and how to check that the page shows it, at the end."""

from dataclasses import dataclass

from replay.log.events import Json
from replay.report.drawing.formatting import date, time_unit
from replay.report.drawing.section import Section, section
from replay.report.run_data import RunData


@dataclass(frozen=True, slots=True)
class Branch:
    """A what-if on its page: its parent, whether that is compared on the page, and what was changed."""

    parent: str
    compared: bool
    changes: tuple[str, ...]

    def title(self, what: str) -> str:
        """The title of the page of a what-if of `what`."""
        return f"What if in {what}: {', '.join(self.changes)}"


def head(run: RunData, run_id: str, branch: Branch | None = None) -> Section:
    """Title, kind of data, and when and where it ran; of a what-if what was changed, and in which run."""
    scale, unit = time_unit(run.end_s)
    return section(
        "head",
        heading=_heading(run, branch),
        branch=branch,
        live=bool(run.header.get("live")),
        length=f"{run.end_s / scale:.3g} {unit}" if run.is_replay else None,
        begin=date(run.origin_s),
        run=run,
        run_id=run_id,
        model=run.header["scenario"]["model"],
    )


def _heading(run: RunData, branch: Branch | None) -> str:
    name, policy = run.header["scenario"]["name"], run.header["policy"]
    if branch is not None:
        return branch.title(name)
    return f"{name} under {policy}" if run.is_replay else f"{name}: log of {policy}"


def verification(run: RunData, run_id: str, digest: str, chain_head: str) -> Section:
    """Digests of the run and its inputs, and the command that checks them."""
    header = run.header
    facts = facts_of(header, digest, chain_head, run.events)
    note = header.get("note", "") or "none"
    return section("verification", "How to check this", facts=facts, note=note, run_id=run_id)


def facts_of(header: Json, digest: str, chain_head: str, events: int) -> list[tuple[str, str]]:
    """Returns names and values of the digests of a run and of its inputs."""
    return [
        ("digest of the events", digest),
        ("chain head", chain_head),
        ("events", f"{events:,}"),
        ("configuration", header["config_digest"]),
        ("code", " ".join(map(str, header["code"].values()))),
        ("checkpoint", header["checkpoint"] or "none: not a learned policy"),
        *((f"traces: {name}", digest) for name, digest in header["traces"].items()),
    ]
