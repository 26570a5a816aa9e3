"""The Python front door: everything that `import twin` offers lies here and is loaded on first use.

In: paths, scenario names or `Scenario` values, policies by name or as objects. Out: `Store`, `Run`,
`QueryResult` and the result types of the rooms below, unchanged. The package `twin` lists the names; it is
the one place where a lower floor names a higher one. Start with `store.py`.
"""
