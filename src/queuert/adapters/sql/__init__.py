"""What SQL adapters share: statements read from `.sql` files, and migrations of their tables."""
