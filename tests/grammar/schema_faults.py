"""What is wrong with an answer of schema_judge, and the smallest schema and value that show it."""

import copy
import itertools
import json

import jsonschema

from closed_world import ClosedWorld
from json_schema_validator import readings_agree, validator_for
from judged_program import written_forms

VALID_REJECTED = "valid, rejected"
INVALID_ACCEPTED = "invalid, accepted"


def orders(validator, value):
    """The value in the ways of which one must be accepted, usually one: with its names in the orders
    that a schema may mean, and with 1 in place of 1.0, since integers are written without a fraction."""
    found = []
    for own_first, branch in itertools.product((True, False), (0, 1, 2)):
        ordered = ClosedWorld(validator, own_first, branch).ordered(value)
        found += [json.dumps(ordered), json.dumps(without_fractions(ordered))]
    return [json.loads(text) for text in dict.fromkeys(found)]


def without_fractions(value):
    """The value with 1 in place of 1.0."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [without_fractions(item) for item in value]
    if isinstance(value, dict):
        return {name: without_fractions(item) for name, item in value.items()}
    return value


def fault_of(program, schema, value):
    """Returns the kind of fault that this schema and value show, or None."""
    try:
        validator = validator_for(schema)
        validator.check_schema(schema)
        valid = validator.is_valid(value)
        if not readings_agree(validator, value):
            return None
        if valid and ClosedWorld(validator).needs_openness(value):
            return None
        variants = orders(validator, value) if valid else [value]
    except (jsonschema.SchemaError, RecursionError, LookupError, TypeError, AttributeError, ValueError,
            *_reference_errors()):
        return None
    verdicts = [program.accepts(schema, written_forms(variant))[0] for variant in variants]
    if None in verdicts:
        return None
    if valid:
        return None if any(all(verdict) for verdict in verdicts) else VALID_REJECTED
    return INVALID_ACCEPTED if any(verdicts[0]) else None


def _reference_errors():
    # Their home and name depend on the release.
    named = [getattr(jsonschema.exceptions, name, None) for name in ("RefResolutionError", "_WrappedReferencingError")]
    return [error for error in named if error is not None]


def smallest(program, schema, value, tries=400):
    """Leaves out whatever can be left out of both while the same fault remains."""
    kind = fault_of(program, schema, value)
    if kind is None:
        return schema, value
    changed = True
    while changed:
        changed = False
        for next_schema, next_value in _smaller(schema, value):
            tries -= 1
            if tries < 0:
                return schema, value
            if fault_of(program, next_schema, next_value) == kind:
                schema, value, changed = next_schema, next_value, True
                break
    return schema, value


def _smaller(schema, value):
    for path in _paths(schema):
        without = _without(schema, path)
        places = [place for place in _paths(value) if place[-1] == path[-1]]
        for place in places:
            yield without, _without(value, place)
        # A name that the value keeps would become one that only an open object has: another fault.
        if not places or path[-2:-1] != ("properties",):
            yield without, value
    for place in _paths(value):
        yield schema, _without(value, place)
    for path in _paths(schema):
        yield _lifted(schema, path), value


def _paths(value, path=()):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in items:
        yield (*path, step)
    for step, item in items:
        yield from _paths(item, (*path, step))


def _without(value, path):
    value = copy.deepcopy(value)
    here = value
    for step in path[:-1]:
        here = here[step]
    del here[path[-1]]
    return value


# The schema with a part put in place of what holds it.
def _lifted(schema, path):
    schema = copy.deepcopy(schema)
    here = schema
    for step in path[:-1]:
        here = here[step]
    part = here[path[-1]]
    if not isinstance(part, dict) or len(path) < 2:
        return schema
    holder = schema
    for step in path[:-2]:
        holder = holder[step]
    holder[path[-2]] = part
    return schema
