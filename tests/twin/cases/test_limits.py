"""What limits a case of `twin estimate`, and what its tokens cost, by hand."""

import pytest

from twin.cases import table_reader
from twin.cases.answer import Answer, answer
from twin.cases.resolve import resolve
from twin.core.gpu_models import USD_PER_HOUR

ROW = {
    "gpu_model": "A100-80", "layers": "40", "hidden": "6144", "heads": "48", "seq": "2048", "tp": "8",
    "pp": "4", "dp": "2", "micro_batch": "1", "global_batch": "128",
}  # fmt: skip


def ask(**cells: str) -> Answer:
    return answer(resolve(table_reader.parse({**ROW, **cells})))


def test_the_link_is_named_by_its_sites_where_most_of_the_time_is_communication() -> None:
    far = {"wan_bps": "10e9", "wan_latency_s": "0.150"}
    found = ask(domains="paris-paris-rome-rome", **far)
    assert found.exposed_comm_s > 0.7 * found.iter_s
    assert found.limit_saved is not None
    assert found.limit == f"link paris <-> rome (-{100 * found.limit_saved:.1f} %)"
    assert ask(domains="2", **far).limit.startswith("link site 1 <-> site 2")
    assert "(paris)" in found.binding and "d0" not in found.binding


def test_unequal_stages_and_the_bubble_by_hand() -> None:
    """One stage of 1 + 2 s beside one of 2 + 4 s, m = 4, no messages: 4 * 6 + 3 = 27."""
    cells = {
        "pp": "2",
        "micro_batches": "4",
        "schedule": "1f1b",
        "stage_forward_s": "1;2",
        "stage_backward_s": "2;4",
    }
    found = answer(resolve(table_reader.parse(cells)))
    assert found.iter_s == pytest.approx(27.0)
    assert found.limit.startswith(
        "compute of all 2 stages (-100.0 %; most compute of stage 1 in site 1, -55.6 %)"
    )
    # without stage 1 four times 3 s remain: 12 of 27


def test_rent_and_total_by_hand() -> None:
    found = ask()
    assert found.rent_usd == pytest.approx(64 * USD_PER_HOUR["A100-80"] * found.iter_s / 3600)
    assert found.tokens_per_s == pytest.approx(128 * 2048 / found.iter_s)
    assert found.usd_per_1e9_tokens == pytest.approx(found.rent_usd / (128 * 2048) * 1e9)
    unknown = ask(gpu_model="B200", domains="2", wan_bps="1e10")
    assert (unknown.rent_usd, unknown.usd_per_1e9_tokens) == (None, None) and unknown.usd is not None
