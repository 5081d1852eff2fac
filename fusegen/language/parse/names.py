"""Which words may name a spec, an input, a parameter or a step.

A name goes into Python, C++ and CUDA, so a keyword of any of them is refused, and so is every word that the
generated module or the formula language already uses. A function that a
kernel calls may be a variable's name: `codegen/printers/cpp.py` renames the variable there.
"""

import keyword
import re

from fusegen.core.folds import LENGTH, SHARE
from fusegen.core.ops import CONSTANTS, OPS
from fusegen.core.spec import ARGUMENT_PATTERN, NAME_PATTERN
from fusegen.errors import BadName, NameTaken, Span

_CPP = (
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t "
    "char32_t class co_await co_return co_yield compl concept const const_cast consteval constexpr "
    "constinit continue decltype default delete do double dynamic_cast else enum explicit export "
    "extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq "
    "nullptr operator or or_eq private protected public register reinterpret_cast requires return "
    "short signed sizeof static static_assert static_cast struct switch template this thread_local "
    "throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while "
    "xor xor_eq"
).split()
_MACROS = "assert errno linux stderr stdin stdout unix".split()  # words a C++ preprocessor may replace
_MODULE = (  # words the generated module uses itself
    "are_transforms_active bool call dim eager eager_gradient forward_ad get_init_inputs get_inputs grad "
    f"inplace int is_dynamo_compiling is_tracing nn out output pull result run self store str super torch "
    f"unsqueeze {LENGTH} {SHARE}"
).split()
_BUILTINS = (  # functions of Python that the module calls, where a spec's name would be another
    "all any enumerate getattr hasattr isinstance issubclass len max open range repr slice sorted str "
    "tuple type zip"
).split()
_CONSTRUCTOR = "inplace nn self super torch".split()  # what a ModelNew's constructor reads or takes itself
_NAMESPACE = ("name",)  # what torch.ops already has where it holds a module's operators
_LIBM = {op.libm for op in OPS.values() if op.libm}
_MODULE_ATTRIBUTES = (  # what torch.nn.Module already has
    "add_module apply bfloat16 buffers call_super_init children compile cpu cuda double dump_patches "
    "eval extra_repr float forward get_buffer get_extra_state get_parameter get_submodule half ipu "
    "load_state_dict modules mtia named_buffers named_children named_modules named_parameters "
    "parameters register_backward_hook register_buffer register_forward_hook register_forward_pre_hook "
    "register_full_backward_hook register_full_backward_pre_hook register_load_state_dict_post_hook "
    "register_load_state_dict_pre_hook register_module register_parameter "
    "register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ set_extra_state "
    "set_submodule share_memory state_dict to to_empty train training type xpu zero_grad"
).split()


def check_name(name: str, span: Span) -> None:
    """Refuse a word that is not a name, or that Python, C++ or the module keeps for itself.

    Raises:
        BadName: it is no name, or a keyword.
    """
    why = ""
    if len(name) > 64:
        why = f"it has {len(name)} characters"
    elif not re.fullmatch(NAME_PATTERN, name):
        why = "it is not a lower-case word"
    elif keyword.iskeyword(name) or name in keyword.softkwlist:
        why = "it is a keyword of Python"
    elif name in _CPP or name in _MACROS:
        why = "it is a keyword of C++"
    elif name in _MODULE:
        why = "the generated module uses it"
    _refuse(name, why, span)


def _refuse(name: str, why: str, span: Span) -> None:
    if why:
        raise BadName(span, name=name if len(name) <= 80 else name[:80] + "...", why=why)


def check_argument(name: str, span: Span) -> None:
    """Refuse what cannot be an argument of a ModelNew's constructor, where no formula reads it.

    Raises:
        BadName: it is no name in Python, or the constructor has another use for it.
    """
    why = ""
    if not re.fullmatch(ARGUMENT_PATTERN, name):
        why = "it is no plain name of at most 64 characters"
    elif keyword.iskeyword(name):
        why = "it is a keyword of Python"
    elif name in _CONSTRUCTOR:
        why = "the generated module uses it"
    _refuse(name, why, span)


def check_variable(name: str, span: Span) -> None:
    """Refuse, besides, the names of functions and constants of the formula language.

    Raises:
        BadName, NameTaken: what is wrong with it.
    """
    check_name(name, span)
    if name in CONSTANTS or name == "inf":
        raise NameTaken(span, name=name, holder="a constant")
    if name in OPS or name in _LIBM:
        raise NameTaken(span, name=name, holder="a function")


def check_module(name: str, span: Span) -> None:
    """Refuse what cannot be a spec's name: what a ModelNew or torch.ops already has, or its module calls.

    Raises:
        BadName, NameTaken: what is wrong with it.
    """
    check_attribute(name, span)
    if name in _BUILTINS or name in _NAMESPACE:
        raise BadName(span, name=name, why="the generated module uses it")


def check_attribute(name: str, span: Span) -> None:
    """Refuse what cannot be an attribute of a ModelNew: a kernel, a layer or a parameter.

    Raises:
        BadName, NameTaken: what is wrong with it.
    """
    check_name(name, span)
    if name in _MODULE_ATTRIBUTES:
        raise NameTaken(span, name=name, holder="an attribute of torch.nn.Module")
