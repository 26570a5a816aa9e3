from pathlib import Path

import pytest

from ingest.core.errors import InputError
from ingest.readers.clusters import openb_lists

PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time,scheduled_time
a,6000,12288,1,460,V100M16|V100M32,5,90,7
b,1000,64,0,0,,6,,
c,1000,64,2,460,,6,8,7
d,x,64,1,1000,,6,8,7
"""


def test_pods_keep_what_they_ask_for(tmp_path: Path) -> None:
    (tmp_path / "pods.csv").write_text(PODS, encoding="utf-8")
    found = openb_lists.pod_list(tmp_path / "pods.csv")
    assert (found.names, found.rows_in, found.row.tolist()) == (("a", "b"), 4, [1, 2])
    assert (found.milli.tolist(), found.models) == ([460, 0], ("V100M16|V100M32", ""))
    assert found.times[0].tolist() == [5, 7, 90] and found.times[1, 0] == 6
    reasons = [(one.row, one.reason) for one in found.rejects]
    assert reasons == [(3, "a share of several GPUs"), (4, "cpu_milli is no whole number")]


def test_nodes_without_gpus_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text(
        "sn,cpu_milli,memory_mib,gpu,model,rack\nn0,32000,1024,0,,r1\nn1,8000,64,2,P100,r2\n",
        encoding="utf-8",
    )
    found = openb_lists.node_list(path)
    assert (found.gpus.tolist(), found.models, found.without_gpus) == ([2], ("P100",), (1,))
    assert found.racks == ("r2",)
    path.write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,32000,1024,0,\n", encoding="utf-8")
    with pytest.raises(InputError, match="no node has GPUs among 1"):
        openb_lists.node_list(path)


def test_other_files_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n", encoding="utf-8")
    with pytest.raises(InputError, match="no list of nodes: its header has no sn"):
        openb_lists.node_list(tmp_path / "a.csv")
    with pytest.raises(InputError, match="no such file"):
        openb_lists.pod_list(tmp_path / "nothing.csv")
    with pytest.raises(InputError, match="a folder"):
        openb_lists.pod_list(tmp_path)
