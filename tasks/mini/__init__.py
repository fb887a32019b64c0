"""The mini suite: small tasks that the testbed can do, in the formats it was trained on.

Exercises are written from an `ExerciseMaterial`: for training from the training split, for tasks from the held-out one,
by the same functions, so that formats cannot differ.
"""
