"""Mistakes in the configuration of a project."""

from fusegen.errors.base import Sentence

BadConfig = Sentence("{why}", "{near}")
