"""What pages draw: charts, the graph of a chain, its timeline, and JSON.

Begin with `graph`.
"""
