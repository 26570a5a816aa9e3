"""docs/guides/estimate.md says what the definitions say, and its examples print what they print."""

import json
from pathlib import Path

from click.testing import CliRunner

import cli
from tests.support import estimate_page
from twin.cases.column_definitions import COLUMNS
from twin.cases.resolve_model import LATENT, MIXTURE

ISSUE_COLUMNS = """
gpu_model gpus gpus_per_node intra_node_bps inter_node_bps layers hidden heads kv_heads ffn vocab seq dtype
tp pp dp micro_batch global_batch recompute zero schedule p2p cuts domains wan_bps wan_latency_s
stage_forward_s stage_backward_s boundary_transfer_s boundary_latency_s micro_batches
"""
FIGURES = """
iter_s iter_s_low iter_s_high peak_mem_bytes utilisation mfu bubble_s exposed_comm_s wan_bytes usd energy_j
binding
"""


def test_the_page_is_current(repository: Path) -> None:
    page = (repository / "docs" / "guides" / "estimate.md").read_text(encoding="utf-8")
    assert page == estimate_page.made(), "run: python -m tests.support.estimate_page"


def test_every_promised_column_exists() -> None:
    switches = (
        "sequence_parallel", "tp_overlap", "gradient_dtype", "overlap_reduction", "bucket_bytes", "framework",
        "dropout", "fp32_logits", "context_bytes", "offload_optimiser",
    )  # fmt: skip
    measured = ("reduction_s", "update_s", "measured_s", "run", "profile_model")
    ours = ("case", "attention", "chunks", *switches, *measured, "replicas", "inner_steps")
    split = ("context_parallel", "context_exchange", "ep")
    heads = ("head_dim", "kv_lora_rank", *LATENT)
    later = (
        *ours, *split, *heads, "gpu_models", "experts", *MIXTURE, "power_cap_w", "clock_cap", "lora_rank",
        "lora_targets",
    )  # fmt: skip
    assert [column.name for column in COLUMNS if column.name not in later] == ISSUE_COLUMNS.split()


def test_bad_rows_are_listed_and_the_others_answered(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text("layers,hidden,global_batch\n8,2048,8\n8,2048,-8\n8,2048,\n", encoding="utf-8")
    result = CliRunner().invoke(cli.twin, ["estimate", str(path), "--json"])
    assert result.exit_code == 1
    body = json.loads(result.output)
    assert body["schema"] == "twin.estimate/1"
    assert [row["row"] for row in body["rows"]] == [1]
    assert set(FIGURES.split()) <= set(body["rows"][0])
    assert [(one["row"], one["line"], one["column"]) for one in body["failed"]] == [
        (2, 3, "global_batch"),
        (3, 4, "global_batch"),
    ]


def test_explain_shows_the_parts(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text("layers,hidden,pp,global_batch\n8,2048,2,8\n", encoding="utf-8")
    result = CliRunner().invoke(cli.twin, ["estimate", str(path), "--json", "--explain", "1"])
    body = json.loads(result.output)
    assert len(body["stages"]) == 2 and len(body["boundaries"]) == 1
    assert "heads" in body["defaults"]
