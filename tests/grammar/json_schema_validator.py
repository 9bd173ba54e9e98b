"""The judge of what is valid: Python's jsonschema, with the formats that its FormatChecker checks."""

import re

import jsonschema
from jsonschema import FormatChecker

_FORMATS = FormatChecker()


def validator_for(schema):
    """Returns a validator for the schema's own draft; without "$schema", for 2020-12."""
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    return kind(schema, format_checker=_FORMATS)


def readings_agree(validator, value):
    """Whether the value is valid, or invalid, no matter if patterns are read as Python does or as
    ECMAScript does, which JSON Schema asks for."""
    changed = {"pattern": _pattern, "patternProperties": _pattern_properties}
    kind = jsonschema.validators.extend(type(validator), changed)
    return kind(validator.schema, format_checker=_FORMATS).is_valid(value) == validator.is_valid(value)


def _pattern(validator, pattern, value, schema):
    if isinstance(value, str) and not re.search(_as_in_ecmascript(pattern), value):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


def _pattern_properties(validator, patterns, value, schema):
    for pattern, part in patterns.items() if isinstance(value, dict) else ():
        for name, item in value.items():
            if re.search(_as_in_ecmascript(pattern), name):
                yield from validator.descend(item, part, path=name, schema_path=pattern)


# The pattern with what Python reads differently written out: \d and \w are ASCII, $ is the very end.
def _as_in_ecmascript(pattern):
    result, at, inside = "", 0, False
    while at < len(pattern):
        sign = pattern[at : at + 2] if pattern[at] == "\\" else pattern[at]
        at += len(sign)
        inside = (inside or sign == "[") and sign != "]"
        if sign in ("\\d", "\\w"):
            signs = {"\\d": "0-9", "\\w": "A-Za-z0-9_"}[sign]
            sign = signs if inside else f"[{signs}]"
        elif sign in ("\\D", "\\W") and not inside:
            sign = {"\\D": "[^0-9]", "\\W": "[^A-Za-z0-9_]"}[sign]
        elif not inside:
            sign = {"$": "\\Z", ".": "[^\\n\\r\u2028\u2029]"}.get(sign, sign)
        result += sign
    return result


def is_valid(validator, schema, value):
    """Whether a subschema accepts a value. References are resolved against the validator's root."""
    return validator.evolve(schema=schema).is_valid(value)


def resolve(root, reference):
    """Returns the target of a reference within the document ("#/…"), or None."""
    if reference == "#":
        return root
    if not reference.startswith("#/"):
        return None
    here = root
    for part in reference[2:].split("/"):
        part = part.replace("~1", "/").replace("~0", "~").replace("%25", "%").replace("%22", '"')
        if isinstance(here, list) and part.isdigit() and int(part) < len(here):
            here = here[int(part)]
        elif isinstance(here, dict) and part in here:
            here = here[part]
        else:
            return None
    return here
