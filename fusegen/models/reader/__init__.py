"""The meaning of a graph of PyTorch, by the operators of ATen: one table for every graph.

operator_call   a call of an operator, with arguments bound by its schema
aten_calls      the operators that a node of a graph runs
layer_calls     the operators of a layer with parameters of any dtype
run_calls       calls of operators, run on tensors
row_calls       formulas of operators that reduce rows, and of casts
window_calls    formulas of poolings
row_gains       where kernels of rows are faster
aten_table      the formula of each operator
eager_traffic   the memory that eager moves for each operator
formula         formulas with values in the place of names
capture         a forward as a graph of operators
recorded_calls  calls that it records otherwise
call_structure  how such a graph is called, and what it holds for

Graphs are captured ones, of a forward or of what TorchDynamo made of one: nodes carry example values in
``node.meta["val"]`` and call operators, layers, or functions that run several operators.
"""
