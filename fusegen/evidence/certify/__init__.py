"""Certification: a function compared with exact values and with PyTorch's, on every input it has.

    inputs            the inputs of a dtype
    interval_filter   a program in which little cancels, in intervals of doubles, for every float32
    enclosures        the formula as declared, in ball arithmetic: for samples and what the filter leaves
    guard             the filter's intervals compared with enclosures
    allowed           the references that a spec may name
    reference         the reference compared with the formula
    sweep, exact      errors of functions against either
    rows              functions of rows, with exact values of `enclosures/row_balls`
    cells, boxes, compared    errors by cell, around points and at points: the local bound
    specials, scalars    NaN and infinities, other parameters
    relations         other layouts, shapes, sizes, modes and incoming gradients
    evaluator         all of that, for one function on one device
    contract, runs    the promises, and which of them are broken; what may not grow
    digest, state     what a certificate belongs to, and what it is worth
    declarations, reachable    C++ in pieces, and those of headers that a digest covers
    certificate, certificate_text, output_text    the evidence on disk
    figures           the evidence as a record of `certify --json`
    host              the compiler and the chip of this computer
    certification     many specs, one after the other
    verdicts          what is said of them

`findings`, `contract`, `digest`, `certificate`, its texts and `state` need no torch; the others do.
"""
