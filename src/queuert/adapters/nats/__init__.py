"""Notifications through NATS: core subjects, and wake hints in a JetStream bucket."""

from queuert.adapters.nats.adapter import nats_notify, sync_nats_notify

__all__ = ["nats_notify", "sync_nats_notify"]
