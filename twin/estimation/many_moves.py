"""Migrations from many pipelines to many others under one link state, as `Estimator.move` has them, in one
compiled pass."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from ingest.core.units import BITS_PER_BYTE
from twin.core.domain import LinkState
from twin.core.job import JobSpec
from twin.core.plan import Plan
from twin.costs.migration import holders, state_of
from twin.estimation.estimator import Estimator

Int = NDArray[np.int64]
Float = NDArray[np.float64]

KEPT = 4096
"""Plans whose layers' places are kept for an estimator."""


class _Placed(NamedTuple):
    """Places of the N layers of a plan over K domains, for compiled code."""

    owner: Int  # (N,) number of the GPUs and the tensor width that hold a layer
    domain: Int  # (N,)
    resharding_bps: Float  # (K,) of all GPUs of a share together; infinite without one
    copies: Float  # (2,) replicas of a layer and of its experts, and degree of expert parallelism


class _Places:
    """The places of plans of one estimator, each computed once."""

    def __init__(self) -> None:
        self._owners: dict[object, int] = {}
        self._known: dict[Plan, _Placed] = {}

    def of(self, estimator: Estimator, plan: Plan) -> _Placed:
        if plan not in self._known:
            if len(self._known) >= KEPT:
                self._known.clear()
                self._owners.clear()
            self._known[plan] = self._placed(estimator, plan)
        return self._known[plan]

    def _placed(self, estimator: Estimator, plan: Plan) -> _Placed:
        owners = [owner for (owner,) in holders(plan)]
        bps = np.full(estimator.cluster.size, np.inf)
        for share in plan.shares:
            domain = estimator.cluster.domains[share.domain]
            nodes = {gpu // domain.gpus_per_node for gpu in share.gpus}
            speed = domain.intra_node_bps if len(nodes) == 1 else domain.inter_node_bps
            bps[share.domain] = len(share.gpus) * speed
        numbers = [self._owners.setdefault(owner, len(self._owners)) for owner in owners]
        copies = np.array([plan.dp, plan.dp // plan.ep, plan.ep], dtype=np.float64)
        return _Placed(np.array(numbers), np.array([owner[0] for owner in owners]), bps, copies)


_PLACES: WeakKeyDictionary[Estimator, _Places] = WeakKeyDictionary()


def moves(
    estimator: Estimator, old: Sequence[Plan], new: Sequence[Plan], links: LinkState
) -> tuple[Float, Float]:
    """Returns seconds (P, Q), restart included, and bytes (P, Q, K, K) of going from each of P pipelines to
    each of Q others whose layers move over direct links."""
    places, size = _PLACES.setdefault(estimator, _Places()), estimator.cluster.size
    before, after = ([places.of(estimator, plan) for plan in plans] for plans in (old, new))
    moved, seconds = np.zeros((len(old), len(new), size, size)), np.empty((len(old), len(new)))
    arrays = [_Placed(*map(np.stack, zip(*some, strict=True))) for some in (before, after)]
    limits = np.array([(one.egress_bps, one.ingress_bps) for one in estimator.cluster.domains]).T.copy()
    # Of read-only arrays the code would be compiled again.
    now = [np.array(x, np.float64, order="C") for x in (links.bandwidth_bps, links.latency_s)]
    _fill_moves(*arrays, _layer_bytes(estimator.job), (*now, limits), moved, seconds)
    kinds = [[state_of(plan) for plan in plans] for plans in (old, new)]
    restarts = np.array([[a != b for b in kinds[1]] for a in kinds[0]])
    return np.where(restarts, seconds + estimator.restart_s, 0.0), moved


@lru_cache(maxsize=16)
def _layer_bytes(job: JobSpec) -> Float:
    """Returns bytes of each layer and of its experts (2, N)."""
    layers, element = job.model.layers(), job.model.bytes_per_element
    each = [element if layer.frozen else job.bytes_per_moved_parameter for layer in layers]
    experts = [layer.routed * one for layer, one in zip(layers, each, strict=True)]
    return np.array([[job.moved_bytes(layer) for layer in layers], experts], dtype=np.float64)


@njit(borrowing=True, cache=True, nogil=True)
def _fill_moves(old, new, layers, links, moved, seconds):  # type: ignore[no-untyped-def]
    """Fills `moved` (P, Q, K, K), zero at first, and `seconds` (P, Q), the restart aside."""
    old_owner, old_domain, _, old_copies = old
    owner, domain, resharding_bps, copies = new
    for p in range(len(old_owner)):
        for q in range(len(owner)):
            other_ep = old_copies[p, 2] != copies[q, 2]
            bytes_ = moved[p, q]
            for n in range(owner.shape[1]):
                size, experts, k = layers[0, n], layers[1, n], domain[q, n]
                if old_domain[p, n] != k:
                    bytes_[old_domain[p, n], k] += size
                elif old_owner[p, n] != owner[q, n]:
                    bytes_[k, k] += (size - experts) * copies[q, 0] + experts * copies[q, 1]
                elif other_ep and experts > 0:
                    bytes_[k, k] += experts * copies[q, 1]
            slowest = _slowest_transfer(bytes_, links)
            for k in range(len(bytes_)):
                slowest = max(slowest, bytes_[k, k] * BITS_PER_BYTE / resharding_bps[q, k])
            seconds[p, q] = slowest


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _slowest_transfer(moved, links):  # type: ignore[no-untyped-def]
    """Returns seconds until the last byte between domains has arrived: over each link, and over all that a
    domain sends or receives."""
    bandwidth_bps, latency_s, limits_bps = links
    slowest, size = 0.0, len(moved)
    for i in range(size):
        sent, received, sent_s, received_s = 0.0, 0.0, np.inf, np.inf
        for j in range(size):
            if i != j and moved[i, j] != 0:
                bps = min(bandwidth_bps[i, j], limits_bps[0, i], limits_bps[1, j])
                slowest = max(slowest, latency_s[i, j] + _transmission_s(moved[i, j], bps))
                sent += moved[i, j]
                sent_s = min(sent_s, latency_s[i, j])
            if i != j and moved[j, i] != 0:
                received += moved[j, i]
                received_s = min(received_s, latency_s[j, i])
        if sent > 0:
            slowest = max(slowest, sent_s + _transmission_s(sent, limits_bps[0, i]))
        if received > 0:
            slowest = max(slowest, received_s + _transmission_s(received, limits_bps[1, i]))
    return slowest


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _transmission_s(size_bytes, bps):  # type: ignore[no-untyped-def]
    """Returns the seconds of a transfer, infinite over a dead link."""
    return size_bytes * BITS_PER_BYTE / bps if bps > 0 else np.inf
