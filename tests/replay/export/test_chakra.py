"""Execution traces of Chakra, read again: by the reader of the lake, and field by field."""

import io
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from ingest.core.errors import UsageError
from ingest.parsing.protobuf_wire import delimited, fields
from ingest.pipeline.ingest import ingest
from replay.export.contract import fitted
from replay.export.planned_job import PlannedJob
from replay.export.targets.astra_sim import AstraSimTarget, network
from replay.export.targets.chakra import ChakraTarget, traces
from replay.sql import query
from tests.support.planned_jobs import KINDS, UNEQUAL, pipeline, tri, uneven

SCHEDULES = ["uneven stages", "gpipe", "zb-h1", "zb-v", "interleaved", "deeper warm-up", "crosspipe"]


def decoded(data: bytes) -> Iterator[dict[str, Any]]:
    """Nodes of a trace by the numbers of `et_def.proto`: attributes by name, dependencies as lists."""
    metadata, *nodes = delimited(io.BytesIO(data))
    assert dict(fields(metadata)) == {1: b"0.0.4"}
    for message in nodes:
        node: dict[str, Any] = {"attr": {}, "deps": []}
        for number, value in fields(message):
            if number == 10:
                assert isinstance(value, bytes)
                (_, name), (_, held) = fields(value)
                node["attr"][name] = held
            elif number in (4, 5):
                assert isinstance(value, bytes)
                node["deps"] += _varints(value)
            else:
                node[{1: "id", 2: "name", 3: "type", 6: "start", 7: "duration"}[number]] = value
        yield node


def _varints(data: bytes) -> list[int]:
    found, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            found.append(value)
            value, shift = 0, 0
    return found


def executed(job: PlannedJob) -> dict[tuple[int, int], int]:
    """Ends of all nodes (stage, number), microseconds, when each begins as soon as what it needs is done: a
    receive when its send is, and messages take no time."""
    ends: dict[tuple[int, int], int] = {}
    left = {(stage, node.number): node for stage, nodes in enumerate(traces(job)) for node in nodes}
    senders = {
        (one.transfer, stage): (stage, one.number) for (stage, _), one in left.items() if one.kind == 5
    }
    while left:
        ready = []
        for (stage, number), node in left.items():
            needs = [(stage, other) for other in (*node.data, *node.control)]
            if node.kind == 6:
                assert node.transfer is not None
                needs.append(senders[node.transfer, node.transfer.source])
            if all(one in ends for one in needs):
                begin = max((ends[one] for one in needs), default=0)
                ready.append(((stage, number), begin + node.duration_us))
        assert ready, f"{len(left)} operations wait for each other"
        for key, end in ready:
            ends[key] = end
            del left[key]
    return ends


@pytest.mark.parametrize("kind", SCHEDULES)
def test_every_message_has_a_sender_and_a_receiver(kind: str) -> None:
    sent, received = Counter(), Counter()
    for stage, nodes in enumerate(traces(KINDS[kind]())):
        for node in nodes:
            if (one := node.transfer) is not None:
                (sent if node.kind == 5 else received)[one] += 1
                assert stage == (one.source if node.kind == 5 else one.target)
    assert sent == received and set(sent.values()) == {1}


@pytest.mark.parametrize("kind", SCHEDULES)
def test_the_traces_run_to_their_end(kind: str) -> None:
    ends = executed(KINDS[kind]())
    busiest = max(sum(one.duration_us for one in nodes) for nodes in traces(KINDS[kind]()))
    assert max(ends.values()) >= busiest


def test_without_messages_the_traces_take_the_time_of_the_kernel() -> None:
    job = tri(pipeline((1, 34, 1, 4), dp=1, micro_batches=32, p2p="overlapped"))
    assert job.iteration_s is not None
    assert max(executed(job).values()) == pytest.approx(job.iteration_s * 1e6, rel=2e-3)


def test_nodes_are_decoded_as_they_were_written() -> None:
    job = tri(uneven())
    for nodes, data in zip(traces(job), ChakraTarget().files(job).values(), strict=True):
        assert isinstance(data, bytes)
        for node, read in zip(nodes, decoded(data), strict=True):
            assert (read.get("id", 0), read["name"].decode(), read["type"]) == (
                node.number, node.name, node.kind,
            )  # fmt: skip
            assert read["deps"] == [*node.control, *node.data]
            assert (read.get("start", 0), read.get("duration", 0)) == (node.start_us, node.duration_us)
            if node.transfer is not None:
                assert read["attr"][b"comm_size"] == node.transfer.size_bytes
                assert read["attr"][b"comm_tag"] == node.transfer.tag


def test_messages_between_domains_are_those_of_all_data_ranks() -> None:
    job = tri(uneven())
    sizes = {(one.transfer.source, one.transfer.size_bytes) for one in traces(job)[1] if one.transfer}
    message = job.job.message_bytes(1)
    assert sizes == {(0, message), (1, message), (1, 2 * message), (2, 2 * message)}


def test_the_reader_of_the_lake_takes_the_files(tmp_path: Path) -> None:
    job = tri(uneven())
    for name, data in ChakraTarget().files(job).items():
        assert isinstance(data, bytes)
        (tmp_path / "set").mkdir(exist_ok=True)
        (tmp_path / "set" / name).write_bytes(data)
    ingest([tmp_path / "set"], tmp_path / "store")
    rows = query.query(
        tmp_path / "store", "select worker, count(*) n, sum(time_s) s from op_times group by 1"
    ).to_pylist()
    assert {row["worker"]: row["n"] for row in rows} == {"0": 33, "1": 33, "2": 33}
    expected = [sum(node.duration_us for node in nodes) / 1e6 for nodes in traces(job)]
    assert sorted(row["s"] for row in rows) == pytest.approx(sorted(expected))


def test_astra_sim_has_a_dimension_of_stages_and_one_of_domains() -> None:
    job = tri(pipeline((0, 17, 1, 2), (1, 17, 1, 2), dp=2, micro_batches=16))
    found = yaml.safe_load(AstraSimTarget().files(job)["network.yml"])
    assert found == network(job)
    assert found["npus_count"] == [2, 2] and found["topology"] == ["FullyConnected", "FullyConnected"]
    assert found["bandwidth"] == [300.0, 0.625] and found["latency"] == [3000.0, 40e6]
    assert len(AstraSimTarget().files(job)) == 4 + 4


def test_unequal_links_are_not_expressible_and_the_mean_time_for_a_bit_is_offered() -> None:
    job = tri(pipeline((0, 17, 1, 1), (1, 17, 1, 1), dp=2, micro_batches=16), UNEQUAL)
    with pytest.raises(
        UsageError, match=r"astra-sim cannot express: links that differ \(4\.00 to 5\.00 Gb/s"
    ):
        fitted(AstraSimTarget(), job, nearest=False)
    found = fitted(AstraSimTarget(), job, nearest=True).job
    assert found.plan == job.plan and network(found)["bandwidth"] == [pytest.approx(2 / (1 / 4 + 1 / 5) / 8)]


def test_unequal_depths_have_no_near_plan() -> None:
    with pytest.raises(UsageError, match=r"different numbers of stages.*no near plan"):
        fitted(AstraSimTarget(), tri(uneven()), nearest=True)


def test_stages_are_in_order() -> None:
    starts = [[node.start_us for node in nodes if node.duration_us] for nodes in traces(tri(uneven()))]
    assert all(a <= b for row in starts for a, b in pairwise(row))
