"""Finds the nodes of a data set of links that stand for sites which people name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from ingest.core.errors import UsageError
from ingest.core.terminal import shown
from twin.settings.wan_links import SourceSettings
from twin.traces.link_samples import LinkFacts, explain, facts

LISTED = 12
"""Nodes that a message lists."""
CODE = 3
"""Letters of a city's code, with which names of nodes begin."""


@dataclass(frozen=True, slots=True)
class SiteNodes:
    """The node of each site, and which sites bear the name of theirs; `facts` of the links between them."""

    nodes: Mapping[str, str]
    named: frozenset[str]
    facts: tuple[LinkFacts, ...]

    @property
    def words(self) -> str:
        """The mapping of sites, in words."""
        each = (
            f"{site} = {node} ({'by name' if site in self.named else 'in order of nodes'})"
            for site, node in self.nodes.items()
        )
        return f"sites on nodes of the data set: {', '.join(each)}"


def nodes_of(store: Path, dataset: str, sites: Sequence[str]) -> SiteNodes:
    """Returns the nodes of sites: that of the same name, else the first that contains it in any case, else
    the first with its first three letters; the others take those left in order, best connected first. Each
    but those of the same name is measured to and from all before it.

    Raises:
        NotFoundError: the lake lacks the data set. UsageError: it has too few nodes with links between them.
    """
    known = facts(store, dataset)
    if not known:
        raise explain(store, SourceSettings(dataset=dataset), [], "bandwidth sample")
    both = {pair for pair in known if pair[::-1] in known}
    nodes = sorted({end for pair in known for end in pair})
    degree = {node: sum(src == node for src, _ in both) for node in nodes}
    nodes.sort(key=lambda node: -degree[node])
    found = {site: site for site in sites if site in degree}
    for matches in (_contains, _begins):
        for site in sites:
            if site not in found and (fits := _next(nodes, found, both, partial(matches, site.lower()))):
                found[site] = fits
    named = frozenset(found)
    for site in sites:
        if site not in found:
            found[site] = _next(nodes, found, both) or _none_left(nodes, found, site, dataset)
    _check(found, both, dataset)
    ends = set(found.values())
    between = tuple(fact for (src, dst), fact in known.items() if src in ends and dst in ends)
    return SiteNodes({site: found[site] for site in sites}, named, between)


def _contains(site: str, node: str) -> bool:
    return site in node.lower()


def _begins(site: str, node: str) -> bool:
    """Tells whether a node begins like the site, as codes of cities do: lon02 for london."""
    return len(site) >= CODE and node.lower().startswith(site[:CODE])


def _next(
    nodes: Sequence[str],
    found: Mapping[str, str],
    both: set[tuple[str, str]],
    fits: Callable[[str], bool] = bool,
) -> str | None:
    """Returns the first fitting node that no site has and that has links with those of all others."""
    taken = set(found.values())
    free = (node for node in nodes if node not in taken and fits(node))
    return next((node for node in free if all((node, other) in both for other in taken)), None)


def _none_left(nodes: Sequence[str], found: Mapping[str, str], site: str, dataset: str) -> NoReturn:
    listed = ", ".join(nodes[:LISTED]) + (f" and {len(nodes) - LISTED} more" if len(nodes) > LISTED else "")
    raise UsageError(
        f"data set {dataset!r} has no node left for site {shown(site)} that is measured to and from "
        f"{', '.join(found.values()) or 'another'}; name fewer sites, or nodes of it: {listed}"
    )


def _check(found: Mapping[str, str], both: set[tuple[str, str]], dataset: str) -> None:
    """Refuses named sites between which nothing was measured."""
    ends = list(found.values())
    for n, node in enumerate(ends):
        for other in ends[:n]:
            if (node, other) not in both:
                near = sorted(a for a, b in both if b == node)[:LISTED]
                raise UsageError(
                    f"data set {dataset!r} has no link both ways between {node!r} and {other!r}; "
                    f"{node!r} has links with: {', '.join(near) or 'none'}"
                )
