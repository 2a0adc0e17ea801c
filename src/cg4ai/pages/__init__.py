"""Self-contained HTML pages, which open without a server, a network or other files."""

from cg4ai.pages.page import escape, render_page

__all__ = ["escape", "render_page"]
