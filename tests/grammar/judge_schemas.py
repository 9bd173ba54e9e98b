#!/usr/bin/env python3
"""Feeds random schemas like those of JSONSchemaBench, and some by well-known libraries, to schema_judge,
and counts what it gets wrong.

Every schema comes with texts that Python's jsonschema calls valid, in the forms in which programs
write JSON, and with texts that it calls invalid. Ends with status 1 if a valid text is rejected, an
invalid one is accepted, or more than 5 % of the schemas are refused.
"""

import argparse
import collections
import json
import pathlib
import random
import re
import sys

from closed_world import ClosedWorld
from json_schema_validator import readings_agree, validator_for
from judged_program import JudgedProgram, written_forms
from random_schemas import RandomSchema
from schema_faults import INVALID_ACCEPTED, VALID_REJECTED, orders, smallest
from schema_instances import Instances

_LIBRARY_SCHEMAS = pathlib.Path(__file__).parent / "library_schemas.json"
_REFUSED_AT_MOST = 0.05


class LibrarySchema:
    """A schema as a well-known library writes it."""

    def __init__(self, entry):
        self.split = entry["name"]
        self.schema = entry["schema"]
        self.examples = entry["examples"]


class Tally:
    def __init__(self):
        self.schemas = 0
        self.texts = collections.Counter()
        self.refused = collections.Counter()
        self.faults = []
        self.slowest = (0.0, "")


def material(schema, examples, rng, options):
    """Returns lists of valid and of invalid values: the examples, random ones, and both with changes.
    Each valid value is a list of the orders that its names may have."""
    validator = validator_for(schema)
    validator.check_schema(schema)
    closed = ClosedWorld(validator)
    instances = Instances(validator, rng)
    valid, invalid = [], []
    found = examples + [instances.valid() for _ in range(options.values)]
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
    return [text + ",", text[:-1], text[:at] + "\x00" + text[at:], re.sub(r"([}\]])$", r",\1", text) + " ,",
            text.replace('"', "'") if '"' in text else "'x'", "\ufeff" + text, text + text,
            # JSON, but with more white space than an answer may have.
            text.replace(": ", ":" + 70 * " ") + ("" if ": " in text else ","), "\n" * 3 + text]


def judge(program, made, seed, tally, options):
    rng = random.Random(f"values {seed}")
    valid, invalid = material(made.schema, made.examples, rng, options)
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
    answer = program.ask({"schema_text": json.dumps(made.schema), "texts": texts})
    tally.schemas += 1
    if "refused" in answer:
        tally.refused[answer["refused"]] += 1
        if isinstance(made, LibrarySchema):
            tally.faults.append((f"refused: {answer['refused']}", seed, made, None))
        return
    tally.slowest = max(tally.slowest, (answer.get("ms", 0.0), f"seed {seed}"))
    count(tally, made, seed, meant, answer["accepted"])


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


# The message without the place and without what was quoted, so that equal reasons count together.
def reason(message):
    message = re.sub(r"(at|in|of) #?/\S*", r"\1 …", message)
    return re.sub(r'"(?:[^"\\]|\\.)*"', '"…"', message)[:150]


def report(program, tally, options):
    refused = sum(tally.refused.values())
    print(f"{tally.schemas} schemas, {tally.texts[True]} valid texts, {tally.texts[False]} invalid ones, "
          f"{tally.texts[None]} that are no JSON; the slowest took {tally.slowest[0]:.0f} ms ({tally.slowest[1]})")
    print(f"refused: {refused} schemas ({100 * refused / max(1, tally.schemas):.1f} %)")
    reasons = collections.Counter()
    for message, times in tally.refused.items():
        reasons[reason(message)] += times
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
    return not tally.faults and refused <= _REFUSED_AT_MOST * tally.schemas


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("program", help="path of schema_judge")
    parser.add_argument("--schemas", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first schema; the others follow")
    parser.add_argument("--split", help="only schemas like those of this split")
    parser.add_argument("--values", type=int, default=3, help="valid values per schema")
    parser.add_argument("--changes", type=int, default=10, help="changed values per valid one")
    parser.add_argument("--show", type=int, default=10, help="faults that are shown, made as small as they get")
    options = parser.parse_args()
    program = JudgedProgram(options.program)
    tally = Tally()
    for entry in json.loads(_LIBRARY_SCHEMAS.read_text(encoding="utf-8")) if options.split is None else ():
        judge(program, LibrarySchema(entry), options.seed, tally, options)
    for seed in range(options.seed, options.seed + options.schemas):
        judge(program, RandomSchema(random.Random(seed), options.split), seed, tally, options)
    sys.exit(0 if report(program, tally, options) else 1)


if __name__ == "__main__":
    main()
