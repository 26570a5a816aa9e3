"""The reference page of `twin estimate`, made from the definitions: `python -m
tests.support.estimate_page`."""

import tempfile
from contextlib import chdir
from pathlib import Path

from click.testing import CliRunner

import cli
from twin.calibration import residual_quantiles
from twin.cases import answer, inverse, resolve_model
from twin.cases.column_definitions import COLUMNS, NOTES
from twin.costs import memory

OUTPUTS: tuple[tuple[str, str, str], ...] = (
    ("iter_s", "s", "one iteration: the last stage's end of backward, gradient reduction and update"),
    ("iter_s_low, iter_s_high", "s", "interval of that time, see below"),
    (
        "peak_mem_bytes",
        "bytes",
        "the fullest GPU: states, activations in flight, with gpipe the logits of all micro-batches, largest "
        "temporary (what the allocator holds)",
    ),
    (
        "device_mem_bytes",
        "bytes",
        "the same with the process's context and buffers, as nvidia-smi shows it",
    ),
    (
        "fits",
        "",
        f"whether that, {memory.MARGIN:.0%} and {memory.WORKSPACE_BYTES / 2**30:g} GiB (context, buffers) "
        f"fit; replays ask for the latter alone, see docs/internals/world.md",
    ),
    ("utilisation", "", "compute time / iteration time, mean over the stages of a domain, then over domains"),
    ("mfu", "", "model FLOPs (forward and backward, no recompute) / peak FLOPs of all GPUs"),
    ("bubble_s", "s", "idle time that remains with free communication, mean over stages"),
    ("exposed_comm_s", "s", "what links and gradient reduction add to the iteration"),
    ("wan_bytes", "bytes", "bytes between domains in one iteration, all boundaries, both directions"),
    ("usd", "USD", f"egress for these bytes at {answer.USD_PER_GB} USD per 1e9 bytes"),
    ("energy_j", "J", "energy of all GPUs in one iteration, computing and waiting"),
    (
        "token_efficiency",
        "",
        "tokens of synchronous training that one token is worth: below 1 with inner_steps",
    ),
    ("binding", "", "the critical cycle of the pipeline: which stages (from 0), which domains"),
    ("basis", "", "source of the stage times"),
    ("interval", "", "what runs the interval is made from"),
    ("tokens_per_s", "1/s", "tokens of all sequences by iteration time"),
    ("rent_usd", "USD", "rent of all GPUs for an iteration at list prices; empty where one is not known"),
    ("usd_per_1e9_tokens", "USD", "rent and egress for 1e9 tokens; empty where one is not known"),
    ("limit", "", "the limiting resource: without it an iteration is shortest, estimated again"),
    ("limit_saved", "", "share of the iteration time that is saved without it"),
)

EXAMPLES = (
    (
        "Two sites",
        "One pipeline over two sites, four stages each eight GPUs wide in tensors and two in data.",
        "case,gpu_model,layers,hidden,heads,seq,tp,pp,dp,micro_batch,global_batch,domains,wan_bps,wan_latency_s\n"
        "near,A100-80,40,6144,48,2048,8,4,2,1,128,2,10e9,0.015\n"
        "far,A100-80,40,6144,48,2048,8,4,2,1,128,2,10e9,0.150\n",
        "twin estimate cases.csv",
    ),
    (
        "Measured pieces",
        "Stage times and boundary costs were measured, so the answer is the schedule's makespan: four "
        "stages, the WAN between the second and the third.",
        "case,pp,micro_batches,schedule,stage_forward_s,stage_backward_s,boundary_transfer_s,boundary_latency_s\n"
        "1f1b,4,16,1f1b,0.020;0.020;0.020;0.022,0.040;0.040;0.040;0.045,0;0.010;0,0;0.030;0\n"
        "gpipe,4,16,gpipe,0.020;0.020;0.020;0.022,0.040;0.040;0.040;0.045,0;0.010;0,0;0.030;0\n",
        "twin estimate cases.csv",
    ),
    (
        "Which bandwidth do I need?",
        "",
        "case,gpu_model,layers,hidden,heads,seq,tp,pp,dp,micro_batch,global_batch,domains,wan_bps,wan_latency_s\n"
        "near,A100-80,40,6144,48,2048,8,4,2,1,128,2,,0.015\n"
        "far,A100-80,40,6144,48,2048,8,4,2,1,128,2,,0.150\n",
        "twin estimate cases.csv --solve wan_bps --target utilisation=0.6",
    ),
)  # fmt: skip
"""Title, sentence, table, command: each is run by a test and its output stands in the page."""


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def _columns() -> list[str]:
    head = [_row("column", "unit", "meaning", "when empty"), _row("---", "---", "---", "---")]
    return head + [_row(f"`{c.name}`", c.unit, c.meaning, c.default) for c in COLUMNS] + ["", *NOTES]


def _outputs() -> list[str]:
    head = [_row("figure", "unit", "meaning"), _row("---", "---", "---")]
    return head + [_row(f"`{name}`", unit, meaning) for name, unit, meaning in OUTPUTS]


def _interval() -> str:
    spreads = "; ".join(
        f"{one.basis} {one.low:g} and {one.high:g} ({one.rows} {one.source})"
        for one in residual_quantiles.ALL
    )
    return (
        "`iter_s_low` and `iter_s_high` are `iter_s` times quantiles of measured / predicted that hold 80 % "
        f"of measured runs of the same basis, which `interval` names: {spreads}. The level holds for runs "
        "like these; `docs/measured/fidelity.md` counts how often it held on each measured table."
    )


def _examples(outputs: tuple[str, ...]) -> list[str]:
    lines: list[str] = []
    for (title, sentence, table, command), output in zip(EXAMPLES, outputs, strict=True):
        lines += [f"### {title}", "", *([sentence, ""] if sentence else []), "`cases.csv`:", "```"]
        lines += [table.rstrip(), "```", "```", f"$ {command}", output.rstrip(), "```", ""]
    return lines


PAGE = """# twin estimate

Generated by `python -m tests.support.estimate_page`; a test holds it to the definitions in
`twin/cases/column_definitions.py`.

`twin estimate CASES.csv` answers one question a row: how long an iteration of this plan takes, what \
memory, traffic, money and energy it needs, and which stages or links limit it. The table is CSV or YAML (a \
list of mappings). An empty cell takes the default below. A bad row is listed with file, line and column and \
the exit code is 1; the other rows are answered. `--json` prints `twin.estimate/1`, `--explain ROW` the case \
without gaps, its stages and boundaries.

## Columns

{columns}

Lists are separated by `;`. Bandwidths are bits per second, latencies one way.

**Stages in several domains.** The dp pipelines share a wide-area link in lockstep: one message occupies it \
for dp x micro_batch x seq x hidden x 2 bytes / wan_bps per direction (4 bytes an element with fp32), then \
travels wan_latency_s. Boundaries inside a domain use the fabric between the GPUs of the two stages, packed \
in rank order: tensor rank fastest, then data rank, then stage. A tensor group wider than a node runs at \
the network's speed.

**Measured pieces.** Each replaces the value of the models. With both stage_forward_s and \
stage_backward_s the answer is the makespan of the schedule, where boundaries inside a domain cost nothing, \
and then gradient reduction and update: reduction_s and update_s where they are given, else those of the \
models, nothing where the row describes no model. Micro-batches seldom take equally long: \
`1.0|1.2;0.9|1.1` are two of them in two stages, in YAML `[[1.0, 1.2], [0.9, 1.1]]`.

**Attention.** GPT blocks on {scores} write their scores to memory; any other block, and any block on newer \
GPUs, uses fused attention.

**Several GPU models.** `gpu_models` names the GPUs of every stage, `A100-80;A100-80;H100;H100`, or of every \
domain of the row. Each stage takes the time of its own GPUs and must fit into them; the way to balance \
such a pipeline is `cuts`. Nodes hold GPUs of one model, and the slower adapter of two stages paces the \
boundary between them. A type or a form of attention that one of the models needs is that of all stages.

**Heads.** `head_dim` is the width of a head where hidden / heads is not (Qwen3: 128). With `kv_lora_rank` \
the attention is latent, as in DeepSeek-V2 and V3: the columns have the names of their configurations, and \
what queries, keys and values are made from is divided over tensor groups like everything else. \
DeepSeek-V3 is `layers 61, hidden 7168, heads 128, ffn 18432, vocab 129280, q_lora_rank 1536, kv_lora_rank \
512, experts 256, top_k 8, expert_ffn 2048, shared_ffn 2048, moe_first 3`.

**Mixtures of experts.** With `experts` the MLP of a block is that many experts, of which a token passes \
`top_k`, and one of width `shared_ffn` that all tokens pass. The `ep` neighbouring ranks of a group hold \
experts / ep each; the dp / ep ranks with the same experts reduce their gradients and share their \
optimiser states. Each way a block sends every token's `top_k` copies to their experts and back, two \
all-to-alls of tokens x top_k x hidden x 2 bytes x (ep - 1) / ep a GPU: over NVLink where the group fits \
into a node, else what leaves the node over each GPU's own adapter. Tensor groups divide every expert. No \
token is dropped, and the router is even unless `expert_imbalance` says by how much the busiest rank is \
behind; two recorded runs of Mixtral 8x7B look like 1.3 (docs/measured/fidelity.md). `expert_ffn`, \
`shared_ffn` and `ffn` are the widths of published configurations: Mixtral 8x7B is `layers 32, hidden \
4096, heads 32, kv_heads 8, ffn 14336, vocab 32000, experts 8, top_k 2`.

**Limits of power and clock.** Under `power_cap_w` a computing GPU runs at the highest clock whose power \
fits, under `clock_cap` at that share; products and fused attention slow down with it, passes over memory \
and links do not. Power above idle goes with clock x voltage^2, the voltage falling to a floor \
(`twin/costs/energy.py`; fitted to an A100 SXM and an A40, judged on an A100 PCIe in \
docs/measured/fidelity.md). A waiting GPU draws no more than the limit. `mfu` stays relative to the peak \
without limits; measured stage times are taken to be those under the limit. `--power-cap-w WATTS` is the \
cell of all rows that have none.

**LoRA.** With `lora_rank` r a frozen matrix of `lora_targets` has two thin ones of r (d_in + d_out) \
parameters beside it, in every block, and nothing else is trained: no gradient, no optimiser state and no \
reduction but theirs, 2 bytes for every frozen weight. A frozen matrix has no weight gradient, so that a \
token costs 4 FLOPs for each of its parameters instead of 6 (`mfu` counts as much), and its input is not \
kept. Embedding, norms and head are frozen. The model's shape and all parallel sizes are those of the row.

**What is assumed.** Tensor groups use sequence parallelism (activations divide by tp). ZeRO 0 reduces \
gradients after the backward; from ZeRO 1 on the reduction runs beside the last backward and weights are \
gathered beside the next forward. The optimiser is Adam in mixed precision (18 bytes per parameter, 20 in \
fp16), in fp32 16. ZeRO 0 takes the faster of a ring and a double binary tree between nodes, as NCCL does.

**Tied embeddings** (the GPT family). The first and the last stage hold a copy each and exchange its \
gradient after every last backward, as Megatron-LM does: vocab x hidden values of 4 bytes (fp16: 2) for \
each of the dp pipelines, half of them at a time, both ways at once. Between domains they travel at the \
pace of the slowest boundary.

## Answers

{answers}

## Interval

{interval}

## Calibration

`twin calibrate` fits constants to the profiles in the lake and keeps them in the store: per GPU model the \
share of the peak that products (half precision and fp8) and fused attention reach and how long a product \
takes to start, the host's floor under small blocks, the links inside a node (alpha, beta), power against \
activity, and the ratio of measured to modelled stored activations. Blocks that `twin profile` measured (tp \
1, half precision, fused attention) are interpolated in the micro-batch. `twin estimate` with the same \
`--store` then uses every fit that predicts its rows better than the built-in constant, and names the \
calibration in `basis`. The fit of a network between nodes is printed, not used: give inter_node_bps. The \
interval stays the one above. Runs use the fits where the scenario says `calibration: \
latest`, or names a digest: compute times and power are then the fitted ones, links those that the scenario \
states, and the run's first event holds the digest, under which a run is computed again whatever is fitted \
later.

## Profiles

`--profiles DATASET` takes layer times from the `layer_profiles` of that data set in the lake: numbered \
layers (embedding, blocks, norm and head, with the collectives of their tensor group inside a node) or the \
blocks of `twin profile`, where model, GPU model and tp are measured, linear between the measured \
micro-batches; recompute adds the measured forward again. `profile_model` names the model in the data set. \
The optimiser takes its measured time, links inside nodes are those that the data set's all-reduces show \
(unless intra_node_bps is given). A width or a micro-batch that is not measured, or a group over nodes, \
comes from the models. `basis` says which it was, row by row. Profiles of another model, GPU or sequence \
length are refused. The lake does not know in which type a profile ran: give the row's dtype accordingly. A \
scenario does the same with `profiles: {{dataset: NAME, model: NAME}}`, and the run's first event holds the \
digest of the rows.

## Learning from runs

`twin calibrate --runs CASES.csv` takes the plans of real jobs, a row each, and their step times: \
`measured_s` in the row, or `run`, a data set and a job whose step times stand in the lake (`twin ingest` \
reads MLPerf logs, Megatron's records and CSV). It prints what was predicted, in terms that add up \
(reduction: what the iteration loses when gradient reduction is free; pipeline: stage boundaries then; \
tensor-parallel: its collectives then; compute: the rest), and fits three factors per GPU model: on the \
time of computing, of messages inside nodes, and of messages between nodes. A factor that the runs cannot \
tell from the others is named and stays 1: the elasticities of all runs are decomposed into singular values, \
and a direction that changes times by less than 2 % for an e-fold change is lost in the scatter of runs. So \
one plan alone seldom shows more than one factor. The factors join the calibration of the store, with the \
runs and the digest of their table; nothing built in changes. `twin calibrate` without `--runs` fits to \
profiles anew and drops them.

## The inverse

`--solve COLUMN --target FIGURE=VALUE` with COLUMN one of {solved} and FIGURE one of {targets}: the least \
demanding value that reaches the target (the smallest bandwidth, the longest latency, the fewest GPUs), or \
the best possible figure when none does. Counts take values that divide the batch.

## Examples

{examples}
"""


def page(outputs: tuple[str, ...]) -> str:
    """Returns the page; `outputs` are what the commands of `EXAMPLES` print."""
    return PAGE.format(
        columns="\n".join(_columns()),
        scores=", ".join(resolve_model.WRITES_SCORES),
        answers="\n".join(_outputs()),
        interval=_interval(),
        solved=", ".join(inverse.COLUMNS),
        targets=", ".join(inverse.TARGETS),
        examples="\n".join(_examples(outputs)).rstrip(),
    )


def run(table: str, command: str) -> str:
    """Returns what `command` prints when `cases.csv` holds `table`."""
    runner = CliRunner()
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path("cases.csv").write_text(table, encoding="utf-8")
        result = runner.invoke(cli.twin, command.split()[1:])
    if result.exit_code:
        raise AssertionError(f"{command} exited with {result.exit_code}: {result.output}")
    return "\n".join(line.rstrip() for line in result.output.splitlines())


def made() -> str:
    """Returns the page with the examples run now."""
    return page(tuple(run(table, command) for _, _, table, command in EXAMPLES))


if __name__ == "__main__":
    target = Path(__file__).parents[2] / "docs" / "guides" / "estimate.md"
    target.write_text(made(), encoding="utf-8")
