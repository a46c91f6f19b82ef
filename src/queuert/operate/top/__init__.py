"""`queuert top`: the same as the dashboard, in a terminal. Needs Textual."""
