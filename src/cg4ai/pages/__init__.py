"""Pages that one opens: HTML files that need no server, no network and no other file."""

from cg4ai.pages.page import escaped, page

__all__ = ["escaped", "page"]
