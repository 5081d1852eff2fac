"""Activations and norms of a model, replaced by the generated modules of the library.

library      the modules of the library
activations  the function of the library that a layer computes
gates        gated feed-forward layers, with the activation and the product in the kernel
row_layers   norms and softmax layers
row_functions what their forwards compute
forwards     forwards with other statements, made from their source
sums         norms behind residuals, with the sum in the kernel
handed       sums that layers end with, with the next layer's norm in the kernel
slots        the value of a norm until it is called
batches      batch norms with the activations behind them
batch_calls  where forwards call these
rotary       rotary embeddings that forwards call a function for
causal_losses the loss of causal language models
rewritten    forwards with kernels in them, by a table of rules
pairs        convolutions with the activations behind them, with the bias in the kernel
derived      classes of layers with another forward, and the way back
replace      the table of what is looked for in each layer, and the way back
patch_report what was replaced, what was not, and why
"""

from fusegen.models.patch.patch_report import Kept, Replaced, Report
from fusegen.models.patch.replace import patch, unpatch

__all__ = ["Kept", "Replaced", "Report", "patch", "unpatch"]
