"""From a compiled spec to C++: the kernels that the plan takes, printed."""
