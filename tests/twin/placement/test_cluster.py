import pytest

from ingest.core.errors import UsageError
from twin.placement.cluster import NodeCluster


def test_groups_of_nodes_become_nodes_in_their_order() -> None:
    cluster = NodeCluster.parse("2 x 8 A100-80, 1X4 V100,1 x 2 A100-80")
    assert cluster.models == ("A100-80", "V100")
    assert (cluster.gpus.tolist(), cluster.model.tolist()) == ([8, 8, 4, 2], [0, 0, 1, 0])
    assert (len(cluster), cluster.total_gpus, cluster.largest().tolist()) == (4, 22, [8, 4])
    assert cluster.gpus_of([0, 1]) == [18, 4]
    assert cluster.describe() == "2 x 8 A100-80, 1 x 4 V100, 1 x 2 A100-80" and cluster.racks == 1


def test_three_numbers_are_racks() -> None:
    cluster = NodeCluster.parse("2 x 2 x 8 A100, 3 x 4 V100, 1x2x4 V100")
    assert cluster.rack.tolist() == [0, 0, 1, 1, 2, 2, 2, 3, 3] and cluster.total_gpus == 52
    assert cluster.describe() == "4 x 8 A100, 5 x 4 V100 in 4 racks"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("8x8", "'8x8' is no group of nodes; write NODES x GPUS MODEL"),
        ("", "is no group of nodes"),
        ("0 x 8 A100", "a cluster has 1 to 1,000,000 nodes"),
        ("4 x 0 A100", "a node of 0 GPUs; it has 1 to 64"),
        ("4 x 65 A100", "a node of 65 GPUs"),
        ("9999999 x 8 A100", "a cluster has 1 to 1,000,000 nodes"),
    ],
)
def test_what_describes_no_cluster_is_told(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        NodeCluster.parse(text)


def test_the_nearest_models_are_named() -> None:
    cluster = NodeCluster.parse("1 x 8 A100-80, 1 x 8 V100M32, 1 x 8 V100M16")
    assert cluster.nearest("a100") == "did you mean A100-80?"
    assert cluster.nearest("V100") == "did you mean V100M32 or V100M16?"
    assert cluster.nearest("xyz") == "it has A100-80, V100M32, V100M16"
