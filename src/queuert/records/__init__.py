"""The plain records that cross a port: jobs and chains, and those of each feature.

Imports `base`. Begin with `model`.
"""
