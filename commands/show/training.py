"""Prints trainings: results, verdicts of retrainings, policies and checkpoints."""

from typing import Any

from commands.show.console import Console, cell

Json = dict[str, Any]


def trained(console: Console, result: Json) -> None:
    """Prints the result of a training; a learner other than the first one has none."""
    if not result["checkpoint"]:
        console.line(f"trained along for {result['seconds']:.0f} s; the first learner writes the result")
        return
    state = "finished" if result["finished"] else "interrupted: go on with --resume"
    console.line(f"training {state} after {result['updates']} updates, {result['seconds']:.0f} s")
    console.line(f"checkpoint  {result['checkpoint']}{' (active)' if result['active'] else ''}")
    if result["replaced"]:
        console.line(f"in place of {result['replaced']}; `twin policies --rollback` goes back to it")
    console.line(f"validation  {cell(result['score'])}")
    if result["run"]:
        console.line(f"run         {result['run']}")


def trained_order(console: Console, result: Json) -> None:
    """Prints what a training made of an order of the queue."""
    state = "finished" if result["finished"] else "interrupted: go on with --resume"
    own, imitated = (result["validation"][name] for name in ("geometric_mean", "imitated"))
    console.line(f"training {state} after {result['steps']} steps, {result['minutes']:.1f} min")
    console.line(f"begun at    {result['heuristic']}+easy ({result['agreement']:.1%} of its choices)")
    console.line(f"validation  geometric mean slowdown {own:.3f}, imitated order {imitated:.3f}")
    console.line(f"file        {result['file']}, sha256 {result['digest'][:12]}")


def retrained(console: Console, result: Json) -> None:
    """Prints the verdict of a retraining."""
    state = "promoted" if result["promoted"] else "rejected"
    console.line(f"challenger {result['challenger'][:12]} {state}: {result['reason']}")
    console.table("paired against the champion", ("kpi", "mean", "low", "high"), [
        tuple(verdict.values()) for verdict in result["verdicts"]
    ])  # fmt: skip
    console.line(f"run         {result['run']}")
    console.line(f"chain head  {result['chain_head']}")


def policies(console: Console, found: Json) -> None:
    """Prints registered policies and stored checkpoints."""
    rows = [(p["name"], p["summary"], p.get("distribution")) for p in found["policies"]]
    plugins = any(origin for *_, origin in rows)  # the column is there only if one policy is a plugin
    columns = ("name", "what it does", "plugin of")[: 2 + plugins]
    console.table("policies", columns, [row[: len(columns)] for row in rows])
    for problem in found.get("problems", ()):
        console.line(problem)
    checkpoints = [_checkpoint(c, record) for c in found["checkpoints"] for record in c["records"] or [None]]
    if checkpoints:
        columns = (
            "digest", "active", "parent", "made by", "verdict", "score", "of champion", "data", "code",
            "problem",
        )  # fmt: skip
        console.table("checkpoints", columns, checkpoints)
    console.line(f"active checkpoint  {found['active'] or 'none: the shipped one'}")


def _checkpoint(found: Json, record: Json | None) -> tuple[Any, ...]:
    """Returns the row of a checkpoint and one training that made it; without a logged one, the lineage of the
    file. Scores: validation score of a training, mean tokens of the evaluation runs of a retraining."""
    own = found["lineage"]
    start = (found["digest"][:12], found["active"])
    if record is None:
        sets = [str(entry[0]) for entry in own.get("data", ())]
        data = ", ".join(sets[:2]) + (f" and {len(sets) - 2} more" if len(sets) > 2 else "")
        return (*start, "-", "-", "-", own.get("score"), "-", data, own.get("code", "-"), own.get("problem"))
    scores = record["scores"]
    wan = next(iter(record["data"]["traces"].values()), "")
    return (
        *start, (record["parent"] or "from scratch")[:12], record["run_id"], record["verdict"],
        scores.get("challenger", {}).get("tokens", own.get("score")),
        scores.get("champion", {}).get("tokens"), f"{record['data']['window']} {wan[:8]}",
        record["code"].get("sources", "-")[:8], own.get("problem"),
    )  # fmt: skip
