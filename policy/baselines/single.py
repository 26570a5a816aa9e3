"""`single`: the fastest plan inside one domain, planned once."""

import numpy as np

from ingest.core.errors import InfeasibleError
from ingest.core.units import GIB
from policy.core.protocol import Context, Decision
from policy.core.replan_conditions import must_replan
from policy.search.batch_scoring import OptionRows, single_domain_rows
from policy.search.parallelism_options import ParallelismOptions
from policy.search.plan_search import TimedPlans, build
from twin.core.plan import Plan
from twin.core.view import View
from twin.estimation.estimator import Estimator


class Single:
    """Keeps all layers in the domain with the fastest iteration; migrates only when its plan cannot go on."""

    name = "single"

    def reset(self, context: Context) -> None:
        """Starts a run."""
        self.estimator = context.estimator

    def decide(self, view: View) -> Decision:
        """Returns the fastest single domain at the start and after a failure, else holds."""
        if view.plan is not None and not must_replan(self.estimator, view):
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
    """Returns the plan inside one domain with the shortest iteration, and its ns.

    Raises:
        InfeasibleError: the model fits in no domain; the message has the least memory needed in any.
    """
    pool = TimedPlans(estimator, view.forecast.links(), view.free_gpus, view.slowdown)
    options = pool.tables.options
    rows = single_domain_rows(options, estimator.n_layers)
    pool.add(rows)
    ranked = pool.ranked(1)
    if not ranked:
        raise InfeasibleError(_shortage(estimator, options, rows))
    ns, best, cuts = ranked[0]
    return build(estimator, best, cuts), ns


def _shortage(estimator: Estimator, options: ParallelismOptions, rows: OptionRows) -> str:
    """Returns the message with the memory that the closest single-domain plan needs, and what there is."""
    name = estimator.job.model.name
    needs = []
    class_of, classes = options.arrays.class_of, range(len(options.arrays.memory_bytes))
    examples = sorted({int(np.flatnonzero(class_of == z)[0]) for z in classes})  # one domain of each class
    for row in np.flatnonzero(np.isin(rows.domain[:, 0], examples)).tolist():
        shape = rows.shape(options, row)
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
