"""First and last section: what the run is, and how to check that the page shows it."""

from replay.report.formatting import time_unit
from replay.report.run_data import RunData
from replay.report.section import Section, section


def head(run: RunData, run_id: str) -> Section:
    """Title, kind of data, and how the run was made."""
    header, scale_unit = run.header, time_unit(run.end_s)
    name, policy = header["scenario"]["name"], header["policy"]
    return section(
        "head",
        heading=f"{name} under {policy}" if run.is_replay else f"{name}: log of {policy}",
        length=f"{run.end_s / scale_unit[0]:.3g} {scale_unit[1]}" if run.is_replay else None,
        run_id=run_id,
        header=header,
        model=header["scenario"]["model"],
        domains=run.domains,
        dataset=run.dataset,
        synthetic=run.synthetic,
        finished=run.finished,
    )


def verification(run: RunData, run_id: str, digest: str, chain_head: str) -> Section:
    """Digests of the run and its inputs, the modelling of its links, and the command that checks them."""
    header = run.header
    facts = [
        ("digest of the events", digest),
        ("chain head", chain_head),
        ("events", f"{run.events:,}"),
        ("configuration", header["config_digest"]),
        ("code", " ".join(map(str, header["code"].values()))),
        ("checkpoint", header["checkpoint"] or "none: not a learned policy"),
        *((f"traces: {name}", digest) for name, digest in header["traces"].items()),
    ]
    note = header.get("note", "") or "none"
    return section("verification", "How to check this", facts=facts, note=note, run_id=run_id)
