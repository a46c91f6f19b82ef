"""No models: users see jobs through the client.

But Django sends `post_migrate` only to apps with this module.
"""
