"""What users write, and what it is given: handlers, middleware, the attempt, and its claim.

Begin with `registry`.
"""
