"""The masks against brute force over every completion, on small spaces."""

from functools import cache
from itertools import permutations

import numpy as np
import pytest

from policy.hippo.tables.masks import Masks, Space, merge_classes


def space(seed: int, *, k: int = 3, n: int = 7, gpipe: bool = False) -> Space:
    """Random capacities that fall with the micro-batches in flight; two classes of domains."""
    rng = np.random.default_rng(seed)
    knobs, choices, flights = 2, 3, 6
    class_of = rng.integers(0, 2, k)
    class_of[:2] = [0, 1]
    pp = np.tile(np.array([1, 2, 3]), (knobs, 2, 1))
    pp[1, 0, 2] = 0
    capacity = np.zeros((knobs, 2, choices, flights, 2, 2), dtype=np.int64)
    base = rng.integers(1, 4, (knobs, 2, choices, 2, 2))
    for f in range(flights):
        capacity[:, :, :, f] = np.maximum(base - f // rng.integers(1, 4), 0)
    micro_batches = np.array([4, 6], dtype=np.int64)
    return Space(n, micro_batches, class_of, np.where(pp > 0, 1, 0), pp, capacity, gpipe)


def fits(s: Space, c: int, k: int, q: int, layers: int, n: int, behind: int) -> bool:
    """The definition, written out: blocks split evenly, remainder to the last stages, embedding and head
    added where the share holds them (dealt out like blocks where those are too few), in flight counted from
    the end.
    """
    z, m = s.class_of[k], int(s.micro_batches[c])
    pp = int(s.pp[c, z, q])
    if pp == 0 or layers < pp:
        return False
    embedding, head = int(layers == n), int(n == s.n_layers)
    if layers - embedding - head < pp:
        embedding = head = 0
    blocks = layers - embedding - head
    counts = [blocks // pp + (j >= pp - blocks % pp) for j in range(pp)]
    counts[0] += embedding
    counts[-1] += head
    for j, count in enumerate(counts):
        flight = m if s.all_in_flight else min(m, behind + pp - j)
        first, last = int(layers == n and j == 0), int(n == s.n_layers and j == pp - 1)
        if count > s.capacity[c, z, q, min(flight, s.capacity.shape[3]) - 1, first, last]:
            return False
    return True


def completable(s: Space, c: int, free: frozenset[int], n: int, behind: int) -> bool:
    @cache
    def go(free: frozenset[int], n: int, behind: int) -> bool:
        if n == 0:
            return True
        return any(
            fits(s, c, k, q, layers, n, behind)
            and go(free - {k}, n - layers, behind + int(s.pp[c, s.class_of[k], q]))
            for k in free
            for layers in range(1, n + 1)
            for q in range(s.pp.shape[2])
        )

    return go(free, n, behind)


@pytest.mark.parametrize("gpipe", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_masks_equal_brute_force(seed: int, gpipe: bool) -> None:
    s = space(seed, gpipe=gpipe)
    masks = Masks(s)
    k_all = len(s.class_of)
    checked = 0
    for c in range(2):
        assert masks.knobs()[c] == completable(s, c, frozenset(range(k_all)), s.n_layers, 0)
        for used in [set(), {0}, {1}, {0, 2}]:
            flags = np.zeros((1, k_all), dtype=np.bool_)
            flags[0, list(used)] = True
            for n in range(1, s.n_layers + 1):
                for behind in (0, 1, 3) if used else (0,):
                    one = [np.array([v], dtype=np.int64) for v in (c, n, behind)]
                    got = masks.steps(one[0], flags, one[1], one[2])[0]
                    for k in range(k_all):
                        for layers in range(1, s.n_layers + 1):
                            ways = [
                                k not in used
                                and layers <= n
                                and fits(s, c, k, q, layers, n, behind)
                                and completable(
                                    s,
                                    c,
                                    frozenset(range(k_all)) - used - {k},
                                    n - layers,
                                    behind + int(s.pp[c, s.class_of[k], q]),
                                )
                                for q in range(3)
                            ]
                            assert got[k, layers - 1] == any(ways)
                            checked += any(ways)
                            if any(ways):
                                pick = [np.array([v], dtype=np.int64) for v in (k, layers)]
                                assert masks.choices(one[0], flags, *one[1:], *pick)[0].tolist() == ways
    assert checked or not masks.knobs().any()


def test_random_walks_never_get_stuck() -> None:
    rng = np.random.default_rng(7)
    walks = 0
    for seed in range(20):
        s = space(seed, k=4, n=9)
        masks = Masks(s)
        for c in np.flatnonzero(masks.knobs()):
            for _ in range(20):
                used, n, behind = np.zeros((1, 4), dtype=np.bool_), s.n_layers, 0
                knob = np.array([c])
                while n:
                    open_ = masks.steps(knob, used, np.array([n]), np.array([behind]))[0]
                    k, layers = rng.permutation(np.argwhere(open_))[0] + (0, 1)
                    args = (knob, used, np.array([n]), np.array([behind]), np.array([k]), np.array([layers]))
                    q = rng.permutation(np.flatnonzero(masks.choices(*args)[0]))[0]
                    used[0, k], n, behind = True, n - layers, behind + int(s.pp[c, s.class_of[k], q])
                walks += 1
    assert walks > 100


def test_merging_keeps_every_domain_once() -> None:
    kinds = [(i,) for i in permutations(range(3)).__next__()] * 3 + [(9,)]
    groups = merge_classes(kinds, limit=30)
    assert sorted(i for group in groups for i in group) == list(range(len(kinds)))
    assert np.prod([len(group) + 1 for group in groups]) <= 30
    assert merge_classes([("a",), ("b",), ("a",)]) == [[0, 2], [1]]
