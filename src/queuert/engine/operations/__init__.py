"""What the client and the worker do, each operation written once as a program over the state
port.
"""
