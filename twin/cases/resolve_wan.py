"""Domains of the stages of a case, and bandwidth and latency of its wide-area boundaries."""

from collections.abc import Mapping

from twin.cases.case import Measured, Replicas, Times, Wan
from twin.cases.column_definitions import BadCellError, Cell


def domains_of(cells: Mapping[str, Cell], pp: int, measured: Measured) -> tuple[int, ...]:
    """Domain of every stage (S,), numbered in order of appearance.

    Raises:
        BadCellError: the entries do not fit the stages.
    """
    given: tuple[str, ...] | None = cells.get("domains")
    if given is None:
        return _implied_domains(cells, pp, measured)
    if len(given) == pp and pp > 1:
        names = list(dict.fromkeys(given))
        return tuple(names.index(name) for name in given)
    if len(given) > 1:
        stages = [int(part) for part in given if part.isdecimal()]
        if len(stages) < len(given) or sum(stages) != pp or 0 in stages:
            raise BadCellError(
                "domains", f"{len(given)} entries for {pp} stages; name the domain of every stage (a-a-b-b), "
                "or how many stages each domain has (2-2)",
            )  # fmt: skip
        return tuple(k for k, many in enumerate(stages) for _ in range(many))
    try:
        wanted = int(given[0])
    except ValueError:
        return (0,) * pp  # one name: everything lies there
    if not 1 <= wanted <= pp:
        raise BadCellError("domains", f"{wanted} domains need at least as many stages, pp is {pp}; raise pp")
    return tuple(k for k, stages in enumerate(_even(pp, wanted)) for _ in range(stages))


def names_of(cells: Mapping[str, Cell], pp: int) -> tuple[str, ...]:
    """Names of the domains in order of appearance; none where the column has numbers."""
    given: tuple[str, ...] = cells.get("domains") or ()
    if len(given) not in (1, pp) or all(part.isdecimal() for part in given):
        return ()
    return tuple(dict.fromkeys(given))


def _implied_domains(cells: Mapping[str, Cell], pp: int, measured: Measured) -> tuple[int, ...]:
    """Domains where the column is empty: a boundary with a cost in a list per boundary joins two domains."""
    wan: Times = cells.get("wan_bps", ())
    across = [False] * (pp - 1)
    if measured.transfer_s or measured.latency_s:
        rows = [row for row in (measured.transfer_s, measured.latency_s) if row]
        across = [any(column) for column in zip(*rows, strict=True)]
    elif wan and len(wan) == pp - 1:
        across = [bps > 0 for bps in wan]
    elif wan:
        if pp == 1:
            raise BadCellError("wan_bps", "one stage has no wide-area boundary: raise pp or empty this cell")
        if len(wan) > pp - 1:
            raise BadCellError("wan_bps", f"{len(wan)} entries, but {pp} stages have {pp - 1} boundaries")
        halves = _even(pp, len(wan) + 1)
        across = [i + 1 in {sum(halves[: k + 1]) for k in range(len(wan))} for i in range(pp - 1)]
    domain = [0]
    for crossed in across:
        domain.append(domain[-1] + crossed)
    return tuple(domain)


def replicas_of(cells: Mapping[str, Cell]) -> Replicas:
    """Copies of the whole model and the ring between them.

    Raises:
        BadCellError: the ring has no bandwidth, or the copies are to be pipelines between domains, too.
    """
    copies, steps = cells.get("replicas", 1), cells.get("inner_steps", 1)
    if copies == 1:
        if steps > 1:
            raise BadCellError("inner_steps", f"{steps} inner steps need two or more replicas")
        return Replicas()
    for name in ("domains", "boundary_transfer_s", "boundary_latency_s"):
        if name in cells:
            raise BadCellError(name, f"each of {copies} replicas lies in one domain: leave this cell empty")
    bps, latency = cells.get("wan_bps", ()), cells.get("wan_latency_s", (0.0,))
    if len(bps) != 1 or len(latency) != 1 or not bps[0]:
        raise BadCellError("wan_bps", "give one bandwidth (and one latency) for the ring between replicas")
    return Replicas(copies, steps, bps[0], latency[0])


def wan_of(cells: Mapping[str, Cell], domains: tuple[int, ...], measured: Measured) -> Wan:
    """Bandwidth and latency of every boundary that joins two domains.

    Raises:
        BadCellError: something is missing or contradicts itself.
    """
    crossed = [i for i in range(len(domains) - 1) if domains[i] != domains[i + 1]]
    bps = _per_boundary(cells, "wan_bps", crossed, len(domains) - 1)
    latency = _per_boundary(cells, "wan_latency_s", crossed, len(domains) - 1)
    found: list[tuple[float, float] | None] = [None] * (len(domains) - 1)
    for i in crossed:
        if not bps.get(i) and measured.transfer_s is None:
            if i in bps:
                raise BadCellError(
                    "wan_bps",
                    f"0 between stages {i} and {i + 1}, which lie in two domains: nothing would ever arrive",
                )
            raise BadCellError(
                "wan_bps", f"stages {i} and {i + 1} lie in different domains: give the bandwidth"
            )
        if bps.get(i) and measured.transfer_s is None and "hidden" not in cells:
            raise BadCellError(
                "hidden", "a message over wan_bps is as large as hidden, seq and micro_batch make it: give "
                "hidden, or boundary_transfer_s",
            )  # fmt: skip
        found[i] = (bps.get(i, float("inf")) or float("inf"), latency.get(i, 0.0))
    return tuple(found)


def _per_boundary(cells: Mapping[str, Cell], name: str, crossed: list[int], all_of: int) -> dict[int, float]:
    """Values of a list by stage boundary: one for all, one per crossing, or one per stage boundary."""
    values: tuple[float, ...] = cells.get(name, ())
    if not values or not crossed:
        return {}
    if len(values) == all_of:
        return {i: values[i] for i in crossed}
    if len(values) == 1:
        return dict.fromkeys(crossed, values[0])
    if len(values) != len(crossed):
        raise BadCellError(
            name,
            f"{len(values)} entries for {len(crossed)} wide-area boundaries and {all_of} stage boundaries",
        )
    return dict(zip(crossed, values, strict=True))


def _even(total: int, parts: int) -> list[int]:
    """`total` over `parts` as evenly as possible, the remainder to the last ones."""
    base, rest = divmod(total, parts)
    return [base + (i >= parts - rest) for i in range(parts)]
