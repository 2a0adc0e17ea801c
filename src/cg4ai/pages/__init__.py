"""Pages that one opens: HTML files that need no server, no network and no other file."""

from cg4ai.pages.page import escape, render_page

__all__ = ["escape", "render_page"]
