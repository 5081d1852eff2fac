"""A chain, or a call of another spec or of a reference, that does not fit."""

from fusegen.errors.base import Sentence

ChainCycle = Sentence(
    "the spec refers to itself: {cycle}", "write the step out as an expression in {running}"
)
StepIgnoresValue = Sentence(
    "this step does not use the running value {running!r}",
    "name a spec, call one with its parameters, or write an expression in {running}",
)
StepHasInputs = Sentence(
    "{name!r} takes {takes}, so the running value alone does not make it a step",
    "write the step as a call: {signature}",
)
StepHasLayers = Sentence(
    "{name!r} has layers of its own, so it cannot be used inside another spec",
    "use its chain of steps instead",
)
StepHasViews = Sentence(
    "{name!r} reads {view}, so it cannot be used inside another spec", "write its formula out"
)
ReferenceTensors = Sentence(
    "{reference} takes {takes}, and this spec has {found}",
    "name a function of the spec's tensors, or leave the reference out",
)
NotARow = Sentence(
    "{dims} are no row: neighbouring dimensions of the first input, in their order",
    "write  over: [-1],  over: [1]  or, for dimension 1 and all behind it,  over: [1, ...]",
)
NotWithFronts = Sentence("{what} is of one kernel, and {name!r} is another in front of it", "leave it out")
PlaceInFront = Sentence(
    "{name!r} finds places, which are int64, and the kernel behind it reads numbers",
    "let it be the last kernel",
)
NotHeld = Sentence("{problem}", "{remedy}")
NoValuesKept = Sentence(
    "keepdim is of values of rows: {found}", "write it beside  over: [1]  and a formula such as  sum(x)"
)
NoRowDtype = Sentence(
    "row_dtype is of values of rows: {found}",
    "write it beside  over: [-1]  and a formula such as  logsumexp(x)",
)
NotGroups = Sentence(
    "{problem}: `over` cuts a dimension of {size} into so many equal parts",
    "declare a divisor of {size}, as in  init: {{num_groups: 1}}",
)
NoRows = Sentence(
    "{name} reduces the elements of a row, and this spec has no rows",
    "name their dimensions, as in  over: [-1]",
)
OtherRows = Sentence(
    "{name!r} reduces other dimensions than this spec", "declare  {over}  here, or write its formula out"
)
NotOneKernel = Sentence(
    "{name!r} has kernels in front of its own, and this takes one kernel",
    "build, check, list, explain, certify, compile and stages of show do; or give each kernel a spec",
)
NotOfElements = Sentence(
    "{name!r} reduces {what}, and this takes formulas of elements",
    "build, check, list, explain, bench, certify and the other stages of show take these",
)
NoOlderBinding = Sentence(
    "{name!r} reduces {what}, for which the binding of older PyTorch has no kernels",
    "build it for the stable ABI",
)
NotWithResults = Sentence("{what} is not taken by a spec with several results", "{remedy}")
ResultCycle = Sentence("{name!r} reads itself: {cycle}", "write one of these without the others")
ResultIsANumber = Sentence("the result {name!r} is one number, of no tensor", "leave it out")
StepHasResults = Sentence(
    "{name!r} has several results, so it cannot be used inside another spec", "write its formulas out"
)
NotWithRows = Sentence("{what} is not taken by a spec with rows", "{remedy}")
NoRowValues = Sentence(
    "reduction: {reduction} is of values of rows, and the formula has a value for each element",
    "reduce the rows in the formula, or leave the reduction out",
)
NotStatistics = Sentence(
    "rows of channels have batch statistics: {problem}",
    "reduce as in  where: {{centred: x - mean(x)}}  and  centred * rsqrt(mean(centred ** 2) + eps)",
)
NothingReduced = Sentence(
    "{what} is the same for all elements of a {of}", "reduce a value that differs from element to element"
)
OneScan = Sentence(
    "{other} stands beside {name} in one formula, and a kernel has one scan and no other reduction then",
    "put the first under layers, as  - first: {{over: [1], formula: ...}}",
)
NotTheResult = Sentence(
    "the formula goes on behind {name}, which is an integer and has no gradient",
    "make it the whole formula, and go on in PyTorch",
)
OneDimension = Sentence(
    "{name} takes the elements of a row in order, and these rows have several dimensions",
    "name one dimension, as in  over: [-1]",
)
NotAReference = Sentence(
    "{reference} cannot be a reference: {why}",
    "name a function of torch or torch.nn.functional, or a module of torch.nn, of the spec's tensors",
)
WindowArgument = Sentence("{argument} of {name} is {expected}", "for example  {example}")
WidePadding = Sentence(
    "the padding {padding} of {name} is more than half of its window of {size}",
    "PyTorch takes at most {most}",
)
NoWindow = Sentence(
    "{name} has no window of {size} elements in a tensor of shape {shape}", "give {input} a larger shape"
)
OnePooling = Sentence(
    "a spec has one pooling, and {first} stands before this one",
    "put that under layers, as  - pooled: {{formula: ...}}",
)
NotWithWindows = Sentence("{what} is not taken by a spec with a pooling", "{remedy}")
StepHasWindows = Sentence(
    "{name!r} has a pooling, so it cannot be used inside another spec", "write its formula out"
)
NotADropout = Sentence(
    "{problem}", "write  dropout(v, p)  with a parameter or a number, as in  dropout(x, 0.1)"
)
NotWithDropout = Sentence("{what} is not taken by a spec with dropout", "{remedy}")
StepHasDropout = Sentence(
    "{name!r} has dropout, so it cannot be used inside another spec", "write its formula out"
)
NotPooled = Sentence(
    "{name!r}, the first input, is read behind the pooling, where tensors have the size of the result",
    "read it in the pooling only",
)
OfTwoSizes = Sentence(
    "{name!r} is read in the pooling and behind it, where tensors have other sizes", "declare two inputs"
)
