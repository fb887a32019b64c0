"""The mini suite: small tasks that the testbed can do, in the formats it was trained on.

Each module writes exercises from a `Material`. Training draws from the training material, the tasks from the held-out
one, through the same function: formats cannot drift apart.
"""
