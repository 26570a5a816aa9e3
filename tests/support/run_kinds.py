"""A store with a run of every kind that `twin` writes, on small worlds without a network."""

from pathlib import Path

from pytest import MonkeyPatch

from ingest.pipeline.ingest import ingest
from replay.bench import result_events
from replay.log.run_log import RunWriter
from replay.logqueue import comparison, on_nodes, powered
from replay.logqueue import whatif as queue_whatif
from replay.queueing import scenario_run
from replay.run import whatif
from replay.store import run_index
from replay.store.run_header import Header, opening
from replay.training.retrain import RETRAIN, step
from replay.training.train import log_curve
from tests.support import histories, queue_log, serving
from tests.support.site_queue import site_queue
from tests.support.toys import prepare, toy_bench, toy_run, without_lake
from tests.support.worlds import toy_scenario
from twin.power.conversion import ConversionChain, Overhead
from twin.power.powered_queue import PowerChoices
from twin.power.site_power import PowerModel
from twin.settings.disturbances import LinkChange

ROOT = Path(__file__).resolve().parents[2]
SLOWER = LinkChange(src="d0", dst="*", bandwidth_factor=0.1, both_ways=True)
KINDS = (
    "replay", "what-if of a policy", "what-if of links", "what-if from a decision", "what-if until a time",
    "what-if of a what-if", "unfinished replay", "evaluation", "bench member", "bench", "queue on a pool",
    "queue on nodes", "queue over sites", "queue with power", "what-if of a queue", "training", "retraining",
    "service",
)  # fmt: skip
"""Names of the runs that `fill` returns."""


def fill(store: Path, folder: Path) -> dict[str, str]:
    """Writes the runs into `store`, with a scenario file in `folder`, and returns their ids by `KINDS`."""
    ingest([queue_log.TARGET, ROOT / "traces" / "synthetic-tri"], store)
    found = {**_queues(store, folder)}
    with MonkeyPatch.context() as patch:
        without_lake(patch)
        found |= _replays(store)
        found |= _logs(store)
        session = serving.toy_session(store, patch)
        serving.observe(session, "k", serving.links())
        found["service"] = session.run_id
        session.close()
    return {kind: found[kind] for kind in KINDS}


def _queues(store: Path, folder: Path) -> dict[str, str]:
    """Two schedulers on each kind of machine; the second run stands for it."""
    pool = comparison.compare(queue_log.TARGET, ("fcfs", "easy"), keep=store)
    nodes = on_nodes.compare_on_nodes(
        queue_log.TARGET, "6 x 8 A100-80, 4 x 8 V100", ("easy", "saf+easy"), keep=store
    )
    sites = scenario_run.replay(store, site_queue(folder), ("fcfs", "easy"))
    model = PowerModel.of_watts("test", 50, 350, ConversionChain((Overhead("PUE", 1.17),)))
    power = powered.compare_with_power(queue_log.TARGET, PowerChoices(model), ("easy",), keep=store)
    other = queue_whatif.what_if(store, pool.runs["easy"], "easy-sjbf")
    return {
        "queue on a pool": pool.runs["easy"],
        "queue on nodes": nodes.runs["saf+easy", "best-fit"],
        "queue over sites": sites.runs["easy"],  # type: ignore[index]
        "queue with power": str(power.results[0].run),
        "what-if of a queue": other.run_id,
    }


def _replays(store: Path) -> dict[str, str]:
    """Replays and what-ifs of the toy world, and a bench of it."""
    base = toy_run(store, "static").run_id
    of_policy = whatif.what_if(store, base, "greedy").run_id
    (bench,) = result_events.log(store, toy_bench(store))
    killed = toy_run(store, "mpc", seed=7).run_id
    histories.lose_end(run_index.folder(store, killed))
    made_by_bench = [run for run in run_index.all_ids(store) if run_index.made_by(store, run) == "bench"]
    evaluation = toy_run(store, "single", part_of="toy-3-retrain").run_id
    return {
        "replay": base,
        "what-if of a policy": of_policy,
        "what-if of links": whatif.what_if(store, base, links=[SLOWER]).run_id,
        "what-if from a decision": whatif.what_if(store, base, "greedy", from_decision=3).run_id,
        "what-if until a time": whatif.what_if(store, base, "greedy", until_s=300.0).run_id,
        "what-if of a what-if": whatif.what_if(store, of_policy, "single").run_id,
        "unfinished replay": killed,
        "evaluation": evaluation,
        "bench member": made_by_bench[0],
        "bench": bench,
    }


def _logs(store: Path) -> dict[str, str]:
    """Logs of a training and of a retraining."""
    world = prepare(toy_scenario(), store).header()
    curve = log_curve(store, Header(world, "train", "kernel", None, False), [])
    header = Header(world, RETRAIN, "kernel", None, False)
    run_id = run_index.new_id(store, "toy-3", RETRAIN, header.seed, header.config_digest)
    with RunWriter.create(run_index.folder(store, run_id)) as log:
        log.append(0, "run_started", header.payload(), wall=opening())
        step(log, "due", {"cause": "drift"})
        log.finish({"promoted": False})
    return {"training": curve, "retraining": run_id}
