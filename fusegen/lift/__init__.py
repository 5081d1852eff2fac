"""From a model as its user wrote it to the spec of the module that replaces it.

load       the user's file, executed
labels     values of the constructor's arguments that know their names
record     the layers that a constructor made, and the call that made each tensor
state      these as the lines of `layers`
inputs     forward's arguments: names, shapes, fills
table      what each operation of PyTorch is as a formula
rows       a call as a formula, by its row
graph      the graph of forward, by torch.fx
trace      its nodes as formulas
steps      these as the steps of a chain
spec_text  the text of the spec
tiny       the file with small sizes
lifted     all of these, in order
verify     the module compared with the model
report     the lines that the command prints
"""
