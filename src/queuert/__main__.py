"""`python -m queuert` is the `queuert` command."""

from queuert.operate.cli import main

if __name__ == "__main__":
    main()
