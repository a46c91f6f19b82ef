"""The pages that show something, one module each."""
