"""Faults that are planted in functions, each with the rule of a certificate that has to catch it."""
