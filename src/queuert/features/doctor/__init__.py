"""What is wrong with a database, and repairs.

Begin with `examining`; `diagnosis` is what users get, and `texts` has the words.
"""
