"""What several tests need: job types to play with, and one world per kind of database and client."""
