"""Many workers on one sweep, on one machine or many, with nothing between them but the results folder."""
