"""`queuert worker`: one process that starts, watches and replaces worker processes.

`supervisor` decides what runs, `process` is one worker process as the supervisor sees it, `child`
is what runs in it, and `loading` finds the user's worker there. Both ends talk over a socket
(`channel`). `health` answers HTTP requests, `metrics` makes the text for Prometheus, and `systemd`
tells the service manager.
"""
