"""State estimation: filters the telemetry of links and of computing times, and forecasts it.

In come samples of bandwidth and latency (`twin.core.domain.LinkState`) and a training trace
(`twin.traces.wan_trace.WanTrace`); out go forecasts with calibrated intervals (`twin.core.view.Forecast`) and
the health of the filters. `engines.py` lists what a scenario can choose. Start reading at `link_filter.py`,
then `kalman_bank.py` and `multiple_model.py`; `history.py` trains, calibrates and warms up."""
