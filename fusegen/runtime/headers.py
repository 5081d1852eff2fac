"""The headers of the kernels; beside generated modules, a copy of `fusegen/headers.py` stands here."""

from fusegen.headers import inlined, reached, without_comments

__all__ = ["inlined", "reached", "without_comments"]
