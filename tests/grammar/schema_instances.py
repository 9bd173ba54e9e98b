"""Random values for a schema: valid ones, and valid ones with something changed."""

import copy
import math
import re

from json_schema_validator import resolve
from pattern_texts import text_of

_WORDS = ["", "a", "Ada", "name", "x-1", "two words", "été", "日本", "😀", 'say "hi"', "back\\slash", "line\nbreak",
          "tab\there", "\u0001", "/path/to/x", "A" * 40, "true", "12", "{}", "\u007f", "\u2028"]
_FORMATS = {
    "date": ["2024-02-29", "1999-12-31", "2023-01-01"],
    "time": ["12:00:00Z", "23:59:59.123Z", "08:30:06+01:00"],
    "date-time": ["2024-02-29T12:00:00Z", "1999-12-31T23:59:59.5+02:00", "2020-01-01T00:00:00-08:00"],
    "email": ["ada@example.com", "first.last+tag@mail.example.org"],
    "uri": ["https://example.com/a?b=c#d", "http://localhost:8080/", "urn:isbn:0451450523", "mailto:a@example.com"],
    "uri-reference": ["/a/b", "https://example.com", "#part", "a.html"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000", "00000000-0000-0000-0000-000000000000"],
    "ipv4": ["127.0.0.1", "255.255.255.255", "8.8.8.8"],
    "ipv6": ["::1", "2001:db8::8a2e:370:7334", "fe80:0:0:0:0:0:0:1"],
    "hostname": ["example.com", "localhost", "a-b.example.org"],
    "regex": ["^a+$", "[0-9]*"],
    "duration": ["P1DT2H", "PT5M", "P3W"],
    "json-pointer": ["/a/0", ""],
}
_BY_KEYWORD = {
    "object": ("properties", "required", "additionalProperties", "patternProperties", "minProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"),
    "string": ("pattern", "format", "minLength", "maxLength"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}


class Instances:
    """Random values for one schema."""

    def __init__(self, validator, rng):
        self._validator = validator
        self._root = validator.schema
        self._rng = rng

    def valid(self, tries=30):
        """A value that the validator accepts, or None if none was found."""
        for _ in range(tries):
            value = self._value([self._root], 0)
            if self._validator.is_valid(value):
                return value
        return None

    def changed(self, value):
        """The value with one random change, which may or may not leave it valid."""
        value = copy.deepcopy(value)
        places = list(_places(value, ()))
        path = self._rng.choice(places)
        here = value
        for step in path[:-1]:
            here = here[step]
        old = here[path[-1]] if path else value
        new = self._change(old)
        if not path:
            return new
        if self._rng.random() < 0.15:
            del here[path[-1]]
        else:
            here[path[-1]] = new
        return value

    # A value that all schemas should accept.
    def _value(self, schemas, depth):
        if depth > 40:
            return None
        parts = []
        for schema in schemas:
            self._choose(schema, parts, 0)
        given = [part for part in parts if "const" in part or "enum" in part]
        if given:
            part = self._rng.choice(given)
            return part["const"] if "const" in part else self._rng.choice(part["enum"] or [None])
        kind = self._kind(parts, depth)
        if kind == "object":
            return self._object(parts, depth)
        if kind == "array":
            return self._array(parts, depth)
        if kind == "string":
            return self._string(parts)
        if kind in ("integer", "number"):
            return self._number(parts, kind == "integer")
        return self._rng.random() < 0.5 if kind == "boolean" else None

    # Follows references, takes all of allOf and one branch of the rest.
    def _choose(self, schema, parts, depth):
        if not isinstance(schema, dict) or depth > 30:
            return
        parts.append(schema)
        if isinstance(schema.get("$ref"), str):
            self._choose(resolve(self._root, schema["$ref"]), parts, depth + 1)
        for part in schema.get("allOf", []):
            self._choose(part, parts, depth + 1)
        for keyword in ("anyOf", "oneOf"):
            if schema.get(keyword):
                self._choose(self._rng.choice(schema[keyword]), parts, depth + 1)
        if "if" in schema:
            if self._rng.random() < 0.5:
                self._choose(schema["if"], parts, depth + 1)
                self._choose(schema.get("then"), parts, depth + 1)
            else:
                self._choose(schema.get("else"), parts, depth + 1)

    def _kind(self, parts, depth):
        kinds = None
        for part in parts:
            if "type" in part:
                own = part["type"] if isinstance(part["type"], list) else [part["type"]]
                kinds = own if kinds is None else [k for k in kinds if k in own or (k == "integer" and "number" in own)]
        if kinds:
            return self._rng.choice(kinds)
        for kind, keywords in _BY_KEYWORD.items():
            if any(keyword in part for part in parts for keyword in keywords):
                return kind
        simple = ["string", "integer", "boolean", "null", "number"]
        return self._rng.choice(simple if depth > 3 else [*simple, "object", "array"])

    def _object(self, parts, depth):
        described = {}
        for part in parts:
            for name, schema in part.get("properties", {}).items():
                described.setdefault(name, []).append(schema)
        required = [name for part in parts for name in part.get("required", []) if isinstance(name, str)]
        share = self._rng.choice([0, 0.3, 0.7, 1]) if depth < 4 else 0.1
        names = [name for name in described if name in required or self._rng.random() < share]
        names += [name for name in dict.fromkeys(required) if name not in described]
        low = _largest(parts, "minProperties", 0)
        names += [name for name in described if name not in names][:max(0, low - len(names))]
        for part in parts:
            for keyword in ("dependencies", "dependentRequired"):
                for name, needed in part.get(keyword, {}).items():
                    if name in names and isinstance(needed, list):
                        names += [other for other in needed if other not in names]
        names = [name for name in described if name in names] + [name for name in names if name not in described]
        value = {name: self._value(self._of_name(parts, name), depth + 1) for name in names}
        self._invited(parts, value, depth, low)
        high = _smallest(parts, "maxProperties", 1000)
        for name in [name for name in value if name not in required]:
            if len(value) <= high:
                break
            del value[name]
        return value

    # Adds undeclared names where the schema invites them.
    def _invited(self, parts, value, depth, low):
        patterns = [pattern for part in parts for pattern in part.get("patternProperties", {})]
        others = any(part.get("additionalProperties", False) is not False for part in parts)
        closed = any(part.get("additionalProperties") is False for part in parts)
        bare = not any(part.get("properties") or part.get("patternProperties") for part in parts)
        wanted = max(low - len(value), self._rng.choice([0, 0, 1, 2]) if depth < 4 else 0)
        for _ in range(wanted):
            names = [text_of(self._rng.choice(patterns), self._rng)] if patterns else []
            if not closed and (others or bare):
                names += [self._rng.choice(["extra", "k1", "X", "deux mots", "été", 'q"', "a"])]
                names += [name for part in parts for name in _names_of(part, self._rng)]
            name = self._rng.choice(names) if names else None
            if name is not None and name not in value:
                value[name] = self._value(self._of_name(parts, name), depth + 1)

    @staticmethod
    def _of_name(parts, name):
        schemas = []
        for part in parts:
            own = [part["properties"][name]] if name in part.get("properties", {}) else []
            own += [schema for pattern, schema in part.get("patternProperties", {}).items() if _found(pattern, name)]
            schemas += own or [part.get("additionalProperties", True)]
        return schemas

    def _array(self, parts, depth):
        low = _largest(parts, "minItems", 0)
        high = _smallest(parts, "maxItems", 1000)
        tuples = [part.get("prefixItems", part.get("items")) for part in parts]
        longest = max([len(items) for items in tuples if isinstance(items, list)], default=None)
        rest = any("prefixItems" in part and part.get("items", False) is not False
                   or part.get("additionalItems", False) is not False for part in parts)
        length = max(low, self._rng.choice([0, 1, 2, 3]) if depth < 4 else low)
        if longest is not None and not rest:
            length = max(low, self._rng.choice([longest, min(length, longest)]))
        value = []
        unique = any(part.get("uniqueItems") for part in parts)
        for index in range(min(length, high)):
            schemas = [schema for part in parts for schema in _of_item(part, index)]
            for _ in range(8):
                item = self._value(schemas, depth + 1)
                if not unique or item not in value:
                    value.append(item)
                    break
        contained = [part["contains"] for part in parts if "contains" in part]
        for schema in contained:
            value.append(self._value([schema], depth + 1))
        return value

    def _string(self, parts):
        low, high = _largest(parts, "minLength", 0), _smallest(parts, "maxLength", 10**6)
        patterns = [part["pattern"] for part in parts if "pattern" in part]
        formats = [part["format"] for part in parts if part.get("format") in _FORMATS]
        for _ in range(20):
            if patterns:
                text = text_of(self._rng.choice(patterns), self._rng)
                if text is None:
                    return "x"
            else:
                text = self._rng.choice(_FORMATS[formats[0]] if formats else _WORDS)
            if not patterns and not formats:
                length = self._rng.choice([low, low + 1, high, len(text)])
                length = min(max(length, low), high, low + 70)
                text = "".join((text + self._rng.choice(_WORDS) + "~") for _ in range(length + 1))[:length]
            if low <= len(text) <= high and all(_found(pattern, text) for pattern in patterns):
                return text
        return text

    def _number(self, parts, whole):
        low, high = _largest(parts, "minimum", None), _smallest(parts, "maximum", None)
        over, under = _largest(parts, "exclusiveMinimum", None), _smallest(parts, "exclusiveMaximum", None)
        whole = whole or any(part.get("type") == "integer" for part in parts)
        step = 1 if whole else 0.5
        if isinstance(over, (int, float)) and not isinstance(over, bool):
            low = over + step if low is None else max(low, over + step)
        if isinstance(under, (int, float)) and not isinstance(under, bool):
            high = under - step if high is None else min(high, under - step)
        steps = [part["multipleOf"] for part in parts if "multipleOf" in part]
        anchor = self._rng.choice([x for x in (low, high) if x is not None] or [0])
        value = anchor + self._rng.choice([0, 1, -1, 7, 42, -100, 12345, 0.25, 1e-7, 3.5e20])
        value = value if low is None else max(value, low)
        value = value if high is None else min(value, high)
        if steps:
            value = math.ceil(value / steps[0]) * steps[0]
            if isinstance(steps[0], float):
                value = round(value, 6)
        return math.ceil(value) if whole else value

    def _change(self, old):
        rng = self._rng
        if rng.random() < 0.25:
            return rng.choice([None, True, "text", "", 0, 5, -1, 1.5, [], {}, [1], {"a": 1}])
        if isinstance(old, bool) or old is None:
            return rng.choice([not old, "true", None, 0])
        if isinstance(old, (int, float)):
            return rng.choice([old + 1, old - 1, -old, old * 10, old + 0.5, str(old), 10**9, -(10**9), old / 3])
        if isinstance(old, str):
            return rng.choice([old + "x", old[:-1], old + old, old[1:], old.upper(), " " + old, old + "\n", "!",
                               old.replace("-", ""), old.replace(".", "-"), "é" + old, old * 40, 7])
        if isinstance(old, list):
            return rng.choice([old + old[-1:], old * 5, old[:-1], old[1:], old[::-1], old + [None], old + ["x"], {}])
        names = list(old)
        extra = rng.choice(["extra", "zz", "type", "", 'q"', *(names or ["a"])])
        if names and rng.random() < 0.5:
            gone = rng.choice(names)
            return {name: item for name, item in old.items() if name != gone}
        return {**old, extra: rng.choice([1, "x", None, [], {}])}


def _names_of(part, rng):
    names = part.get("propertyNames")
    if not isinstance(names, dict):
        return []
    return names.get("enum") or ([text_of(names["pattern"], rng)] if "pattern" in names else [])


def _of_item(part, index):
    first = part.get("prefixItems")
    rest = part.get("items", True)
    if first is None and isinstance(rest, list):
        first, rest = rest, part.get("additionalItems", True)
    return [first[index] if first is not None and index < len(first) else rest]


def _largest(parts, keyword, otherwise):
    return max([part[keyword] for part in parts if isinstance(part.get(keyword), (int, float))
                and not isinstance(part[keyword], bool)], default=otherwise)


def _smallest(parts, keyword, otherwise):
    return min([part[keyword] for part in parts if isinstance(part.get(keyword), (int, float))
                and not isinstance(part[keyword], bool)], default=otherwise)


def _found(pattern, text):
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return False


def _places(value, path):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in items:
        yield from _places(item, (*path, step))
