"""The digital twin: domain model, cost models, state estimation, event simulation."""
