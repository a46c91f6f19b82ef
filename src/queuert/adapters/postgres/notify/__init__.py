"""Notifications through LISTEN and NOTIFY."""
