"""Event log, runner, audit, SQL, reports, retraining."""
