"""The console: one page at `/` that shows a live run and steers it (Preact, htm, uPlot; no build step).

Comes in: requests of a browser. Goes out: the files of `static/`, those that it shares with `twin report`,
and figures that only a page asks for. Start at `page.py`; in `static/`, `app.js` puts the views together.
"""
