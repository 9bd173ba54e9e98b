"""Random texts that a regular expression matches, read off Python's own parse of it."""

import re
import re._parser as parser

_LETTERS = "abcxyzAZ019_- .:/é€😀\"\\\n"
_SETS = {"CATEGORY_DIGIT": "0123456789", "CATEGORY_WORD": "abcdeXYZ019_", "CATEGORY_SPACE": " \t\n",
         "CATEGORY_NOT_DIGIT": "ax- \"", "CATEGORY_NOT_WORD": " -.\"\\", "CATEGORY_NOT_SPACE": "ab1-\"\\é"}


def text_of(pattern, rng):
    """A text in which `pattern` can probably be found (the caller checks), with signs around it
    where it has no anchors; None if the pattern has a form that is not known here."""
    try:
        text = _sequence(parser.parse(pattern), rng)
    except (re.error, KeyError, ValueError, OverflowError):
        return None
    before = after = ""
    if rng.random() < 0.5:
        before = "".join(rng.choice(_LETTERS) for _ in range(rng.randint(0, 2)))
        after = "".join(rng.choice(_LETTERS) for _ in range(rng.randint(0, 2)))
    return before * (not pattern.startswith("^")) + text + after * (not pattern.endswith("$"))


def _sequence(parts, rng):
    return "".join(_part(str(kind), argument, rng) for kind, argument in parts)


def _part(kind, argument, rng):
    if kind == "LITERAL":
        return chr(argument)
    if kind == "NOT_LITERAL":
        return rng.choice([sign for sign in _LETTERS if sign != chr(argument)])
    if kind == "ANY":
        return rng.choice(_LETTERS.replace("\n", ""))
    if kind == "IN":
        return _of_class(argument, rng)
    if kind == "BRANCH":
        return _sequence(rng.choice(argument[1]), rng)
    if kind == "SUBPATTERN":
        return _sequence(argument[-1], rng)
    if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        low, high, inner = argument
        times = rng.choice([low, low, min(int(high), low + 1), min(int(high), low + 3)])
        return "".join(_sequence(inner, rng) for _ in range(times))
    if kind == "AT" or kind.startswith("ASSERT"):
        return ""
    raise ValueError(kind)


def _of_class(members, rng):
    if str(members[0][0]) == "NEGATE":
        signs = [sign for sign in _LETTERS + "q7#" if not any(_holds(member, sign) for member in members[1:])]
        return rng.choice(signs) if signs else "q"
    kind, argument = rng.choice(members)
    kind = str(kind)
    if kind == "LITERAL":
        return chr(argument)
    if kind == "RANGE":
        return chr(rng.choice([argument[0], argument[1], rng.randint(*argument)]))
    return rng.choice(_SETS[str(argument)])


def _holds(member, sign):
    kind, argument = str(member[0]), member[1]
    if kind == "LITERAL":
        return ord(sign) == argument
    if kind == "RANGE":
        return argument[0] <= ord(sign) <= argument[1]
    return sign in _SETS[str(argument)]
