"""From a sample of a task to what the engine reads, and from what it answers to rows."""
