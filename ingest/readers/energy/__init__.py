"""Readers of power measurements, carbon intensities and electricity prices.

Exports of grid operators and of data centres come in; rows of `host_samples`, `carbon_intensity`,
`electricity_prices` and `jobs` go out. Start at `electricity_maps.py`.
"""
