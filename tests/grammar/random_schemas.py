"""Random JSON schemas that use keywords in the shares that JSONSchemaBench has (keyword_shares.json).

A schema belongs to one of the benchmark's splits, which are as frequent here as there. It gets the
size and the set of keywords of a schema of that split: each keyword by its own share. Keywords are
then planted where they fit, in the forms that are common in the benchmark.
"""

import json
import math
import pathlib

_SPLITS = json.loads((pathlib.Path(__file__).parent / "keyword_shares.json").read_text())

_NAMES = ["id", "name", "type", "value", "url", "version", "tags", "items", "data", "description", "title", "enabled",
          "count", "start", "end", "email", "address", "status", "kind", "metadata", "spec", "labels", "path", "size",
          "created_at", "x-y", "first name", "$type", "größe", 'q"uote', "a.b", "camelCase", "0", "options", "user"]
_PATTERNS = [
    "^[A-Fa-f\\d]{24}$", "^[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$", "^[a-z_]+$",
    "^[0-9a-zA-Z_-]{1,255}$", "^(\\d\\.)(\\d)$|^(\\d)$", "(\\+)\\w+", "^[\\w\\/\\.:-]+$", "^[A-Za-z0-9:_\\-]+$",
    "^([a-z0-9-]+):([a-z0-9\\.-]+):([a-z0-9-]+)?:([a-z0-9-]+)$", "^[1-9]{1}[0-9]{12,15}$", "^pkg:", "[A-Za-z0-9_-]*",
    "^(https?:\\/\\/)?([\\da-z\\.-]+)\\.([a-z\\.]{2,6})([\\/\\w \\.-]*)*\\/?$", "^([a-z]|[ ])*$", "^[\\w\\s-]+$",
    "^[1-9][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[0-1])$", "^(?:\\S+\\s+){0,9}\\S+$", "^(.*)$", "^https?://",
    "^([0-9]{1,3}\\.){3}[0-9]{1,3}(/([0-9]|[1-2][0-9]|3[0-2]))?$", "^dev|alpha|beta|rc|RC|stable$", "^[^\\s]+$",
    "^(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d$", "^[0-9]+x[0-9]+$", "^/", "^(0|([1-9]\\d*))\\.(0|([1-9]\\d*))$", "^-",
    "\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}:\\d{2}.\\d{6}", "^#[0-9a-fA-F]{6}$", "^\\d+$", ".+", "^[A-Z]{2}$", "\\w+",
    "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)$", "\\.ya?ml$", "[^/]+/.+", "^$|^[^/].*$",
    "^data:image/(jpg|jpeg|png|svg\\+xml);base64,[0-9a-zA-Z+/=]*$", "^(http)|(https)://(.*)$", "^[-_=0-9A-Za-z]+$",
    "^[a-zA-Z]{2}|^[a-zA-Z]{2}-[a-zA-Z]{2}?$", "[0-9]+(\\.[0-9]+){3}", "^(/[^/ ]+)+$", ".*\\{\\{.+}}.*", "^none$",
    "^\\$\\{?([^:}]+).*\\}?$", "^[^:\\s]+:[^:\\s]+(:[^\\s]+)?$", "(combined|common|dev|short)", "^[0-4]?[0-7]{3}$",
    "^[\\.\\,\\*\\\\\\-\\s\\{\\}\\(\\)]+$", "^(\\[\\[REDACTED).*?(\\]\\])$", "^[a-z\\d_\\.-]+@([a-z\\d\\.-]+\\.)+[a-z]+$",
]
_NAME_PATTERNS = ["^x-", ".*", "^[a-z_]+$", "^[a-zA-Z0-9._-]+$", "^.+$", ".+", "^[0-9a-zA-Z_-]{1,255}$", "^[0-9]+$",
                  "^[a-zA-Z0-9_]*", ".", "^\\w+$", "^(default|mac|windows|linux)$", "^/", "^_[a-zA-Z][^.]*$"]
_FORMATS = ["date-time"] * 12 + ["uri"] * 7 + ["date"] * 3 + ["email"] * 3 + ["uuid"] * 2 + [
    "hostname", "ipv4", "ipv6", "time", "uri-reference", "regex", "duration", "json-pointer",
    "int32", "byte", "path", "url", "ports", "utc-millisec", "color", "semver", "password", "non-blank"]
_ENUMS = [["a", "b", "c"], ["GET", "POST", "PUT"], ["v1"], ["", "yes", "no"], ["asc", "desc"], ["é", "ß", "日本"],
          ["two words", 'q"', "b\\s"], ["Pod"], ["1.0", "1.1"]]
_TYPES = ["string", "integer", "number", "boolean", "array", "object", "null"]


class RandomSchema:
    """One schema: `split` is its split's name, `schema` the schema."""

    # Values that come with it: valid ones, and others that must not be accepted.
    examples = []
    wrong = []
    tool_parameters = False

    def __init__(self, rng, only=None):
        self._rng = rng
        splits = list(_SPLITS)
        self.split = only or rng.choices(splits, [_SPLITS[name]["schemas"] for name in splits])[0]
        known = _SPLITS[self.split]
        self.wanted = {word for word, share in known["shares"].items() if rng.random() < share}
        low, middle, high = known["size"]
        size = rng.choice([rng.uniform(low, middle), rng.uniform(middle, high)])
        self._left = max(1, round(min(size, 300)))
        self._types = [kind for kind in _TYPES if "type:" + kind in self.wanted] or ["string"]
        self._used = set()
        self._definitions = {}
        # Without "$schema" a schema is read by the newest draft.
        self._draft7 = "$schema" in self.wanted and rng.random() < 0.8
        self.schema = self._root()

    def _root(self):
        head = {}
        if self._wants("$schema"):
            head["$schema"] = f"http{'' if self._draft7 else 's'}://json-schema.org/draft" + (
                "-07/schema#" if self._draft7 else "/2020-12/schema")
        if self._wants("title"):
            head["title"] = "A schema"
        schema = self._object(0)
        while self._left > 0:
            schema["properties"][self._name(schema["properties"])] = self._node(1)
        for word in sorted(self.wanted - self._used):
            self._plant(schema["properties"], word)
        self._finish(schema, may_empty=False)
        if self._definitions:
            schema["definitions"] = self._definitions
        return {**head, **schema}

    def _wants(self, word):
        if word in self.wanted:
            self._used.add(word)
            return True
        return False

    # Whether this node gets a keyword that the schema uses.
    def _here(self, word, share=0.3):
        return word in self.wanted and self._rng.random() < share and self._wants(word)

    def _name(self, taken):
        name = self._rng.choice(_NAMES)
        return name if name not in taken else f"{name}{len(taken)}"

    def _node(self, depth):
        self._left -= 1
        rng = self._rng
        if self._here("$ref", 0.25):
            return self._reference(depth)
        for word in ("anyOf", "oneOf", "allOf"):
            if self._here(word, 0.08):
                return self._combined(word, depth)
        kind = rng.choice(self._types if depth < 5 else [k for k in self._types if k != "object"] or ["string"])
        if self._here("enum", 0.15):
            return self._enumeration()
        node = self._of_kind(kind, depth)
        if "type" in node and self._here("type:list", 0.3):
            node["type"] = [node["type"], "null"] if kind != "null" else ["string", "null"]
        for word in ("title", "description"):
            if self._here(word, 0.3):
                node[word] = "What this is."
        if self._here("default", 0.1):
            node["default"] = None
        return node

    def _of_kind(self, kind, depth):
        if kind == "object":
            return self._finish(self._object(depth))
        if kind == "array":
            return self._array(depth)
        if kind == "string":
            return self._string()
        if kind in ("integer", "number"):
            return self._number(kind)
        return {"type": kind}

    def _enumeration(self):
        if self._rng.random() < 0.15:
            return {"enum": self._rng.choice([[1, 2, 3], [None, "x"], [True], [0.5, "half"], ["a", 1, None]])}
        node = {"type": "string", "enum": self._rng.choice(_ENUMS)}
        if self._rng.random() < 0.2:
            del node["type"]
        return node

    def _reference(self, depth):
        name = self._rng.choice(["item", "node", "ref/x", "äö"])
        if name not in self._definitions:
            self._definitions[name] = None  # it is being made
            made = self._node(depth + 2)
            if self._rng.random() < 0.15:
                made = {"type": "object", "properties": {"value": {"type": "string"},
                                                         "next": {"$ref": "#/definitions/" + _escaped(name)}}}
            if made.get("$ref"):
                made = {"type": "string"}
            self._definitions[name] = made
        if self._definitions[name] is None:  # a definition that needs itself would hold for nothing
            return {"type": "string"}
        return {"$ref": "#/definitions/" + _escaped(name)}

    def _combined(self, word, depth):
        rng = self._rng
        if word == "allOf":
            first = {"type": "object", "properties": {"left": self._node(depth + 1)}, "required": ["left"]}
            second = {"properties": {"right": self._node(depth + 1)}}
            if "$ref" in self.wanted and rng.random() < 0.5:
                self._definitions["base"] = first
                first = {"$ref": "#/definitions/base"}
            return rng.choice([{"allOf": [first, second]}, {"allOf": [first]},
                               {"type": "object", "properties": {"own": {"type": "string"}}, "allOf": [first]},
                               {"allOf": [{"type": "string", "minLength": 1}, {"maxLength": 5}]}])
        forms = [
            {word: [{"type": "string"}, {"type": "integer"}]},
            {word: [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
            {word: [{"type": "null"}, self._node(depth + 1)]},
            {"type": "string", word: [{"enum": ["a", "b"]}, {"pattern": "^[0-9]+$"}]},
            {word: [{"type": "string", "maxLength": 3}, {"type": "number"}]},
            {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
             word: [{"required": ["a"]}, {"required": ["b"]}]},
            {word: [self._variant("cat", depth), self._variant("dog", depth)]},
            {word: [self._node(depth + 1), self._node(depth + 1)]},
            {word: [{"type": "integer"}, {"type": "number", "minimum": 2}]},
            {word: [{"type": "string", "format": "uri"}, {"type": "string", "maxLength": 4}]},
        ]
        return rng.choice(forms)

    def _variant(self, tag, depth):
        return {"type": "object", "properties": {"kind": {"enum": [tag]}, "size": self._node(depth + 2)},
                "required": ["kind"], "additionalProperties": False}

    def _string(self):
        rng = self._rng
        node = {"type": "string"}
        if self._here("pattern"):
            node["pattern"] = rng.choice(_PATTERNS)
        elif self._here("format", 0.4):
            node["format"] = rng.choice(_FORMATS)
        if "pattern" in node and rng.random() > 0.12:
            return node
        if self._here("minLength"):
            node["minLength"] = rng.choice([1, 1, 1, 1, 0, 2, 3, 5, 10, 32])
        if self._here("maxLength"):
            node["maxLength"] = max(node.get("minLength", 0), rng.choice([255, 1024, 32767, 48, 64, 100, 10, 3, 1]))
        if self._here("const", 0.2):
            return {"const": rng.choice(["x", 'q"', 1, None, {"a": [1]}])}
        return node

    def _number(self, kind):
        rng = self._rng
        node = {"type": kind}
        if self._here("minimum", 0.4):
            node["minimum"] = rng.choice([0, 0, 0, 1, 1, -90, -180, 10, 1900] + [0.5, -1.25] * (kind == "number"))
        elif self._here("exclusiveMinimum", 0.4):
            node["exclusiveMinimum"] = rng.choice([0, -1, 10])
        if self._here("maximum", 0.4):
            node["maximum"] = rng.choice([100, 255, 65535, 2147483647, 9007199254740991, 180, 2030])
        elif self._here("exclusiveMaximum", 0.4):
            node["exclusiveMaximum"] = rng.choice([2000, 3001])
        if self._here("multipleOf", 0.4):
            node["multipleOf"] = rng.choice([1, 10, 4, 16, 3] + [0.01, 0.1, 0.25] * (kind == "number"))
        return node

    def _array(self, depth):
        rng = self._rng
        node = {"type": "array"}
        if "additionalItems" in self.wanted and rng.random() < 0.4:
            first = [self._node(depth + 1) for _ in range(rng.randint(1, 3))]
            node |= self._tuple(first, rng.choice([False, False, True, {"type": "string"}]))
        elif "items" in self.wanted and rng.random() < 0.95:
            self._wants("items")
            node["items"] = self._node(depth + 1)
        if self._here("minItems"):
            node["minItems"] = rng.choice([1, 1, 1, 0, 2, 4])
        if self._here("maxItems"):
            node["maxItems"] = node.get("minItems", 0) + rng.choice([0, 1, 3, 100])
        if self._here("uniqueItems"):
            node["uniqueItems"] = rng.random() < 0.9
        if self._here("contains", 0.1):
            node["contains"] = {"const": "x"}
        return node

    def _tuple(self, first, rest):
        self._wants("additionalItems")
        return {"items": first, "additionalItems": rest} if self._draft7 else {"prefixItems": first, "items": rest}

    def _object(self, depth):
        rng = self._rng
        count = min(self._left, 1 + math.floor(rng.expovariate(0.3)))
        properties = {}
        for _ in range(count):
            properties[self._name(properties)] = self._node(depth + 1)
        return {"type": "object", "properties": properties}

    # Adds the keywords of objects, which depend on the names that it has.
    def _finish(self, node, may_empty=True):
        rng = self._rng
        names = list(node["properties"])
        if self._here("required", 0.6) and names:
            node["required"] = rng.sample(names, rng.randint(1, len(names)))
            if rng.random() < 0.03:
                node["required"].append("undescribed")
        if self._here("patternProperties", 0.2):
            node["patternProperties"] = {rng.choice(_NAME_PATTERNS): self._simple()}
            if may_empty and rng.random() < 0.7:
                node["properties"] = {}
                node.pop("required", None)
        if self._here("additionalProperties", 0.6):
            node["additionalProperties"] = rng.choice([False] * 6 + [True, self._simple()])
            open_names = node["additionalProperties"] not in (True, False)
            if open_names and may_empty and rng.random() < 0.7:
                del node["properties"]
                node.pop("required", None)
        names = list(node.get("properties", {}))
        if self._here("minProperties", 0.3):
            node["minProperties"] = 1
        if self._here("maxProperties", 0.3):
            node["maxProperties"] = rng.choice([1, 2, 10])
        if self._here("propertyNames", 0.2):
            node["propertyNames"] = rng.choice([{"pattern": "^[a-z]+$"}, {"type": "string"}, {"enum": names or ["a"]}])
        if len(names) > 1:
            self._relations(node, names)
        return node

    def _relations(self, node, names):
        first, second = self._rng.sample(names, 2)
        if self._here("dependencies", 0.2):
            node["dependencies" if self._draft7 else "dependentRequired"] = {first: [second]}
        if self._here("not", 0.2):
            node["not"] = {"required": [first, second]}
        if self._here("if", 0.2):
            node["properties"][first] = {"enum": ["fixed", "free"]}
            node["if"] = {"properties": {first: {"const": "fixed"}}}
            node["then"] = {"required": [second]}
            if self._wants("else"):
                node["else"] = {"properties": {second: {"type": "string"}}}

    def _simple(self):
        return self._rng.choice([{"type": "string"}, {"type": "integer"}, {"type": ["string", "null"]}, {},
                                 {"type": "array", "items": {"type": "string"}},
                                 {"type": "object", "properties": {"p": {"type": "string"}}}])

    # Adds a property that uses a keyword which has found no place yet.
    def _plant(self, properties, word):
        self._used.add(word)
        if word.startswith("type:"):
            kind = word.removeprefix("type:")
            made = {"type": ["string", "null"]} if kind == "list" else {"type": kind}
            if kind == "array" and "items" in self.wanted:
                made["items"] = {"type": "string"}
        else:
            made = self._with(word)
        if made is not None:
            properties[self._name(properties)] = made

    def _with(self, word):
        rng = self._rng
        if word in ("anyOf", "oneOf", "allOf"):
            return self._combined(word, 4)
        if word in ("properties", "required", "patternProperties", "additionalProperties", "minProperties", "not",
                    "maxProperties", "propertyNames", "dependencies", "if"):
            names = {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": "boolean"}}
            if word == "dependencies" and not self._draft7:
                word = "dependentRequired"
            return self._only(lambda: self._finish({"type": "object", "properties": dict(names)}), word)
        if word in ("items", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains"):
            if word == "additionalItems":
                return {"type": "array", **self._tuple([{"type": "string"}, {"type": "integer"}], False)}
            return self._only(lambda: self._array(4), word)
        if word in ("pattern", "format", "minLength", "maxLength", "const"):
            return self._only(self._string, word)
        if word in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"):
            return self._only(lambda: self._number(rng.choice(["integer", "number"])), word)
        if word == "enum":
            return self._enumeration()
        if word == "$ref":
            return self._reference(4)
        return {"type": "string", word: "x"} if word in ("description", "title", "default") else None

    # Calls `make` until what it makes has the keyword.
    def _only(self, make, word):
        for _ in range(60):
            node = make()
            if word in node:
                return node
        return None


def _escaped(name):
    return name.replace("~", "~0").replace("/", "~1")


def uses(schema, word):
    """Whether the schema has this keyword anywhere (names of properties are not looked at)."""
    if isinstance(schema, list):
        return any(uses(part, word) for part in schema)
    if not isinstance(schema, dict):
        return False
    if word in schema:
        return True
    for key, part in schema.items():
        if key in ("properties", "patternProperties", "definitions", "$defs", "dependencies"):
            if any(uses(one, word) for one in part.values()):
                return True
        elif key not in ("enum", "const", "default", "required", "examples") and uses(part, word):
            return True
    return False
