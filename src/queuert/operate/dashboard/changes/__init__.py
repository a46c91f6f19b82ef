"""What operators change. Each is asked about on a page, before it is done."""
