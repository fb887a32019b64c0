"""What notebooks and scripts call. It goes through the same cells, store and engine as the command line."""
