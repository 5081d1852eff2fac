"""Certification: a function held against the real function and against PyTorch's, on every input it has.

    inputs        which inputs
    screen        intervals of doubles for every float32
    enclosures    as many digits as it takes, for 16-bit types, samples, and what the screen leaves open
    sweep, exact  functions held against either
    judge         all of that, for one function on one device
    contract      what is promised, and what of it is broken
    certificate   the evidence on disk
    campaign      many specs, one after the other

`findings` and `certificate` need no torch; the others do.
"""
