"""Section of the scenario: what was simulated, on which links, when, and the command that makes it again."""

import shlex
from typing import Any

import yaml

from replay.log.events import Json
from replay.report.drawing.formatting import date, time_unit
from replay.report.drawing.section import Section, section
from replay.report.run_data import RunData


def scenario(run: RunData, run_id: str) -> Section | None:
    """Facts, commands and the scenario file with every default; None for a log in which nothing ran."""
    if not run.is_replay:
        return None
    header = run.header
    file = f"{_file_name(header['scenario']['name'])}.yaml"
    return section(
        "provenance", "Scenario, and how to make it again", facts=_facts(run),
        here=f"twin replay --run {run_id}",
        elsewhere=command(header, file), file=file, run_id=run_id, dataset=run.dataset,
        text=yaml.safe_dump(header["scenario"], sort_keys=False, allow_unicode=True),
    )  # fmt: skip


def command(header: Json, file: str) -> str | None:
    """Returns the command that makes the run in another store from its scenario `file` and data set; None for
    a what-if from a decision on, a kept plan, or a part of something larger: these need their origin."""
    if any(header.get(name) is not None for name in ("branch", "plan", "part_of")):
        return None
    words = ["twin", "replay", "--policy", header["policy"], "--scenario", file]
    if header.get("dataset"):
        words += ["--dataset", header["dataset"]]
    words += _window(header)
    words += ["--engine", header["engine"], "--seed", str(header["seed"])]
    if header.get("checkpoint"):
        words += ["--checkpoint", header["checkpoint"][:16]]
    if header.get("enforce_deadline"):
        words.append("--deadline")
    return shlex.join(words)


def _window(header: Json) -> list[str]:
    span = header.get("span")
    if span is None:
        return ["--window", str(header["window"])]
    ends = (("--from", span["from_ns"]), ("--to", span["to_ns"]))
    return [word for name, ns in ends if ns is not None for word in (name, f"{ns / 1e9:.15g}")]


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name)


def _facts(run: RunData) -> list[tuple[str, str]]:
    header, made = run.header, run.header["scenario"]
    scale, unit = time_unit(run.end_s)
    domains = [f"{domain['name']}: {domain['gpus']} {_gpu(made, domain)}" for domain in _domains(made)]
    links = run.dataset + (" (synthetic)" if run.synthetic else "")
    when = f"{date(run.origin_s)} to {date(run.origin_s + run.end_s)} UTC, {run.end_s / scale:.3g} {unit}"
    if run.undated:
        when += "; the files of the links have no dates, the day is arbitrary"
    return [
        ("model", made["model"]),
        ("sites", "; ".join(domains)),
        ("links", links),
        ("modelling of the links", header.get("note", "") or "none"),
        ("time", when),
        ("part of the record", str(header["window"])),
        ("policy", header["policy"]),
        ("engine, seed", f"{header['engine']}, {header['seed']}"),
    ]


def _domains(made: Json) -> list[dict[str, Any]]:
    return list(made["cluster"]["domains"])


def _gpu(made: Json, domain: dict[str, Any]) -> str:
    """Model of a domain's GPUs; its own or that of the cluster."""
    own = (domain.get("hardware") or {}).get("gpu") or (made["cluster"].get("hardware") or {}).get("gpu")
    return str(own) if isinstance(own, str) else "GPUs"
