"""Commands that people run by hand and that are not part of a sweep."""
