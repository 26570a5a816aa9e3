"""What every section of the report is drawn with.

`section.py` fills templates; begin there. `plot.Plot` holds the columns of a chart that the page's script
draws with hover and zoom, `svg.Chart` is a still one, `circle.py` places domains around a circle, and
`formatting.py` writes numbers, times and plans.
"""
