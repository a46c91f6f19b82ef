"""A second module: what `shop` imports from it does not become the shop's own."""

from queuert.jobs import Job


class Imported(Job[None], name="imported"):
    pass
