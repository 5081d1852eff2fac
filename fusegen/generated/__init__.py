"""The modules of the library, as they come with fusegen: ``from fusegen.generated.gelu import gelu``.

They lie in this folder where fusegen is installed, and in ``generated/`` beside it in a checkout.
"""

from pathlib import Path

_INSTALLED = Path(__file__).parent
_FOLDER = _INSTALLED if (_INSTALLED / "MANIFEST.toml").exists() else _INSTALLED.parent.parent / "generated"
__path__ = [str(_FOLDER)]
