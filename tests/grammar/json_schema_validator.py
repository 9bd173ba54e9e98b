"""The judge of what is valid: Python's jsonschema, with the formats that its FormatChecker checks."""

import jsonschema
from jsonschema import FormatChecker

_FORMATS = FormatChecker()


def validator_for(schema):
    """Returns a validator for the schema's own draft; without "$schema", for 2020-12."""
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    return kind(schema, format_checker=_FORMATS)


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
