"""A model between whose PyTorch calls generated kernels run.

attributes  the numbers of a model's attributes, which know where they are
biases      convolutions whose bias the kernel of a region adds
calls       values and calls as Python text
readable    operators as calls of functions and methods
forward     the lines of forward: PyTorch's calls and those of regions, in order
module      the text of the file: the user's own, with another forward
model       all of these, in order
"""
