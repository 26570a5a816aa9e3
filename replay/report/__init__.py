"""Pages and exports of a run, from its log alone.

`page.write` folds the events into `run_data.RunData`; section modules make a `Section` of them, which
a template of `templates/` draws with the charts of `drawing`; out comes one self-contained HTML file, whose
script is `templates/report.js`. `several_runs` lays runs over each other.
`chrome_trace` and `tensorboard` export to other viewers. Start reading at `page.py`.
"""
