"""Mistakes in the configuration of a project."""

from __future__ import annotations

from fusegen.errors.base import Sentence

BadConfig = Sentence("{why}", "{near}")
