"""Links over time: series of bandwidth and latency per directed link, built from measurements in the lake.

In come rows of `link_samples` and the settings of a scenario (`twin.settings.wan_links`); out goes a
`WanTrace`, the ground truth of a world and the training data of its filters. `measured_links.py` builds it
and states the modelling steps, `relative_variation.py` composes two data sets, `perturbation.py` alters it,
`time_range.py` resolves what was typed. Start reading at `wan_trace.py`.
"""
