"""What a graph of PyTorch computes, by the operators of ATen: one table for every graph.

aten_calls  the operators that a node of a graph runs, with arguments bound by their schemas
aten_table  the formula of each operator
formula     formulas with values in the place of names

The graph may be that of torch.fx, of dynamo or of torch.export: its nodes carry example values in
``node.meta``, and calls may be functions, methods, modules or operators.
"""
