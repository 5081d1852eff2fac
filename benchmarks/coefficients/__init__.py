"""The arrays of coefficients in the headers of the runtime: their functions, intervals and bounds."""
