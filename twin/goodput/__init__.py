"""The batch of a job: memory, speed and statistical efficiency of every size, and the one to take.

In come a model and GPUs, sizes of the batch and the gradient's noise scale, or the measured profile of an
application (`profiled_steps.py`); out go choices of micro-batch, accumulation, recomputation, ZeRO stage and
learning rate, ranked by goodput, and for schedulers the goodput of many jobs on many placements
(`many_jobs.py`, by the model of steps in `throughput_model.py`). Start at `batch_choice.py`; formulas
lie in `efficiency.py`.
"""
