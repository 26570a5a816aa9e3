"""Power of a site over time, what it costs in energy, carbon and money, and schedules that heed it.

In: a `QueueSchedule` and a `PowerModel` (idle and busy power, conversion, PUE); carbon intensity and prices
as `Signal`s. Out: a `StepSeries` of milliwatts whose integrals are exact integers (no tick), its ramps
(`swing.py`), accounts of users and groups that sum to the site's (`accounts.py`). `self_calibration.py` fits
power to measurements as they arrive. `deferral.py` moves submissions to cleaner or cheaper hours; under a
power cap or a ramp limit `capped_kernel.py` plays the queue, and `capped_referee.py` does the same in SimPy.
Start with `site_power.py`.
"""
