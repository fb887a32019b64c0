"""The results site: one static folder from a store, readable without a network (``python -m harness.site``)."""

from harness.site.build import build

__all__ = ["build"]
