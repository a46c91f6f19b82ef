"""What the command and the dashboard share: how people name, filter, count and change chains."""
