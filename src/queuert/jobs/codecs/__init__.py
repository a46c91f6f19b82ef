"""Inputs and outputs to JSON and back, and what is rejected.

Imports `base` and `records`. Begin with `type_codec`.
"""
