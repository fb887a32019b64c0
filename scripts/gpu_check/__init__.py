"""One command for a machine with a GPU: are results right there, and how fast is the engine?"""
