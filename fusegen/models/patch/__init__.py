"""Activations of a model, replaced by the generated modules of the library.

rows      a row of the tables of activations
elsewhere the rows of transformers and timm
table     the class of the library for each class of torch.nn
gates     gated feed-forward layers, with the activation and the product in the kernel
pairs     convolutions with the activations behind them, with the bias in the kernel
replace   a model's activations, replaced and put back
report    what was replaced, what was not, and why
"""

from fusegen.models.patch.patch_report import Kept, Replaced, Report
from fusegen.models.patch.replace import patch, unpatch

__all__ = ["Kept", "Replaced", "Report", "patch", "unpatch"]
