"""Constants of the cost models fitted to profiles in the lake, and profiling of this machine.

In: rows of `layer_profiles`, `collective_profiles` and `gpu_samples`; `layer_profiler.py` writes such rows
for this machine. Out: `Calibration`, which replaces the built-in constants, and the rows without a fit
(`uncalibrated.py`). Start with `calibrate.py`.
"""
