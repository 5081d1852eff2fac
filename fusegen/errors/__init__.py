"""Every sentence that fusegen says when a user's input is wrong; a file holds those of one subject."""

from fusegen.errors import absent
from fusegen.errors.base import FusegenError, Span, SpecErrors, counted, meant, nearest, toml_place
from fusegen.errors.certifying import *
from fusegen.errors.compiling import *
from fusegen.errors.composing import *
from fusegen.errors.configuring import *
from fusegen.errors.formulas import *
from fusegen.errors.keys import *
from fusegen.errors.lifting import *
from fusegen.errors.measuring import *
from fusegen.errors.paths import *
from fusegen.errors.producers import *
from fusegen.errors.repositories import *
