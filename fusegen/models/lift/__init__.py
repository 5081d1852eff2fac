"""From a model as its user wrote it to the spec of the module that replaces it.

load       the user's file, executed
untraced   the errors of a forward that cannot be captured, in words
refused_calls  calls that no graph keeps
labels     values of the constructor's arguments that know their names
numbers    those that keep their names through arithmetic
record     the layers that a constructor made, and the call that made each tensor
state      these as the lines of `layers`
symbols    the names by which formulas read arguments and inputs
inputs     forward's arguments: names, shapes, fills
noted_calls  what calls were given, which operators do not keep
known_sizes  known sizes that a forward reads
fx_graph   the nodes of a graph
trace      its nodes as formulas
source_text  statements of source files
source_of_calls  how these write the calls of a graph
steps      these as the steps of a chain
spec_text  the text of the spec
tiny       the file with small sizes
smaller    those small sizes at which the model makes the same calls
lifted     all of these, in order
pair       a model and its module, made alike
settings   both compared with gradients, at several numbers of the constructor
verify     the module compared with the model
report     the lines that the command prints of a whole model

regions    the pointwise regions of a graph, and their kernels
modes      the graph of a forward in a mode
captured_modes  the graphs of a forward that hold in training and in evaluation
model_graphs    these, or a sentence that says why there are none
forwards   the forward of a network: its graphs, or the model itself
found      the regions of a model
network    a network that runs them
dynamo_graph  a graph of TorchDynamo as one of operators
lifted_network  such a network, made of a model
clocks     the times of its regions, and of all of it
network_times  those of a network, its model and torch.compile in turns
modelled_clocks  those of regions on a chip that is not here
partial    a file that runs them
target     a network as the command line names it
summary    the report of regions
places     the lines of a user's code

The package is callable: `fusegen.lift(model, inputs)` is `lifted_network.lifted_network`.
"""

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """The package as a function."""

    def __call__(self, model: Any, inputs: Any, **folders: Any) -> Any:
        """The network whose regions run generated kernels: see `lifted_network.lifted_network`."""
        from fusegen.models.lift.lifted_network import lifted_network

        return lifted_network(model, inputs, **folders)


sys.modules[__name__].__class__ = _Callable
