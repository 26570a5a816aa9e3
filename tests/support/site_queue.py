"""A queue over three sites as a scenario file; its jobs are those of `examples/queue.swf`."""

from pathlib import Path

from twin.scenario import queue_file
from twin.settings.job_queue import QueueScenario

FILE = """
name: over-sites
jobs: {dataset: examples, window: {to_s: 90000}}
data: {gb: 300, sd: 1.0, sites: {us-east-1: 0.7, eu-west-1: 0.3}}
spanning: larger
model: llama2-7b
job: {global_batch: 32, micro_batches: [1, 2]}
cluster:
  hardware: {gpu: a100-80, gpus_per_node: 4, intra_node_bps: 2.4e12, inter_node_bps: 200e9,
             intra_node_latency_s: 3.0e-6, inter_node_latency_s: 8.0e-6, usd_per_gpu_hour: 5.07}
  domains: [{name: us-east-1, gpus: 40}, {name: eu-west-1, gpus: 32}, {name: ap-northeast-1, gpus: 16}]
  usd_per_gb: {default: 0.02, sources: {ap-northeast-1: 0.09}}
wan: {dataset: synthetic-tri, streams: 128, sample_streams: 1, cap_bps: 10.0e9}
"""


def site_queue(folder: Path, text: str = FILE) -> QueueScenario:
    """Writes the scenario into a folder and returns it as it is read back."""
    path = folder / "sites.yaml"
    path.write_text(text)
    found = queue_file.load(str(path))
    assert found is not None
    return found
