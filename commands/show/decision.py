"""Prints one decision: the choice and its reasons, its consequences, and the policy's view."""

from typing import TYPE_CHECKING, Any

from commands.show.console import Console

if TYPE_CHECKING:  # a command loads only the packages of its own result
    from replay.audit.audit import DecisionAudit


def decision(console: Console, found: "DecisionAudit") -> None:
    """Prints a decision: trigger, choice, reason, candidates, baselines, traffic and aftermath."""
    explanation = found.explanation
    state = "reproduced" if found.reproduced else f"not reproduced: {found.difference}"
    where = f"{found.run_id} decision {found.number} at {explanation.at_s:,.0f} s"
    console.line(f"{where} ({explanation.trigger}): {state}")
    for line in trigger_lines(explanation.reasons, explanation.domains):
        console.line(line)
    console.line(f"{explanation.action}: {explanation.reason}")
    console.line(f"plan in force afterwards: {explanation.chosen or '-'}")
    limit = "-" if explanation.limit is None else explanation.limit.text
    console.line(f"limited by (time saved without it): {limit}")
    if explanation.fallback:
        console.line(f"fallback: {explanation.fallback}")
    for text in explanation.tipping_text:
        console.line(text)
    console.fields("expected reward", explanation.reward)
    if explanation.candidates:
        columns = tuple(explanation.candidates[0])
        rows = [tuple(candidate[column] for column in columns) for candidate in explanation.candidates]
        console.table("candidates", columns, rows)
    baselines = [(name, *baseline.values()) for name, baseline in explanation.baselines.items()]
    if baselines:
        columns = ("policy", *next(iter(explanation.baselines.values())))
        console.table("the baselines would have done", columns, baselines)
    traffic = [(name, *row) for name, row in zip(explanation.domains, explanation.traffic_bytes, strict=True)]
    console.table("bytes an iteration between domains", ("from / to", *explanation.domains), traffic)
    console.fields("what happened until the next decision", found.aftermath)


def trigger_lines(reasons: dict[str, list[Any]], domains: tuple[str, ...] | list[str]) -> list[str]:
    """Returns a line for each trigger with details: its links, domains or jobs."""
    lines = []
    for trigger, details in reasons.items():
        about: list[str] = []
        for detail in details:
            if isinstance(detail, list):  # links whose filter gave an alarm, or that have changed
                about += [f"{domains[i]} > {domains[j]}" for i, j in detail]
                continue
            for what, which in detail.items():
                if what == "link":
                    about.append(f"{domains[which[0]]} > {domains[which[1]]}")
                elif what in ("domain", "domains"):
                    about += [domains[k] for k in (which if isinstance(which, list) else [which])]
                else:
                    about.append(f"{what.replace('_', ' ')} {which}")
        if about:
            lines.append(f"set off by {trigger}: {', '.join(about)}")
    return lines


def seen(console: Console, found: "DecisionAudit") -> None:
    """Prints the view of a decision, its allowed actions, and the model that decided."""
    view, domains = found.recorded["observation"], found.explanation.domains
    mask = found.recorded["mask"]
    allowed = (
        f"{sum(mask)} of {len(mask)} settings of dp and micro-batch are open"
        if mask
        else "none: any legal plan could be named"
    )
    gpus = zip(domains, view["free_gpus"], view["slowdown"], strict=True)
    console.line(f"model  {found.checkpoint or 'none: not a learned policy'}")
    console.line(f"mask   {allowed}")
    console.line("GPUs   " + ", ".join(f"{name} {free} free at {slow:g} x" for name, free, slow in gpus))
    ahead = [f"{horizon:g} s ahead" for horizon in view["horizons_s"][1:]]
    columns = ("link", "one way ms", "now Gb/s", *ahead, "sd of log at the end")
    console.table("links as they were seen and expected", columns, _links(view, domains))


def _links(view: dict[str, Any], domains: tuple[str, ...] | list[str]) -> list[tuple[str, ...]]:
    """Returns a row a link: latency, bandwidth at each horizon, uncertainty at the last one."""
    pairs = [(i, j) for i in range(len(domains)) for j in range(len(domains)) if i != j]
    return [
        (
            f"{domains[i]} > {domains[j]}",
            f"{1e3 * view['latency_s'][i][j]:.1f}",
            *(f"{matrix[i][j] / 1e9:.2f}" for matrix in view["bandwidth_bps"]),
            f"{view['sd_log'][-1][i][j]:.3f}",
        )
        for i, j in pairs
    ]
