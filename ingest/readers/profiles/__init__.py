"""Readers of operator, layer and collective profiles, as profilers of training systems write them.

Their CSV and JSON files come in; rows of `layer_profiles`, `collective_profiles` and `op_times` go out. Start
at `nccl_tests.py`.
"""
