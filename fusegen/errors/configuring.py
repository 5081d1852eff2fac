"""Mistakes in the configuration of a project."""

from __future__ import annotations

from fusegen.errors.base import FusegenError


class BadConfig(FusegenError):
    sentence = "{why}"
    hint = "{near}"
