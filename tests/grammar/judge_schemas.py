#!/usr/bin/env python3
"""Feeds random schemas like those of JSONSchemaBench, some that combine keywords more densely, and some
by well-known libraries, to schema_judge, and counts what it gets wrong.

Every schema comes with texts that Python's jsonschema calls valid, in the forms in which programs
write JSON, and with texts that it calls invalid. Ends with status 1 if a valid text is rejected, an
invalid one is accepted, or more than 5 % of the schemas are refused. Of dense schemas any number may
be refused, since many of them contradict themselves.
"""

import argparse
import collections
import json
import pathlib
import random
import re
import sys

from closed_world import ClosedWorld
from dense_schemas import DenseSchema
from json_schema_validator import readings_agree, validator_for
from judged_program import JudgedProgram, reason_of, written_forms
from random_schemas import RandomSchema
from schema_faults import INVALID_ACCEPTED, VALID_REJECTED, orders, smallest
from schema_instances import Instances

_LIBRARY_SCHEMAS = pathlib.Path(__file__).parent / "library_schemas.json"
_REFUSED_AT_MOST = 0.05
_COMPILE_MS_AT_MOST = 10_500  # ConstraintLimits::compile_seconds, and a little for starting and ending
_EVERY_NTH = 5  # of the schemas is judged with other white space, too


class LibrarySchema:
    """A schema as a well-known library writes it, with values that must, and that must not, be accepted."""

    def __init__(self, entry):
        self.split = entry["name"]
        self.schema = entry["schema"]
        self.examples = entry["examples"]
        self.wrong = entry.get("wrong", [])
        self.tool_parameters = entry.get("tool_parameters", False)


class Tally:
    def __init__(self):
        self.schemas = 0
        self.texts = collections.Counter()
        self.refused = collections.Counter()
        self.faults = []
        self.slowest = (0.0, "")


def material(made, rng, options):
    """Returns lists of valid and of invalid values: the examples, random ones, and both with changes.
    Each valid value is a list of the orders that its names may have."""
    validator = validator_for(made.schema)
    validator.check_schema(made.schema)
    closed = ClosedWorld(validator, tool_parameters=made.tool_parameters)
    instances = Instances(validator, rng)
    valid, invalid = [], list(made.wrong)
    found = made.examples + [instances.valid() for _ in range(options.values)]
    for value in [value for value in found if value is not None]:
        candidates = [value] + [instances.changed(value) for _ in range(options.changes)]
        for candidate in candidates:
            if not readings_agree(validator, candidate):
                continue
            if not validator.is_valid(candidate):
                invalid.append(candidate)
            elif not closed.needs_openness(candidate):
                valid.append(orders(validator, candidate))
    return valid, invalid


def malformed(text, rng):
    """Texts that are no JSON, made from one that is."""
    at = rng.randrange(len(text))
    made = [text + ",", text[:-1], text[:at] + "\x00" + text[at:], re.sub(r"([}\]])$", r",\1", text) + " ,",
            text.replace('"', "'") if '"' in text else "'x'", "\ufeff" + text, text + text]
    # A number may have become another number. The last two have more white space than an answer may have.
    return [one for one in made if not is_json(one)] + [
        text.replace(": ", ":" + 70 * " ") + ("" if ": " in text else ","), "\n" * 3 + text]


def is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def longest_gap(text):
    """The length of the longest white space between two tokens of a JSON text."""
    tokens = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
    return max(map(len, re.findall(r"\s+", tokens)), default=0)


def judge_white_space(program, made, seed, variants, tally):
    """Counts what is wrong with the answer if another amount of white space is allowed."""
    option, most = [("compact", 0), ("2", 2), ("8", 8)][seed // _EVERY_NTH % 3]
    asked = [(variant, form) for variant in variants for form in written_forms(variant)]
    answer = program.ask({"schema_text": json.dumps(made.schema), "whitespace": option,
                          "tool_parameters": made.tool_parameters, "texts": [form for _, form in asked]})
    said = collections.defaultdict(list)
    for (variant, form), yes in zip(asked, answer.get("accepted", [])):
        if longest_gap(form) <= most:
            said[json.dumps(variant)].append(yes)
        elif yes:
            tally.faults.append((f"accepted although --json-whitespace is {option}", seed, made, variant))
    if not any(all(answers) for answers in said.values()):
        tally.faults.append((f"rejected where --json-whitespace is {option}", seed, made, variants[0]))


def judge(program, made, seed, tally, options):
    rng = random.Random(f"values {seed}")
    valid, invalid = material(made, rng, options)
    texts, meant = [], []
    for number, variants in enumerate(valid):
        for variant in variants:
            forms = written_forms(variant)
            texts += forms
            meant += [(True, number, variant)] * len(forms)
    for number, value in enumerate(invalid):
        forms = rng.sample(written_forms(value), 2)
        texts += forms
        meant += [(False, number, value)] * len(forms)
    if valid:
        broken = malformed(json.dumps(valid[0][0]), rng)
        texts += broken
        meant += [(None, 0, text) for text in broken]
    answer = program.ask({"schema_text": json.dumps(made.schema), "tool_parameters": made.tool_parameters,
                          "texts": texts})
    tally.schemas += 1
    if "refused" in answer:
        tally.refused[answer["refused"]] += 1
        if isinstance(made, LibrarySchema):
            tally.faults.append((f"refused: {answer['refused']}", seed, made, None))
        return
    tally.slowest = max(tally.slowest, (answer["compile_ms"], f"seed {seed}"))
    if answer["compile_ms"] > _COMPILE_MS_AT_MOST:
        tally.faults.append(("compiled beyond the budget of work", seed, made, None))
    count(tally, made, seed, meant, answer["accepted"])
    if valid and seed % _EVERY_NTH == 0:
        judge_white_space(program, made, seed, valid[0], tally)


def count(tally, made, seed, meant, accepted):
    said = collections.defaultdict(lambda: collections.defaultdict(list))
    for (valid, number, value), yes in zip(meant, accepted):
        said[valid, number][json.dumps(value)].append(yes)
    for (valid, _), variants in said.items():
        tally.texts[valid] += sum(len(answers) for answers in variants.values())
        if valid and not any(all(answers) for answers in variants.values()):
            tally.faults.append((VALID_REJECTED, seed, made, json.loads(next(iter(variants)))))
        for value, answers in variants.items():
            if valid is False and any(answers):
                tally.faults.append((INVALID_ACCEPTED, seed, made, json.loads(value)))
            if valid is None and any(answers):
                tally.faults.append(("no JSON, accepted", seed, made, json.loads(value)))


def report(program, tally, options):
    refused = sum(tally.refused.values())
    print(f"{tally.schemas} schemas, {tally.texts[True]} valid texts, {tally.texts[False]} invalid ones, "
          f"{tally.texts[None]} that are no JSON")
    print(f"compiling took at most {tally.slowest[0]:.0f} ms of processor time ({tally.slowest[1]})")
    print(f"refused: {refused} schemas ({100 * refused / max(1, tally.schemas):.1f} %)")
    reasons = collections.Counter()
    for message, times in tally.refused.items():
        reasons[reason_of(message)] += times
    for message, times in reasons.most_common(40):
        print(f"  {times:5}  {message}")
    kinds = collections.Counter(kind for kind, *_ in tally.faults)
    for kind in dict.fromkeys([VALID_REJECTED, INVALID_ACCEPTED, "no JSON, accepted", *kinds]):
        hit = len({id(made) for what, _, made, _ in tally.faults if what == kind})
        print(f"{kind}: {kinds[kind]} values of {hit} schemas")
    shown = set()
    for kind, seed, made, value in tally.faults:
        if len(shown) >= options.show or (kind, id(made)) in shown:
            continue
        shown.add((kind, id(made)))
        schema = made.schema
        if kind in (VALID_REJECTED, INVALID_ACCEPTED):
            schema, value = smallest(program, schema, value)
        print(f"\n{kind} (seed {seed}, {made.split}):\n  {json.dumps(schema, ensure_ascii=False)}\n"
              f"  {json.dumps(value, ensure_ascii=False)}")
    return not tally.faults and (options.dense or refused <= _REFUSED_AT_MOST * tally.schemas)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("program", help="path of schema_judge")
    parser.add_argument("--schemas", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first schema; the others follow")
    parser.add_argument("--split", help="only schemas like those of this split")
    parser.add_argument("--dense", action="store_true", help="schemas that combine keywords densely")
    parser.add_argument("--values", type=int, default=3, help="valid values per schema")
    parser.add_argument("--changes", type=int, default=10, help="changed values per valid one")
    parser.add_argument("--show", type=int, default=10, help="faults that are shown, made as small as they get")
    options = parser.parse_args()
    program = JudgedProgram(options.program)
    tally = Tally()
    only_random = options.dense or options.split is not None
    for entry in () if only_random else json.loads(_LIBRARY_SCHEMAS.read_text(encoding="utf-8")):
        judge(program, LibrarySchema(entry), options.seed, tally, options)
    for seed in range(options.seed, options.seed + options.schemas):
        rng = random.Random(seed)
        made = DenseSchema(rng) if options.dense else RandomSchema(rng, options.split)
        judge(program, made, seed, tally, options)
    sys.exit(0 if report(program, tally, options) else 1)


if __name__ == "__main__":
    main()
