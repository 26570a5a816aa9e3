"""Pairs of a large total weight among nodes of few kinds: greedy, then exchanges.

Muri pairs jobs by Edmonds' blossom algorithm. Here jobs are of few kinds (model and size), so that pairs are
taken by weight, the heaviest kind of pair first, and partners are exchanged between two kinds of pairs as
long as that adds weight. A test holds the result beside the optimum of small graphs.
"""

from collections.abc import Callable, Sequence


def paired_by_kind(kinds: Sequence[int], weight_of: Callable[[int, int], float]) -> list[tuple[int, int]]:
    """Returns pairs of nodes by their kinds: of each kind of pair as many as there are nodes for, the
    heaviest kind first, then exchanges; nodes of a kind are taken in their order."""
    distinct = sorted(set(kinds))
    waiting = {kind: [at for at, one in enumerate(kinds) if one == kind] for kind in distinct}
    options = [(weight_of(a, b), a, b) for i, a in enumerate(distinct) for b in distinct[i:]]
    counts = dict[tuple[int, int], int]()
    left = {kind: len(nodes) for kind, nodes in waiting.items()}
    for weight, a, b in sorted(options, key=lambda one: (-one[0], one[1], one[2])):
        many = min(left[a], left[b]) if a != b else left[a] // 2
        if weight > 0 and many:
            counts[a, b] = many
            left[a] -= many
            left[b] -= many
    _exchange_kinds(counts, weight_of)
    pairs = []
    for (a, b), many in sorted(counts.items()):
        pairs += [_sorted((waiting[a].pop(0), waiting[b].pop(0))) for _ in range(many)]
    return pairs


def _exchange_kinds(counts: dict[tuple[int, int], int], weight_of: Callable[[int, int], float]) -> None:
    """Exchanges partners between kinds of pairs, as many at once as there are, while that adds weight."""
    better = True
    while better:
        better = False
        for one in sorted(counts):
            for other in sorted(counts):
                many = min(counts[one], counts[other]) if one != other else counts[one] // 2
                if not many:
                    continue
                (a, b), (c, d) = one, other
                now = weight_of(a, b) + weight_of(c, d) + 1e-12
                for x, y in ((_sorted((a, c)), _sorted((b, d))), (_sorted((a, d)), _sorted((b, c)))):
                    if min(weight_of(*x), weight_of(*y)) > 0 and weight_of(*x) + weight_of(*y) > now:
                        counts[one] -= many
                        counts[other] -= many
                        for pair in (x, y):
                            counts[pair] = counts.get(pair, 0) + many
                        better = True
                        break


def _sorted(pair: tuple[int, int]) -> tuple[int, int]:
    return (min(pair), max(pair))
