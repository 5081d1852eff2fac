"""Certification: a function compared with exact values and with PyTorch's, on every input it has.

    inputs            the inputs of a dtype
    interval_filter   a program in which little cancels, in intervals of doubles, for every float32
    enclosures        the formula as declared, in ball arithmetic: for samples and what the filter leaves
    guard             the filter's intervals compared with enclosures
    allowed           the references that a spec may name
    reference         the reference compared with the formula
    sweep, exact      errors of functions against either
    specials, layouts, scalars    NaN and infinities, other tensors, other parameters
    compared          the results of one output at some points, ours, eager's and the exact ones
    cells, boxes, runs    the local bound: by cell of a sweep, around points of a sample, as intervals
    evaluator         all of that, for one function on one device
    contract          the promises, and which of them are broken
    digest, certificate, certificate_text, output_text, state    the evidence on disk, and its state
    figures           the evidence as records of `certify --json`
    host              the compiler and the chip of this computer
    progress          the receivers of the progress of a run
    certification     many specs, one after the other

`findings`, `contract`, `digest`, `certificate`, `certificate_text`, `output_text`, `figures` and `state`
need no torch; the others do.
"""
