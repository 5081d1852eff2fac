"""metadata.json of a build variant: its name, version and licence, and the digest of each file."""

import base64
import json
from collections.abc import Mapping

from fusegen.core.digest import digest, of_files
from fusegen.tools.hub import licence

DIGITS = 10  # of the identifier


def identifier(name: str, backend: str, files: Mapping[str, str]) -> str:
    """Return the name under which `kernels` imports a repository's variant: one for each content."""
    return f"_{name}_{backend}_{of_files(files)[:DIGITS]}"


def text(
    name: str,  # of the repository
    version: int,  # the major version of its interface
    backend: str,  # ``cpu`` or ``cuda``
    module: str,  # the identifier
    files: Mapping[str, str],  # of the variant, by path
) -> str:
    """Return the text of metadata.json."""
    digests = {
        path: base64.b64encode(bytes.fromhex(digest(text))).decode() for path, text in sorted(files.items())
    }
    found = {
        "name": name,
        "id": module,
        "version": version,
        "license": licence.IDENTIFIER,
        "python-depends": [],
        "backend": {"type": backend},
        "digest": {"algorithm": "sha256", "files": digests},
    }
    return json.dumps(found, indent=2) + "\n"
