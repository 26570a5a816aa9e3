"""The batch of a job: memory, speed and statistical efficiency of every size, and the one to take.

In come a model and GPUs, sizes of the batch and the gradient's noise scale, or the measured profile of an
application (`application_profile.py`); out go choices of micro-batch, accumulation, recomputation, ZeRO stage
and learning rate, ranked by goodput. Start at `batch_choice.py`; formulas lie in `efficiency.py`.
"""
