"""What observers are told: derived from results, and kept until the commit.

Without observers, nothing of this is called. Begin with `observations`.
"""
