"""Random JSON schemas that combine keywords far more densely than people do.

The schemas of random_schemas.py are like those in use, which rarely negate, overlap or contradict each
other. These are small, share few names and values, and put most keywords beside each other.
"""

_NAMES = ["a", "b", "c", "ab", 'q"']
_SCALARS = [0, 1, 2, -1, 1.5, "a", "b", "ab", "", True, False, None, 10, "é"]
_NUMBERS = [0, 1, -1, 2.5, 10, 100, -3.25, 0.001, 7, 1e3]
_PATTERNS = ["^a", "b$", "^[ab]+$", "^.$", "a|b", "^(ab)*$", "[^a]", "^a{2,3}", "^(?!b)", "\\d", "^$", "x?"]
_NAME_PATTERNS = ["^a", "b$", ".", "^x", "^[a-c]$"]
_NAME_SCHEMAS = [{"maxLength": 1}, {"pattern": "^[ab]"}, {"enum": ["a", "b", "zz"]}, {"minLength": 2}]
_SIMPLE = [True, {}, {"type": "integer"}, {"type": "string"}, {"const": 1}, {"const": "a"}, {"type": "null"}]


class DenseSchema:
    """One schema, of draft 7 or of 2020-12."""

    split = "dense"
    examples = []
    wrong = []
    tool_parameters = False

    def __init__(self, rng):
        self._rng = rng
        self._draft7 = rng.random() < 0.5
        self._definitions = {}
        root = self._node(0)
        draft = "http://json-schema.org/draft-07/schema#" if self._draft7 else (
            "https://json-schema.org/draft/2020-12/schema")
        self.schema = {"$schema": draft, **(root if isinstance(root, dict) else {"allOf": [root]})}
        if self._definitions:
            self.schema["definitions"] = self._definitions

    def _maybe(self, share):
        return self._rng.random() < share

    def _value(self, depth=0):
        if depth == 2 or self._maybe(0.7):
            return self._rng.choice(_SCALARS)
        inner = self._value(depth + 1)
        return self._rng.choice([[], [inner], {"a": inner}, {}, {"a": 1, "b": inner}])

    def _node(self, depth):
        rng = self._rng
        if depth > 3 or self._maybe(0.08):
            return rng.choice(_SIMPLE)
        writers = {"string": self._string, "number": self._number, "array": self._array, "object": self._object,
                   "combination": self._combination, "value": self._given}
        schema = {}
        chosen = rng.sample(list(writers), rng.choice([1, 1, 1, 2, 2, 3]))
        if self._maybe(0.6):
            types = [self._type(kind) for kind in chosen]
            schema["type"] = types[0] if len(set(types)) == 1 else list(dict.fromkeys(types))
        for kind in chosen:
            writers[kind](schema, depth)
        if depth > 0 and self._maybe(0.07):
            name = f"d{len(self._definitions)}"
            self._definitions[name] = schema
            return {"$ref": "#/definitions/" + name}
        return schema

    def _type(self, kind):
        if kind == "number":
            return self._rng.choice(["number", "integer"])
        if kind in ("string", "array", "object"):
            return kind
        return self._rng.choice(["boolean", "null", "integer", "string", "object"])

    # Gives the schema the keyword in this share of the cases.
    def _plant(self, schema, share, keyword, choices):
        if self._maybe(share):
            schema[keyword] = self._rng.choice(choices)

    def _string(self, schema, _):
        self._plant(schema, 0.4, "minLength", [0, 1, 2, 3])
        self._plant(schema, 0.4, "maxLength", [0, 1, 2, 3, 5])
        self._plant(schema, 0.4, "pattern", _PATTERNS)
        self._plant(schema, 0.15, "format", ["date", "email", "ipv4", "uuid", "date-time", "time", "uri"])

    def _number(self, schema, _):
        for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            self._plant(schema, 0.3, keyword, _NUMBERS)
        self._plant(schema, 0.2, "multipleOf", [1, 2, 3, 5, 0.5, 10, 7])

    def _array(self, schema, depth):
        first, rest = ("items", "additionalItems") if self._draft7 else ("prefixItems", "items")
        if self._maybe(0.2):
            schema[first] = [self._node(depth + 1) for _ in range(self._rng.choice([1, 2, 3]))]
            self._plant(schema, 0.6, rest, [False, True, self._node(depth + 1)])
        elif self._maybe(0.4):
            schema["items"] = self._node(depth + 1)
        self._plant(schema, 0.3, "minItems", [0, 1, 2, 3])
        self._plant(schema, 0.3, "maxItems", [0, 1, 2, 3, 4])
        self._plant(schema, 0.12, "uniqueItems", [True])
        if self._maybe(0.2):
            schema["contains"] = self._node(depth + 1)
            if not self._draft7:
                self._plant(schema, 0.3, "minContains", [0, 1, 2])
                self._plant(schema, 0.3, "maxContains", [1, 2])

    def _object(self, schema, depth):
        rng = self._rng
        if self._maybe(0.7):
            names = rng.sample(_NAMES, rng.choice([0, 1, 2, 3]))
            schema["properties"] = {name: self._node(depth + 1) for name in names}
        if self._maybe(0.4):
            schema["required"] = rng.sample(_NAMES, rng.choice([1, 1, 2]))
        if self._maybe(0.3):
            patterns = rng.sample(_NAME_PATTERNS, rng.choice([1, 1, 2]))
            schema["patternProperties"] = {pattern: self._node(depth + 1) for pattern in patterns}
        self._plant(schema, 0.45, "additionalProperties", [False, False, True, self._node(depth + 1)])
        self._plant(schema, 0.15, "minProperties", [0, 1, 2, 3])
        self._plant(schema, 0.15, "maxProperties", [0, 1, 2, 3])
        self._plant(schema, 0.12, "propertyNames", _NAME_SCHEMAS)
        if self._maybe(0.12):
            self._depend(schema, depth)
        if not self._draft7:
            self._plant(schema, 0.06, "unevaluatedProperties", [False, True, {"type": "integer"}])

    def _depend(self, schema, depth):
        on_schemas = self._maybe(0.5)
        keyword = "dependencies" if self._draft7 else "dependentSchemas" if on_schemas else "dependentRequired"
        needed = self._node(depth + 1) if on_schemas else self._rng.sample(_NAMES, 1)
        schema[keyword] = {self._rng.choice(_NAMES): needed}

    def _combination(self, schema, depth):
        rng = self._rng
        for keyword in rng.sample(["allOf", "anyOf", "oneOf", "not", "if"], rng.choice([1, 1, 2])):
            if keyword in ("not", "if"):
                schema[keyword] = self._node(depth + 2)
            else:
                schema[keyword] = [self._node(depth + 1) for _ in range(rng.choice([1, 2, 2, 3]))]
        if "if" in schema:
            for keyword in ("then", "else"):
                self._plant(schema, 0.7, keyword, [self._node(depth + 1)])

    def _given(self, schema, _):
        values = []
        for value in [self._value() for _ in range(self._rng.choice([1, 2, 3, 4]))]:
            if value not in values:
                values.append(value)
        if self._maybe(0.3):
            schema["const"] = values[0]
        else:
            schema["enum"] = values
