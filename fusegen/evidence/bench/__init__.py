"""The benchmark of generated modules beside eager, torch.compile, a copy and others.

arguments      the inputs of a case
competitors    the functions that are timed in a case, each checked first
clock          the times of runs that take turns
results        measurements as values, files and a comparison with an earlier file
plots          pictures of measurements
session        cases, one after the other
rows, tuning   launch configurations
"""
