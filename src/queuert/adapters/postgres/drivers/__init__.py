"""One module per driver: where its connections come from, and how statements reach them."""
