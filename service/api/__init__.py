"""The session over HTTP (FastAPI and uvicorn, extra `serve`): requests in, JSON out.

Comes in: observations as JSON or lines of JSON, requests with a bearer token. Goes out: decisions, orders, a
stream of events, metrics. Start at `app.py`, which puts the parts together; `server.py` runs it.
"""
