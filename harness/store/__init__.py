"""The results folder: cells, parts with their rows, and the care of both."""
