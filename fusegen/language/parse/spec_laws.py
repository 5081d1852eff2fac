"""The laws of a spec, checked once its fields are read, and the stand-ins of what formulas read."""

from fusegen.core.spec import Spec
from fusegen.errors import FusegenError
from fusegen.language.parse.checks import LAWS as OF_STATE
from fusegen.language.parse.declared import NAMES
from fusegen.language.parse.dropout_call import with_dropouts
from fusegen.language.parse.fronts import fronts_are_plain, names_are_apart
from fusegen.language.parse.indices import indices_are_placed
from fusegen.language.parse.layer_parts import with_held
from fusegen.language.parse.masks import MASKS
from fusegen.language.parse.over import rows_are_reduced
from fusegen.language.parse.pooling_call import windows_are_reduced
from fusegen.language.parse.results import results_are_plain
from fusegen.language.parse.views import with_views

LAWS = (
    *NAMES,
    *OF_STATE,
    *MASKS,
    rows_are_reduced,
    windows_are_reduced,
    indices_are_placed,
    results_are_plain,
    fronts_are_plain,
    names_are_apart,
)


def checked(spec: Spec) -> tuple[Spec, list[FusegenError]]:
    """Return a spec with its views at its inputs, and its scalars; and every mistake against a law."""
    spec, mistakes = with_held(spec)
    spec, views = with_views(spec)
    spec, dropouts = with_dropouts(spec)
    return spec, [*mistakes, *views, *dropouts, *(error for law in LAWS for error in law(spec))]
