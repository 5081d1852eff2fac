"""The JSON Schema of specs, from the table of their keys."""

from __future__ import annotations

import json
from typing import Any

from fusegen.spec import FIELDS


def schema_text() -> str:
    """The text of the JSON Schema of specs."""
    return json.dumps(json_schema(), indent=2) + "\n"


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a spec, for completion and checks in editors."""
    properties = {field.key: {**field.schema, "description": field.meaning} for field in FIELDS}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "fusegen spec",
        "type": "object",
        "properties": properties,
        "required": ["name", "summary"],
        "oneOf": [{"required": ["formula"]}, {"required": ["chain"]}],
        "additionalProperties": False,
    }
