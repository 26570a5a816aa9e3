"""Public profiles through the readers: units, quirks, and rows counted a second way."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.sets import PROFILE_SETS, Sets, data_lines

pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def sets(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Sets:
    return Sets(shared / "traces/gpu", tmp_path_factory.mktemp("profiles") / "store", *PROFILE_SETS)


def test_every_file_is_read_or_left_out_with_its_own_reason(sets: Sets) -> None:
    for name in PROFILE_SETS:
        for file in sets.files(name):
            assert file.reader or "no reader knows" not in str(file.skipped_reason), file.path


def test_sailor_layers_and_the_profile_of_another_model(sets: Sets) -> None:
    files = [f for f in sets.files("profiles-sailor") if f.reader == "sailor-profile"]
    for file in files:
        if "llm_info" in file.path:
            continue
        document = json.loads(Path(file.path).read_text())
        groups = [{"g": document}] if "profile.json" in file.path else document.values()
        counted = sum(
            len(layers)
            for gpus in groups
            for batches in gpus.values()
            for splits in batches.values()
            for layers in splits.values()
        )
        assert file.rows_in == counted, file.path
    (wrong,) = [file for file in files if file.rejected]
    assert wrong.path.endswith("GPT-Neo-2.7/GH-96/profile.json") and not wrong.stored
    assert "26 layers, but GPT-Neo-2.7 has 34" in wrong.examples[0].reason
    where = "model = 'OPT-350' AND gpu_model = 'GH-96' AND micro_batch = 4 AND tp = 4 AND layer = '5'"
    found = sets.one(
        f"""SELECT forward_s, backward_s, update_s FROM layer_profiles
        WHERE {where} AND source_file LIKE '%profile.json'"""
    )
    assert found == pytest.approx((1.7e-3, 3.32e-3, 0.472e-3), rel=0.06)
    right = "SELECT count(DISTINCT layer) FROM layer_profiles WHERE forward_s > 0 AND variant IS NULL AND "
    assert sets.one(right + "model = 'GPT-Neo-2.7' AND gpu_model = 'GH-96'") == 34


def test_sailor_sizes_agree_with_its_other_format(sets: Sets) -> None:
    rows = sets.all(
        """SELECT DISTINCT source_file LIKE 'llm_info%', param_bytes FROM layer_profiles
        WHERE model = 'OPT-350' AND tp = 1 AND layer = '1' AND param_bytes IS NOT NULL
        AND dataset = 'profiles-sailor'"""
    )
    assert sorted(rows) == [(False, 50384896), (True, 50384896)]


def test_metis_sums_are_the_layer_times(sets: Sets) -> None:
    count, worst = sets.one(
        """SELECT count(*), max(abs(a.forward_backward_s - b.forward_s - b.backward_s))
        FROM layer_profiles a JOIN layer_profiles b USING (model, gpu_model, micro_batch, tp, layer)
        WHERE a.forward_backward_s IS NOT NULL AND b.source_file LIKE 'layer_times/%'
        AND model = 'GPT-Neo-2.7' AND gpu_model = 'A100-40'"""
    )
    assert count == 12 * 34 and worst < 1e-9


def test_metis_without_a_time_for_each_layer_is_rejected(sets: Sets) -> None:
    files = [f for f in sets.files("profiles-sailor") if f.reader == "metis-profile" and f.rejected]
    assert {Path(file.path).parts[-3] for file in files} == {"LLAMA-3-8"} and len(files) == 10
    assert all("34 times for 35 layers" in file.examples[0].reason for file in files)


def test_aceso_operators_and_failed_collectives(sets: Sets) -> None:
    files = sets.files("profiles-aceso-v100")
    for file in files:
        if file.reader in ("aceso-ops", "aceso-collectives") and "p2p" not in file.path:
            assert file.rows_in == data_lines(Path(file.path)), file.path
    cells = [
        line.split(",")[1]
        for path in (sets.folder / "profiles-aceso-v100/collectives").glob("prim*")
        for line in path.read_text().splitlines()[1:]
    ]
    assert sum(file.rejected for file in files) == sum(float(cell) >= 1e6 for cell in cells) == 260
    qkv = "model = 'gpt_350M' AND micro_batch = 1 AND tp = 1 AND layer = 'enc-attention-qkv'"
    found = sets.one(
        f"""SELECT forward_s, backward_s, param_bytes FROM layer_profiles
        WHERE {qkv} AND variant = 'algo0' AND gpu_model = 'V100-32'"""
    )
    assert found == pytest.approx((232.781e-6, 399.668e-6, 1024 * 3072 * 2))  # fp16 of 1024 x 3072
    pair = "SELECT time_s, bandwidth_bps FROM collective_profiles WHERE op = 'send_recv' AND nodes = 2 "
    assert sets.one(pair + "AND bytes = 1 << 30") == pytest.approx((1 / 5.44, 5.44 * 2**33))
    assert sets.one("SELECT time_s FROM step_times WHERE job = 'gpt_1_3B' AND time_s > 0") == 100.28
    memory = "SELECT max(peak_mem_bytes) FROM step_times WHERE job = 'gpt_13B'"
    assert sets.one(memory) == 27058 * 2**20


def test_galvatron_layers_memory_and_bandwidth(sets: Sets) -> None:
    for file in sets.files("profiles-galvatron"):
        if file.already or file.reader is None:
            continue
        document = json.loads(Path(file.path).read_text())
        if "computation" in file.path:
            assert file.rows_in == sum("layertype_0_" not in k and "other" not in k for k in document)
        if "memory" in file.path:
            held = [sizes for key, sizes in document.items() if key[0].isdigit()]
            assert file.rows_in == sum(key.endswith("_ms") for sizes in held for key in sizes), file.path
        assert file.rejected == 0
    model = "model = 'gpt_fa-hidden1600-head32' AND seq = 1024 AND forward_s > 0 AND micro_batch = 4"
    twelve, twice = (
        sets.one(f"SELECT forward_s FROM layer_profiles WHERE layer = 'model of {n} layers' AND {model}")
        for n in (12, 24)
    )
    assert (twice - twelve) / 12 / 4 == pytest.approx(0.5981169303258261e-3)  # the file's own layertype_0
    rate = "SELECT nodes, bandwidth_bps FROM collective_profiles WHERE op = 'all_reduce' AND "
    assert sets.one(rate + "ranks = 16 AND bandwidth_bps > 0") == (2, pytest.approx(44.682 * 8e9))
    strided = rate + "ranks = 2 AND variant = 'strided ranks' AND nodes = 2"
    assert sets.one(strided) == (2, pytest.approx(8.13007 * 8e9))
    parameters = "SELECT count(*) FROM layer_profiles WHERE dataset = 'profiles-galvatron' AND tp = 8"
    assert sets.one(parameters + " AND micro_batch = 8 AND states_bytes > activation_bytes") > 0


def test_vidur_medians_and_nodes(sets: Sets) -> None:
    for file in sets.files("profiles-vidur"):
        operators = 10 if "compute" in file.path else 1
        assert file.rows_in == data_lines(Path(file.path)) * operators, file.path
    largest = "op = 'all_reduce' AND gpu_model = 'A100' AND dataset = 'profiles-vidur' AND bytes = 67108864"
    found = sets.all(f"SELECT ranks, nodes, time_s FROM collective_profiles WHERE {largest}")
    times = {(ranks, nodes): time_s for ranks, nodes, time_s in found}
    assert times[8, 1] == pytest.approx(0.675e-3, rel=0.01)
    assert times[16, 2] == pytest.approx(7.19e-3, rel=0.01)
    assert times[2, 2] == pytest.approx(11.4e-3, rel=0.01)
    model = "gpu_model = 'H100' AND model = 'llama2-7b'"
    mlp = f"{model} AND layer = 'mlp_up_proj' AND seq = 4096 AND source_row = 1"
    assert sets.one(f"SELECT forward_s FROM layer_profiles WHERE {mlp}") == pytest.approx(0.987e-3)


def test_perseus_iterations_without_warm_up(sets: Sets) -> None:
    for file in sets.files("profiles-perseus"):
        if file.path.endswith(".csv") and file.reader:
            assert file.rows_in == data_lines(Path(file.path))
        if file.path.endswith("prof.json"):
            ranks = json.loads(Path(file.path).read_text())
            steps = sum(len(r["iter_time"]) - 1 for r in ranks)
            done = sum(len(t) for r in ranks for its in r["time_breakdown"].values() for t in its[1:])
            assert file.stored == {"step_times": steps, "op_times": done}
    for job, gpu, ranks, time_s, energy_j in (
        ("bert-huge-uncased", "A100", 4, 6.314, 6.8e3),
        ("t5-3b", "A100", 4, 9.232, 10.2e3),
        ("gpt3-xl", "A100", 4, 59.98, 66.7e3),
        ("bloom-3b", "A100", 4, 61.78, 69.0e3),
        ("gpt3-2.7b", "A40", 8, 150.5, 313e3),
    ):
        whole = f"""SELECT median(t), median(e), max(g)
            FROM (SELECT max(time_s) t, sum(energy_j) e, max(gpus) g FROM step_times
            WHERE job LIKE '{job} dp%plan 0' AND gpu_model = '{gpu}' GROUP BY step)"""
        wanted = pytest.approx(time_s, rel=0.005), pytest.approx(energy_j, rel=0.01), ranks
        assert sets.one(whole) == wanted
    stage = "model = 'gpt3-175b' AND gpu_model = 'a100_sxm' AND layer = 'stage 0' AND clock_mhz = 1410"
    found = f"SELECT max(forward_s), max(backward_s), sum(energy_j) FROM layer_profiles WHERE {stage}"
    assert sets.one(found) == pytest.approx((0.050161666, 0.092953779, 23.805472 + 44.584248))
    limited = "SELECT time_s, energy_j, gpus FROM step_times WHERE job = "
    found = sets.one(limited + "'bert-huge-uncased dp1 tp1 pp4 300/300/300/300 W'")
    assert found == pytest.approx((6.354814670704029, 6819.017444443924, 4))


def test_bytedance_operations_and_steps(sets: Sets) -> None:
    folder = sets.folder / "profiles-bytedance-training-trace"
    for job, operations, steps, median_s in (("AR", 117_216, 44, 46.67), ("ST", 6_784, 32, 2.213)):
        assert pq.ParquetFile(folder / f"trace-{job}.parquet").metadata.num_rows == operations
        assert sets.one(f"SELECT count(*) FROM op_times WHERE job = '{job}'") == operations
        found = sets.one(f"SELECT count(*), median(time_s) FROM step_times WHERE job = '{job}'")
        assert found == (steps, pytest.approx(median_s, rel=0.01))
        stated = json.loads((folder / f"result-{job}.json").read_text())["step_t_base"]
        spans = sets.all(f"SELECT step::VARCHAR, time_s FROM step_times WHERE job = '{job}'")
        assert dict(spans) == pytest.approx(stated, abs=1e-4)
    forward = "SELECT median(time_s) FROM op_times WHERE job = 'ST' AND op = 'forward-compute' AND stage "
    assert sets.one(forward + "= 3") == pytest.approx(0.140, abs=0.005)
    assert sets.one(forward + "< 3") == pytest.approx(0.067, abs=0.005)
    assert sets.one("SELECT count(*) FROM op_times WHERE micro_batch_id = -1") == 0


def test_megatron_steps_that_were_not_timed(sets: Sets) -> None:
    for file in sets.files("profiles-megatron-golden"):
        if file.reader is not None:
            document = json.loads(Path(file.path).read_text())
            series = [document[n]["values"] for n in ("iteration-time", "mem-max-allocated-bytes")]
            assert file.rows_in == len({s for values in series for s, v in values.items() if v != "nan"})
    for job, gpu, timed, median_s, peak_gib in (
        ("gpt3_15b_8t_release_sm", "H100", 127, 1.453, 26.2),
        ("gpt3_15b_8t_release_sm", "A100", 127, 3.387, 26.4),
        ("gpt3_15b_8t_release_sm", "GB200", 127, 0.922, 26.2),
        ("mixtral_8x7b_alltoall_tp2pp4ep4_release", "H100", 4538, 8.96, 24.7),
        ("mixtral_8x7b_alltoall_tp2pp4ep4_release", "A100", 3094, 22.23, 24.9),
        ("deepseekv3_proxy_flex_tp1pp4emp16etp1cp1_release_sm", "H100", 1907, 12.38, 48.3),
    ):
        measured = sets.one(
            f"""SELECT count(time_s), median(time_s), max(peak_mem_bytes) / 1024 ** 3
            FROM step_times WHERE job = '{job}' AND gpu_model = '{gpu}'"""
        )
        wanted = timed, pytest.approx(median_s, rel=0.005), pytest.approx(peak_gib, abs=0.15)
        assert measured == wanted, (job, gpu)
