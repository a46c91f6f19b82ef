"""Logs, metrics and traces. Import from the modules. `otel` needs the extra `queuert[otel]`."""
