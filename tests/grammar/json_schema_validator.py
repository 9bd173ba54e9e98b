"""The judge of what is valid: Python's jsonschema, with the formats that its FormatChecker checks.

Formats are those of the schema's draft. FormatChecker() with no draft in mind takes "time" for that of
draft 3, which has no offset from UTC.
"""

import fractions
import functools
import re

import jsonschema
from jsonschema import FormatChecker

_UNDRAFTED = FormatChecker(set(FormatChecker.checkers) - {"time"})  # for releases before 4.16


def _checker(kind):
    return getattr(kind, "FORMAT_CHECKER", _UNDRAFTED)


def validator_for(schema):
    """Returns a validator for the schema's own draft; without "$schema", for 2020-12."""
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    return kind(schema, format_checker=_checker(kind))


# Texts that surely have a format: FormatChecker lets more pass (an email is anything with an @), and
# checks some of them not at all.
_SURELY = {
    "email": r"[A-Za-z0-9.+_-]+@[a-z0-9-]+(\.[a-z0-9-]+)+",
    "uri": r"(https?://[a-z0-9.-]+(:\d+)?(/[A-Za-z0-9._~/-]*)?(\?[a-z0-9=&]*)?(#[a-z0-9=]*)?|urn:isbn:\d+|mailto:a@[a-z.]+)",
    "uri-reference": r"(/[a-z0-9/]*|https://[a-z.]+|#[a-z]+|[a-z]+\.html)",
    "hostname": r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*",
    "date": r"\d{4}-\d\d-\d\d",  # older releases take what Python's own reader takes, such as 20240229
    "date-time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)",
    "time": r"\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)",
    "duration": r"P(\d+W|\d+DT\d+H(\d+M)?)|PT\d+M",
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "regex": r"[a-z0-9^$+*]*|\[0-9\]\*",
}


def readings_agree(validator, value):
    """Whether the value is valid, or invalid, no matter if patterns are read as Python does or as
    ECMAScript does, which JSON Schema asks for, how strictly formats are taken, and if fractions are
    divided exactly or as doubles (5.01 is no multiple of 0.01 then)."""
    changed = {"pattern": _pattern, "patternProperties": _pattern_properties, "multipleOf": _multiple_of}
    kind = jsonschema.validators.extend(type(validator), changed)
    usual = validator.format_checker
    checker = FormatChecker(())
    checker.checkers = dict(usual.checkers)
    for name, pattern in _SURELY.items():
        checker.checks(name)(functools.partial(_is_surely, usual, name, pattern))
    return kind(validator.schema, format_checker=checker).is_valid(value) == validator.is_valid(value)


def _is_surely(usual, name, pattern, text):
    return not isinstance(text, str) or (re.fullmatch(pattern, text) is not None and usual.conforms(text, name))


def _pattern(validator, pattern, value, schema):
    if isinstance(value, str) and not re.search(_as_in_ecmascript(pattern), value):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


def _pattern_properties(validator, patterns, value, schema):
    for pattern, part in patterns.items() if isinstance(value, dict) else ():
        for name, item in value.items():
            if re.search(_as_in_ecmascript(pattern), name):
                yield from validator.descend(item, part, path=name, schema_path=pattern)


def _multiple_of(validator, divisor, value, schema):
    if validator.is_type(value, "number"):
        if fractions.Fraction(repr(value)) % fractions.Fraction(repr(divisor)) != 0:
            yield jsonschema.ValidationError(f"{value!r} is not a multiple of {divisor!r}")


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
