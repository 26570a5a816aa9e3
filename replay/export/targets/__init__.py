"""What plans are written for: a class a target, behind the contract of `replay.export.contract`.

In: a `PlannedJob` that the target can express. Out: its files and how to start them. `pipeline_script.py` is
copied into exports as it is; targets that train build on `torchrun.py`. Start at `megatron.py`.
"""
