"""The headers of the kernels; beside generated modules, a copy of core/header_files.py stands here."""

from fusegen.core.header_files import inlined, reached, without_comments

__all__ = ["inlined", "reached", "without_comments"]
