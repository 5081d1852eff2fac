"""Pointwise regions of a torch.fx graph: what one generated kernel each can compute.

examples   the value of each node on example inputs, without memory
aliases    which values of a graph share memory, and which writes in place have a form without
extremes   values of max and min along a dimension as one operation
own_formulas  batch norms, dropouts and extremes, whose formulas are in no table
pointwise  a node as a formula of the nodes that it reads
views      permutations and reshapes that part operations, moved
region     its operations, what it reads and its results
growing    which operations a region takes
partition  the maximal regions and their results
worth      the passes over memory that a region takes in eager, and in a kernel
gradient   the same of its gradient
naming     names of regions, inputs and parameters
spec       the text of a region's spec
builds     the specs and modules of regions in their folders
original   the operations of a region as they were
kernel     the module that runs a region, and its call in a graph

The graph may come from any tracer: its nodes carry example values in ``node.meta``, and calls may be
functions, methods, modules or operators of ATen.
"""
