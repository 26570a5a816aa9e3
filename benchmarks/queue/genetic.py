"""A genetic search for the least sum of waits of a small queue, by pymoo (the extra `bench`).

A chromosome is an order of the jobs. Each in turn takes the earliest place that the jobs before it leave
(the serial scheme: some order gives an optimal schedule; Kolisch, EJOR 1996). Order crossover and inversion
(Davis, IJCAI 1985; Holland 1975). It knows the future, as the mixed-integer programme does.
"""

from collections.abc import Sequence

import numpy as np

from ingest.core.extras import missing

POPULATION, GENERATIONS = 40, 40


def serial_starts(
    order: Sequence[int], submit: Sequence[int], run: Sequence[int], processors: Sequence[int], pool: int
) -> list[int]:
    """Returns the start of each job, in slots, if jobs take the earliest places in this order."""
    horizon = max(submit) + sum(run)
    free, starts = [pool] * horizon, [0] * len(submit)
    for job in order:
        begin = slot = submit[job]
        while slot < begin + run[job]:
            if free[slot] < processors[job]:
                begin = slot + 1
            slot += 1
        starts[job] = begin
        for slot in range(begin, begin + run[job]):
            free[slot] -= processors[job]
    return starts


def genetic_wait_slots(
    submit: np.ndarray, run: np.ndarray, processors: np.ndarray, pool: int, seed: int = 0
) -> float:
    """Returns the least sum of waits that the search finds, in slots.

    Raises:
        UsageError: pymoo is not installed.
    """
    try:
        from pymoo.algorithms.soo.nonconvex.ga import GA
        from pymoo.core.problem import ElementwiseProblem
        from pymoo.operators.crossover.ox import OrderCrossover
        from pymoo.operators.mutation.inversion import InversionMutation
        from pymoo.operators.sampling.rnd import PermutationRandomSampling
        from pymoo.optimize import minimize
    except ImportError as error:
        raise missing("bench", "the genetic search (pymoo)") from error

    columns = submit.tolist(), run.tolist(), processors.tolist()

    class Orders(ElementwiseProblem):  # type: ignore[misc]
        """The sum of waits of an order."""

        def __init__(self) -> None:
            super().__init__(n_var=len(submit), n_obj=1, xl=0, xu=len(submit) - 1, vtype=int)

        def _evaluate(self, x: np.ndarray, out: dict[str, object], *_: object, **__: object) -> None:
            out["F"] = sum(serial_starts(x.tolist(), *columns, pool)) - sum(columns[0])

    search = GA(
        pop_size=POPULATION, sampling=PermutationRandomSampling(), mutation=InversionMutation(),
        crossover=OrderCrossover(), eliminate_duplicates=True,
    )  # fmt: skip
    done = minimize(Orders(), search, ("n_gen", GENERATIONS), seed=seed, verbose=False)
    return float(done.F[0])
