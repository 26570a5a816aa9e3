import numpy as np
import pytest

from twin.cases import table_reader
from twin.cases.answer import Answer, answer, explain
from twin.cases.case import Case
from twin.cases.column_definitions import BadCellError
from twin.cases.resolve import resolve
from twin.core.domain import Cluster, Domain, LinkState
from twin.core.gpu_models import fabric, preset
from twin.core.job import JobSpec
from twin.core.plan import PointToPoint, Schedule
from twin.core.switches import Switches
from twin.core.transformer import classic
from twin.costs.memory import WORKSPACE_BYTES, workspace_bytes
from twin.estimation.estimator import Estimator

HELD_BYTES = workspace_bytes("A100-80")


def one(**cells: str) -> Case:
    return resolve(table_reader.parse(cells))


def ask(**cells: str) -> Answer:
    return answer(one(**cells))


MEASURED = {
    "pp": "2", "micro_batches": "4", "stage_forward_s": "1;1", "stage_backward_s": "2;2",
    "boundary_transfer_s": "0.25", "boundary_latency_s": "0.5",
}  # fmt: skip


def test_two_stages_of_1f1b_by_hand() -> None:
    """Blocking, t = 3, L = 0.75. Stage 0 turns round in F + L + (stage 1: F, B, L) + B, two at a time.

    Stage 0: F0 ends 1, arrives 1.75, F1 1.75-2.75, arrives 3.5. Stage 1: F0 1.75-2.75, B0 2.75-4.75,
    arrives 5.5. Stage 0: B0 5.5-7.5. F2 7.5-8.5 arrives 9.25, ... Stage 1: F1 5.5-6.5, B1 -8.5, arrives 9.25.
    Stage 0: B1 9.25-11.25, F3 -12.25 arrives 13. Stage 1: F2 9.25-10.25, B2 -12.25, arrives 13; F3 13-14,
    B3 -16, arrives 16.75. Stage 0: B2 13-15, B3 16.75-18.75.
    """
    found = ask(**MEASURED)
    assert found.iter_s == 18.75
    assert found.utilisation == pytest.approx(12 / 18.75)
    assert found.bubble_s == pytest.approx(3.0)  # (S - 1) t
    assert found.exposed_comm_s == pytest.approx(18.75 - 15)
    assert (found.mfu, found.peak_mem_bytes, found.wan_bytes) == (None, None, None)
    assert found.basis == "measured stage times"


def test_gpipe_by_hand() -> None:
    """Blocking: a stage that sends waits for the arrival, so stage 0 needs 1.75 a forward, stage 1 2.75 a
    backward."""
    found = ask(**{**MEASURED, "schedule": "gpipe"})
    forward = 4 * 1.75 + 1.0  # the last forward of stage 1 ends
    assert found.iter_s == pytest.approx(forward + 4 * 2.75 + 2.0)


def test_a_zero_is_no_wan() -> None:
    found = ask(**{**MEASURED, "boundary_transfer_s": "0", "boundary_latency_s": "0"})
    assert found.iter_s == 15.0
    assert found.wan_bytes == 0.0
    assert found.exposed_comm_s == 0.0


def test_wan_rate_and_shape_give_the_transfer() -> None:
    cells = {**MEASURED, "hidden": "1000", "seq": "100", "micro_batch": "5", "dp": "2"}
    del cells["boundary_transfer_s"], cells["boundary_latency_s"]
    message_bits = 2 * 5 * 100 * 1000 * 2 * 8
    found = ask(**cells, wan_bps=str(4 * message_bits), wan_latency_s="0.5")
    assert found.iter_s == 18.75
    assert found.wan_bytes == 2 * 4 * message_bits / 8


def test_only_one_measured_piece_leaves_the_rest_to_the_models() -> None:
    shape = {"layers": "8", "hidden": "2048", "seq": "1024", "pp": "2", "global_batch": "8"}
    modelled, mixed = explain(one(**shape)), explain(one(**shape, stage_forward_s="1"))
    assert np.array_equal(mixed.timing.tb, modelled.timing.tb)
    assert mixed.timing.tf.tolist() == [[10**9], [10**9]]
    assert np.array_equal(mixed.timing.tail, modelled.timing.tail)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("p2p", ["blocking", "overlapped"])
def test_the_same_as_the_estimator_with_a_domain_a_site(schedule: Schedule, p2p: PointToPoint) -> None:
    """Two sites of two stages: the case form and a plan with pp 2 in each domain are one thing."""
    kind = fabric("A100-80")
    site = Domain(
        "d", preset("A100-80"), 8, 8, kind.intra_node_bps, kind.inter_node_bps, kind.intra_node_latency_s,
        kind.inter_node_latency_s, 0.0,
    )  # fmt: skip
    model = classic("m", 14, 2048, 16, 1024, 51200, "bf16")
    job = JobSpec(model, 32, (2,), schedule, p2p, switches=Switches(shard_activations=False))
    estimator = Estimator(Cluster((site, site), ((0.0, 0.02), (0.02, 0.0))), job)
    plan = estimator.make((0, 1), (8, 8), 2, [(2, 2), (2, 2)], 2)
    links = LinkState(np.array([[np.inf, 1e10], [1e10, np.inf]]), np.array([[0.0, 0.02], [0.02, 0.0]]))
    expected = estimator.iteration(plan, links)
    found = ask(
        layers="14", hidden="2048", heads="16", seq="1024", tp="2", pp="4", dp="2", micro_batch="2",
        global_batch="32", domains="2", wan_bps="1e10", wan_latency_s="0.02", cuts="4-4-3-5",
        schedule=schedule, p2p=p2p,
    )  # fmt: skip
    assert found.iter_s == expected.iter_s
    assert found.peak_mem_bytes == max(expected.peak_mem_bytes) - WORKSPACE_BYTES + HELD_BYTES
    assert found.utilisation == pytest.approx(expected.utilisation)
    assert found.bubble_s == pytest.approx(expected.bubble_s)
    assert found.exposed_comm_s == pytest.approx(expected.exposed_comm_s)
    assert found.usd == pytest.approx(expected.usd)
    assert found.energy_j == pytest.approx(expected.energy_j)


def test_stages_that_share_a_node_talk_inside_it() -> None:
    shape = {"layers": "8", "hidden": "2048", "tp": "2", "dp": "2", "pp": "4", "global_batch": "16"}
    timing = explain(one(**shape)).timing
    assert timing.of[0, 0] < timing.of[1, 0]  # stages 0, 1 fill a node of 8, 2 and 3 the next
    assert timing.of[0, 0] == timing.of[2, 0]


def test_sequence_parallelism_saves_memory_and_time() -> None:
    """Llama-3-8B, tp 8: of 34-byte blocks 8 bytes a token and element are stored whole without it."""
    shape = {**LLAMA3_8B, "recompute": "none", "global_batch": "1"}
    plain, spread = (ask(**shape, sequence_parallel=said) for said in ("no", "yes"))
    element = 8192 * 4096 * 7 / 8
    # per block two norm inputs and two product inputs of 2 bytes; those of the head likewise
    saved = 32 * 8 * element + 4 * element
    assert plain.peak_mem_bytes is not None and spread.peak_mem_bytes is not None
    assert plain.peak_mem_bytes - spread.peak_mem_bytes == pytest.approx(saved, rel=1e-6)
    assert spread.iter_s < plain.iter_s


def test_memory_switches_by_hand() -> None:
    """A GPT of 2 blocks on one GPU, micro-batch 2, s 1,024, h 2,048: a dropout mask is a byte an element, two
    a block and one after the embedding; fp32 logits keep 16 bytes instead of 5."""
    shape = {
        "gpu_model": "H100", "layers": "2", "hidden": "2048", "seq": "1024", "vocab": "51200",
        "micro_batch": "2", "global_batch": "2", "recompute": "none",
    }  # fmt: skip
    plain, undropped, wide, lean, torch = (
        ask(**shape, **more)
        for more in (
            {}, {"dropout": "no"}, {"fp32_logits": "yes"}, {"context_bytes": "0"}, {"framework": "pytorch"},
        )
    )  # fmt: skip
    masks, logits = 2 * 1024 * 2048 * 5, 2 * 1024 * 51200 * 11
    peaks = [one.peak_mem_bytes or 0 for one in (plain, undropped, wide, lean, torch)]
    assert [peak - peaks[0] for peak in peaks] == [0, -masks, logits, 0, logits - masks]
    held = workspace_bytes("H100")
    assert plain.device_mem_bytes == peaks[0] + int(1.5 * 2**30) - held
    assert lean.device_mem_bytes == peaks[0]


def test_a_row_overrides_its_framework() -> None:
    case = resolve(table_reader.parse({**LLAMA3_8B, "global_batch": "1", "framework": "megatron-core"}))
    assert case.job is not None and case.job.sequence_parallel and "sequence_parallel" in case.defaults
    case = resolve(
        table_reader.parse(
            {**LLAMA3_8B, "global_batch": "1", "framework": "megatron-core", "sequence_parallel": "no"}
        )
    )
    assert case.job is not None and not case.job.sequence_parallel


LOCAL = {
    "gpu_model": "A100-80", "layers": "8", "hidden": "2048", "vocab": "51200", "micro_batch": "1",
    "global_batch": "32", "replicas": "4", "wan_bps": "1e9", "wan_latency_s": "0.05",
}  # fmt: skip


@pytest.mark.parametrize("steps", [1, 50])
def test_replicas_exchange_the_model_every_inner_steps_iterations(steps: int) -> None:
    alone = ask(**{name: cell for name, cell in LOCAL.items() if "wan" not in name} | {
        "replicas": "1", "global_batch": "8",
    })  # fmt: skip
    found = ask(**LOCAL, inner_steps=str(steps))
    model = resolve(table_reader.parse(LOCAL)).model
    assert model is not None
    # a ring of 4: 6 steps of a quarter of 4 bytes a parameter, once in `steps` iterations
    exchange_s = 6 * (0.05 + model.parameters * 8 / 1e9) / steps
    assert found.iter_s - alone.iter_s == pytest.approx(exchange_s, abs=2e-9)
    assert found.wan_bytes == pytest.approx(4 * 6 * model.parameters / steps)
    assert alone.peak_mem_bytes is not None and found.peak_mem_bytes is not None
    outer = 8 * (model.parameters + model.vocab * model.hidden) if steps > 1 else 0  # both copies of the tied
    assert found.peak_mem_bytes - alone.peak_mem_bytes == outer
    assert found.energy_j > 3.9 * alone.energy_j
    assert (found.token_efficiency == 1.0) == (steps == 1)


@pytest.mark.parametrize(
    ("more", "column"),
    [
        ({"wan_bps": "1e9;1e9"}, "wan_bps"),
        ({"domains": "2", "pp": "2"}, "domains"),
        ({"replicas": "1", "inner_steps": "2"}, "inner_steps"),
    ],
)
def test_replicas_that_contradict_themselves(more: dict[str, str], column: str) -> None:
    with pytest.raises(BadCellError) as caught:
        ask(**{**LOCAL, **more})
    assert caught.value.column == column


def test_mfu_counts_no_recompute() -> None:
    shape = {"layers": "8", "hidden": "4096", "seq": "2048", "global_batch": "8"}
    full, none = ask(**shape), ask(**shape, recompute="none")
    assert full.mfu is not None and none.mfu is not None
    assert full.mfu * full.iter_s == pytest.approx(none.mfu * none.iter_s)
    assert none.mfu > full.mfu


def test_the_interval_holds_the_answer() -> None:
    found = ask(**MEASURED)
    assert found.iter_s_low < found.iter_s < found.iter_s_high


LLAMA3_8B = {
    "gpu_model": "H100", "layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "8", "ffn": "14336",
    "seq": "8192", "vocab": "128256", "tp": "8", "micro_batch": "1",
}  # fmt: skip


def test_gpipe_holds_the_logits_of_every_micro_batch() -> None:
    """Llama-3-8B on 8 x 2 H100, full recompute. A micro-batch keeps on the last stage, bytes per GPU: 16
    inputs of blocks 2 s h / 8, norm and GEMM input of the head 2 * 2 s h / 8, its logits 5 s v / 8 (s 8,192,
    h 4,096, v 128,256). 1F1B holds one, GPipe all (Narayanan et al. 2021)."""
    shape = {
        **LLAMA3_8B, "pp": "2", "recompute": "full", "schedule": "gpipe", "sequence_parallel": "yes",
    }  # fmt: skip
    some, many = (ask(**shape, global_batch=str(m)) for m in (16, 256))
    hidden, logits = 8192 * 4096 / 8, 5 * 8192 * 128256 / 8
    assert logits == pytest.approx(657e6, rel=0.001)
    assert some.peak_mem_bytes is not None and many.peak_mem_bytes is not None
    each = 16 * 2 * hidden + 2 * 2 * hidden + logits
    assert many.peak_mem_bytes - some.peak_mem_bytes == pytest.approx(240 * each, rel=1e-3)
    assert some.fits and many.fits is False


@pytest.mark.parametrize("pp", ["1", "2"])
def test_1f1b_holds_the_logits_of_one_micro_batch(pp: str) -> None:
    shape = {**LLAMA3_8B, "pp": pp}
    some, many, gpipe = (
        ask(**shape, global_batch=batch, schedule=schedule)
        for batch, schedule in (("16", "1f1b"), ("64", "1f1b"), ("16", "gpipe"))
    )
    assert some.peak_mem_bytes == many.peak_mem_bytes
    assert gpipe.peak_mem_bytes is not None and some.peak_mem_bytes is not None
    assert gpipe.peak_mem_bytes > some.peak_mem_bytes + 14 * 5 * 8192 * 128256 / 8


def test_measured_stages_pay_reduction_and_update() -> None:
    """One stage of four micro-batches, (1 + 2) s each; then 0.5 and 0.25 s, or what the models say."""
    cells = {"micro_batches": "4", "stage_forward_s": "1", "stage_backward_s": "2"}
    assert ask(**cells).iter_s == 12
    both = ask(**cells, reduction_s="0.5", update_s="0.25")
    assert both.iter_s == 12.75 and both.exposed_comm_s == pytest.approx(0.5)
    shape = {"layers": "4", "hidden": "1024", "dp": "8"}
    models = ask(**cells, **shape)
    without = ask(micro_batches="4", **shape)
    assert without.exposed_comm_s > 0
    assert models.exposed_comm_s == pytest.approx(without.exposed_comm_s)


def test_micro_batches_that_differ_by_hand() -> None:
    """GPipe over two stages, no messages. Forwards: stage 0 ends 1, 4; stage 1 starts 1, 4 and ends 2, 5.
    Backwards: stage 1 ends 7, 8 (2 s, then 1 s; micro-batch 0 first), stage 0 7-9 and 9-10."""
    found = ask(
        pp="2", micro_batches="2", schedule="gpipe", stage_forward_s="1|3;1", stage_backward_s="2|1;2|1"
    )
    assert found.iter_s == 10
    same = ask(pp="2", micro_batches="2", stage_forward_s="2|2;2", stage_backward_s="3|3;3")
    assert same.iter_s == ask(pp="2", micro_batches="2", stage_forward_s="2", stage_backward_s="3").iter_s


def test_lists_of_micro_batches_that_cannot_be() -> None:
    with pytest.raises(BadCellError, match="stage 1 has 3 times for 2 micro-batches"):
        one(pp="2", micro_batches="2", stage_forward_s="1|1;1|1|1", stage_backward_s="1")
    with pytest.raises(BadCellError, match="crosspipe takes one time"):
        one(pp="2", micro_batches="2", schedule="crosspipe", stage_forward_s="1|1;1", stage_backward_s="1")


CONTEXT = {
    "gpu_model": "H100", "layers": "4", "hidden": "4096", "heads": "32", "kv_heads": "8", "ffn": "14336",
    "vocab": "128256", "seq": "8192", "recompute": "none", "micro_batch": "1", "global_batch": "4",
    "zero": "1",
}  # fmt: skip


def test_context_parallelism_divides_activations_and_joins_the_reduction() -> None:
    whole, split = explain(one(**CONTEXT, dp="4")), explain(one(**CONTEXT, context_parallel="4"))
    assert whole.answer.peak_mem_bytes is not None and split.answer.peak_mem_bytes is not None
    # blocks of 8,192 tokens x 4,096 x 41 bytes, the head's 4 and 5 bytes a logit: a quarter of each; states
    # are sharded over the same four ranks
    stored = 4 * 8192 * 4096 * 41 + 8192 * (4096 * 4 + 5 * 128256)
    assert whole.answer.peak_mem_bytes - split.answer.peak_mem_bytes == pytest.approx(stored * 3 / 4, abs=2)
    assert split.timing.micro_batches == 4 and whole.timing.micro_batches == 1
    assert (split.timing.tail[0, 0] > 0) and one(**CONTEXT, context_parallel="4").gpus == 4


@pytest.mark.parametrize(
    ("more", "column"),
    [
        ({"context_parallel": "3"}, "context_parallel"),
        ({"context_parallel": "2", "gpus": "3"}, "gpus"),
        ({"context_parallel": "2", "gpus": "4", "dp": "4"}, "gpus"),
    ],
)
def test_context_sizes_that_do_not_divide(more: dict[str, str], column: str) -> None:
    with pytest.raises(BadCellError) as caught:
        one(**CONTEXT | more)
    assert caught.value.column == column


def test_a_context_group_over_sites_sends_no_more_than_one_rank() -> None:
    """Each of the four ranks sends its quarter of the tokens, and all of them a copy of the tied gradient."""
    shape = {"layers": "8", "hidden": "1024", "seq": "1024", "pp": "2", "global_batch": "4", "wan_bps": "1e9"}
    alone, split = (ask(**shape, attention="flash", context_parallel=ranks) for ranks in ("1", "4"))
    tied = 2 * 51200 * 1024 * 4
    assert alone.wan_bytes == 2 * 4 * 1024 * 1024 * 2 + tied
    assert split.wan_bytes == 2 * 4 * 1024 * 1024 * 2 + 4 * tied
