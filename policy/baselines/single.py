"""`single`: traditional single-domain scheduling; the fastest plan inside one domain, decided once."""

import numpy as np

from ingest.core.errors import InfeasibleError
from ingest.core.units import GIB
from policy.baselines.replan_conditions import must_replan
from policy.search.parallelism_options import Menu
from policy.core.protocol import Context, Decision
from policy.search.batch_scoring import Rows
from policy.search.plan_search import Pool, build
from twin.estimate.estimator import Estimator
from twin.core.plan import Plan
from twin.core.view import View


class Single:
    """All layers in the one domain where an iteration is fastest; moves only when its plan became illegal."""

    name = "single"

    def reset(self, context: Context) -> None:
        """Start a run."""
        self.estimator = context.estimator

    def decide(self, view: View) -> Decision:
        """The fastest single domain at the start and after a failure, else hold."""
        if view.plan is not None:
            broken = must_replan(self.estimator, view)
            if not broken:
                return Decision(None, "a single domain is chosen once")
        try:
            plan, ns = fastest_single(self.estimator, view)
        except InfeasibleError:
            if view.plan is None:
                raise
            return Decision(None, "no single domain that is left can hold the model")
        if plan == view.plan:
            return Decision(None, "no better single domain is left")
        return Decision(plan, f"fastest single domain: {plan}", predicted_iter_s=ns / 1e9)


def fastest_single(estimator: Estimator, view: View) -> tuple[Plan, int]:
    """The plan inside one domain with the shortest iteration, and its ns.

    Raises:
        InfeasibleError: the model fits in no domain; the message has the least memory that any of them needs.
    """
    pool = Pool(estimator, view.forecast.links(), view.free_gpus, view.slowdown)
    rows = whole_model(pool.tables.menu, estimator.n_layers)
    pool.add(rows)
    ranked = pool.ranked(1)
    if not ranked:
        raise InfeasibleError(_why(estimator, pool.tables.menu, rows))
    ns, best, cuts = ranked[0]
    return build(estimator, best, cuts), ns


def whole_model(menu: Menu, layers: int) -> Rows:
    """Every plan inside a single domain."""
    found = [
        (size, domain, option)
        for size in range(len(menu.sizes))
        for domain, z in enumerate(menu.class_of.tolist())
        if z >= 0
        for option in range(int(menu.options[size, z]))
    ]
    size, domain, option = np.array(found, dtype=np.int64).reshape(-1, 3).T
    one = np.ones_like(size)
    return Rows(size, one, domain[:, None], option[:, None], layers * one[:, None])


def _why(estimator: Estimator, menu: Menu, rows: Rows) -> str:
    """What the tightest single-domain plan needs against what there is."""
    name = estimator.job.model.name
    needs = []
    alike = {int(np.flatnonzero(menu.class_of == z)[0]) for z in range(len(menu.memory))}
    for row in np.flatnonzero(np.isin(rows.domain[:, 0], sorted(alike))).tolist():  # one domain of each kind
        shape = rows.shape(menu, row)
        domain = estimator.cluster.domains[shape.order[0]]
        need = max(estimator.peak_mem_bytes(build(estimator, shape, rows.cuts(row))))
        needs.append((need - domain.gpu.memory_bytes, need, domain))
    if not needs:
        return (
            f"{name} fits in no single domain: none has a free GPU that divides the batch; use more domains"
        )
    _, need, domain = min(needs, key=lambda entry: entry[:2])
    have = f"a GPU of {domain.gpu.memory_bytes / GIB:.1f} GiB ({domain.gpus} GPUs)"
    return (
        f"{name} fits in no single domain: {domain.name} comes closest and needs {need / GIB:.1f} GiB "
        f"on {have}; use a policy that spans domains"
    )
