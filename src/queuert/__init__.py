"""Durable, typed job chains that commit with your own database transaction."""
