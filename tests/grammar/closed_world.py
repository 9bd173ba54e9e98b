"""Which values an answer can have beyond being valid: our rule for undeclared names and items.

An object with `properties` and without a word on others stays closed, and so does a tuple: their
undeclared names and items are valid by the standard, but we never say them. This module tells such
values apart, and puts the names of an object into the order in which an answer has them.
"""

import re

from json_schema_validator import is_valid, resolve

_CHOICES_AT_MOST = 16
_UNDECLARED_INVITED = ("additionalProperties", "unevaluatedProperties")


class ClosedWorld:
    """The rule for one schema. Two choices decide about the order of names where the schema does not:
    `own_first`, whether names of `allOf` and its like come behind the object's own `properties` or
    wherever the schema has the keyword; `branch`, which of the branches that hold goes ahead. With
    `tool_parameters`, empty `properties` of the whole schema close it, too."""

    def __init__(self, validator, own_first=True, branch=0, tool_parameters=False):
        self._validator = validator
        self._root = validator.schema
        self._own_first = own_first
        self._branch = branch
        self._tool_parameters = tool_parameters
        self._draft7 = "prefixItems" not in getattr(validator, "VALIDATORS", {})

    def needs_openness(self, value):
        """Whether the value has a name or an item that only an open object or tuple allows."""
        return self._is_open([self._root], value)

    def ordered(self, value):
        """The value with the names of all objects in the schema's order, undeclared ones last."""
        return self._order([self._root], value)

    # The sets of schemas that may hold for this value together: references are followed, and of the
    # branches of anyOf, one that holds is chosen.
    def _choices(self, schemas, value, seen=()):
        choices = [[]]
        for schema in schemas:
            if isinstance(schema, dict):
                more = self._expand(schema, value, seen)
                choices = [one + other for one in choices for other in more][:_CHOICES_AT_MOST]
        return choices

    def _expand(self, schema, value, seen):
        if id(schema) in seen:
            return [[]]
        seen = (*seen, id(schema))
        if self._draft7 and "$ref" in schema:
            return self._choices([resolve(self._root, schema["$ref"])], value, seen)
        choices = [[schema]] if self._own_first or "properties" not in schema else [[]]
        for keyword, argument in schema.items():
            if keyword == "properties" and not self._own_first:
                choices = [[*choice, schema] for choice in choices]
            more = [choice for applied in self._applied(schema, keyword, argument, value)
                    for choice in self._choices(applied, value, seen)]
            choices = [one + other for one in choices for other in more][:_CHOICES_AT_MOST]
        return choices

    # What a keyword adds for this value: lists of schemas, of which one is chosen.
    def _applied(self, schema, keyword, argument, value):
        if keyword in ("$ref", "$dynamicRef"):
            return [[resolve(self._root, argument)]]
        if keyword == "allOf":
            return [argument]
        if keyword in ("anyOf", "oneOf"):
            return [[branch] for branch in argument if is_valid(self._validator, branch, value)] or [[]]
        if keyword == "if":
            if is_valid(self._validator, argument, value):
                return [[argument, schema.get("then", True)]]
            return [[schema.get("else", True)]]
        if keyword in ("dependentSchemas", "dependencies") and isinstance(value, dict):
            return [[part for name, part in argument.items() if name in value and not isinstance(part, list)]]
        return [[]]

    def _is_open(self, schemas, value):
        return all(self._is_open_under(parts, value) for parts in self._choices(schemas, value))

    def _is_open_under(self, parts, value):
        if isinstance(value, dict):
            if not self._invites(parts):
                declared = self._declared(parts, value)
                if any(name not in declared for name in value):
                    return True
            return any(self._is_open(self._of_name(parts, name), item) for name, item in value.items())
        if isinstance(value, list):
            if any(self._tuple(part) is not None for part in parts) and not self._invites_items(parts):
                if len(value) > max(len(self._tuple(part) or []) for part in parts):
                    return True
            return any(self._is_open(self._of_item(parts, index), item) for index, item in enumerate(value))
        return False

    def _invites(self, parts):
        if any(part.get(keyword, False) is not False for part in parts for keyword in _UNDECLARED_INVITED):
            return True
        return not any(self._closes(part) for part in parts)

    def _closes(self, part):
        if self._tool_parameters and part is self._root:
            return "properties" in part
        return bool(part.get("properties"))

    @staticmethod
    def _declared(parts, value):
        names = {}
        for part in parts:
            names |= dict.fromkeys(part.get("properties", {}))
        for part in parts:
            names |= dict.fromkeys(part.get("required", []) if isinstance(part.get("required"), list) else [])
        for part in parts:
            for pattern in part.get("patternProperties", {}):
                names |= dict.fromkeys(name for name in value if re.search(pattern, name))
        return names

    @staticmethod
    def _of_name(parts, name):
        schemas = []
        for part in parts:
            known = [part["properties"][name]] if name in part.get("properties", {}) else []
            known += [schema for pattern, schema in part.get("patternProperties", {}).items()
                      if re.search(pattern, name)]
            if not known:
                known = [part[keyword] for keyword in _UNDECLARED_INVITED if keyword in part][:1]
            schemas += known
        return schemas

    def _tuple(self, part):
        if self._draft7:
            return part["items"] if isinstance(part.get("items"), list) else None
        return part.get("prefixItems")

    def _rest(self, part):
        if not self._draft7:
            return part.get("items", part.get("unevaluatedItems"))
        return part.get("additionalItems") if isinstance(part.get("items"), list) else part.get("items")

    def _invites_items(self, parts):
        return any(self._rest(part) is not None and self._rest(part) is not False for part in parts)

    def _of_item(self, parts, index):
        schemas = []
        for part in parts:
            first = self._tuple(part) or []
            schema = first[index] if index < len(first) else self._rest(part)
            if schema is not None:
                schemas.append(schema)
        return schemas

    def _order(self, schemas, value):
        for schema in schemas:
            for given in [schema.get("const"), *schema.get("enum", [])] if isinstance(schema, dict) else ():
                if given == value and isinstance(value, (dict, list)):
                    return given
        choices = self._choices(schemas, value)
        parts = choices[self._branch % len(choices)]
        if isinstance(value, list):
            return [self._order(self._of_item(parts, index), item) for index, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        names = {name: None for part in parts for name in part.get("properties", {}) if name in value}
        names |= {name: None for name in self._declared(parts, value) if name in value}
        for needed in (part.get(keyword, {}) for part in parts for keyword in ("dependencies", "dependentRequired")):
            for name, others in needed.items():
                names |= {other: None for other in [name, *others] if other in value}
        names |= dict.fromkeys(value)
        return {name: self._order(self._of_name(parts, name), value[name]) for name in names}
