"""Pages and exports of a run, from its log alone.

`page.write` folds the events into `run_data.RunData`; section modules make a `section.Section` of them, which
a template of `templates/` draws with charts of `svg.py`; out comes one self-contained HTML file.
`chrome_trace` and `tensorboard` export to other viewers. Start reading at `page.py`.
"""
