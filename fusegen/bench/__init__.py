"""How fast generated modules are, in one run beside eager, torch.compile, a copy and others.

competitors    who competes in a case, and whether each gives the right result
clock      how long runs take that have their turns
results    what was measured, as values, files and a comparison with an earlier file
session    cases, one after the other
"""
