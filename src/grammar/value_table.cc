#include "grammar/value_table.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "grammar/json_string.h"
#include "grammar/number_text.h"

namespace bl {
namespace {

using Id = Expressions::Id;

constexpr std::size_t kMostValues = 20000;
constexpr int kMostDepth = 200;
constexpr std::size_t kFewStates = 1000;

// Keywords that say nothing about whether a value is valid.
bool is_remark(const std::string& key) {
  static const std::vector<std::string> kRemarks{
      "title",    "description", "default",  "examples", "example",         "deprecated",
      "readOnly", "writeOnly",   "$comment", "$defs",    "definitions",     "$schema",
      "$id",      "id",          "$anchor",  "nullable", "contentMediaType"};
  return std::find(kRemarks.begin(), kRemarks.end(), key) != kRemarks.end();
}

}  // namespace

int ValueTable::number_of(const Claims& claims) {
  Claims plain;
  for (const Claim& claim : claims) {
    const std::optional<Claim> simple = simplified(claim);
    if (simple && std::find(plain.begin(), plain.end(), *simple) == plain.end()) {
      plain.push_back(*simple);
    }
  }
  Claims key = plain;
  std::sort(key.begin(), key.end());
  const auto [found, added] =
      numbers_.try_emplace(std::move(key), static_cast<int>(values_.size()));
  if (added) {
    if (values_.size() >= kMostValues) {
      fail(ErrorCode::kLimit,
           "the JSON schema describes more than {} kinds of values; make it smaller", kMostValues);
    }
    values_.push_back({.claims = std::move(plain)});
  }
  return found->second;
}

std::optional<Claim> ValueTable::simplified(Claim claim) {
  SchemaDocument& document = logic_.document();
  for (int hops = 0; hops < 100; ++hops) {
    if (claim.schema->is_boolean()) {
      if (claim.schema->get<bool>() == claim.holds) return std::nullopt;
      return claim;
    }
    const OrderedJson& schema = *claim.schema;
    const auto reference = schema.find("$ref");
    if (reference == schema.end() || !reference->is_string()) break;
    bool alone = true;
    for (const auto& [key, value] : schema.items()) {
      alone = alone && (key == "$ref" || is_remark(key));
    }
    if (!alone && !document.reference_stands_alone()) return claim;
    claim.schema = document.target(schema, reference->get<std::string>());
  }
  bool silent = true;
  for (const auto& [key, value] : claim.schema->items()) silent = silent && is_remark(key);
  if (silent && claim.holds) return std::nullopt;
  return claim;
}

std::string ValueTable::place(int value) {
  if (claims(value).empty()) return "#";
  return logic_.document().place(*claims(value).front().schema);
}

Id ValueTable::expression(int value, ValueKind kind) {
  std::vector<Id> parts;
  const Claims claims = this->claims(value);
  for (const Claim& claim : claims) parts.push_back(logic_.expression(claim, kind));
  return logic_.expressions().all_of(std::move(parts));
}

bool ValueTable::allows(int value, ValueKind literal) {
  return expression(value, literal) == Expressions::kTrue ||
         logic_.expressions().holds(expression(value, literal), [](int) { return false; });
}

// Where it takes few states, lengths become a part of the automaton, which knows exactly where they
// can still be kept.
void ValueTable::build_lengths_in(StringForm& form, const std::string& what) {
  const std::size_t last = form.most.value_or(form.fewest);
  if (last == 0 && !form.most) return;
  if (form.texts.states.size() == 1 && !form.empty() && form.any_escape) return;
  if (last >= kFewStates || form.texts.states.size() * (last + 2) > kFewStates) return;
  const Automaton lengths = text_of_length(form.fewest, form.most);
  form.texts = combine(
      {&form.texts, &lengths}, [](const std::vector<bool>& bits) { return bits[0] && bits[1]; },
      what);
  form.fewest = 0;
  form.most.reset();
}

const StringForm& ValueTable::strings(int value) {
  if (values_[at(value)].strings != nullptr) return *values_[at(value)].strings;
  const Expressions& expressions = logic_.expressions();
  const Id whole = expression(value, ValueKind::kString);
  auto form = std::make_unique<StringForm>();
  // Bounds of the length that must hold in any case are counted while the string is read.
  std::vector<Id> rest;
  const std::vector<Id> parts = expressions.node(whole).kind == Expressions::Kind::kAnd
                                    ? expressions.node(whole).parts
                                    : std::vector<Id>{whole};
  std::vector<Id> open = parts;
  while (!open.empty()) {
    const Id part = open.back();
    open.pop_back();
    const Expressions::Node& node = expressions.node(part);
    if (node.kind == Expressions::Kind::kAnd) {
      open.insert(open.end(), node.parts.begin(), node.parts.end());
    } else if (node.kind == Expressions::Kind::kAtom && logic_.string_atom(node.atom).bound) {
      const StringAtom& atom = logic_.string_atom(node.atom);
      form->fewest = std::max(form->fewest, atom.bound->first);
      if (atom.bound->second) {
        form->most = std::min(form->most.value_or(*atom.bound->second), *atom.bound->second);
      }
    } else {
      rest.push_back(part);
    }
  }
  const Id left = logic_.expressions().all_of(std::move(rest));
  const std::vector<int> atoms = expressions.atoms(left);
  std::vector<const Automaton*> automata;
  form->any_escape = true;
  for (const int atom : atoms) {
    automata.push_back(&logic_.texts(atom));
    form->any_escape = form->any_escape && logic_.string_atom(atom).bound.has_value();
  }
  const std::string what = "the strings of the JSON schema at " + place(value);
  if (left == Expressions::kFalse) {
    form->texts.states.resize(1);
  } else if (atoms.empty()) {
    form->texts = any_text();
  } else {
    form->texts = combine(
        automata,
        [&](const std::vector<bool>& bits) {
          return expressions.holds(left, [&](int atom) {
            const auto found = std::lower_bound(atoms.begin(), atoms.end(), atom);
            return static_cast<bool>(bits[static_cast<std::size_t>(found - atoms.begin())]);
          });
        },
        what);
  }
  build_lengths_in(*form, what);
  values_[at(value)].strings = std::move(form);
  return *values_[at(value)].strings;
}

const Automaton& ValueTable::numbers(int value) {
  if (values_[at(value)].numbers != nullptr) return *values_[at(value)].numbers;
  using What = NumberAtom::What;
  const Expressions& expressions = logic_.expressions();
  const Id whole = expression(value, ValueKind::kNumber);
  const std::vector<int> atoms = expressions.atoms(whole);
  NumberQuestions questions;
  bool asks_whole = false;
  std::map<int, std::pair<std::size_t, std::size_t>> bounds;  // of an atom: bound, and neighbour
  std::map<int, std::size_t> divisors;
  for (const int i : atoms) {
    const NumberAtom& atom = logic_.number_atom(i);
    if (atom.what == What::kWhole) {
      asks_whole = true;
    } else if (atom.what == What::kMultiple) {
      divisors[i] = questions.divisors.size();
      questions.divisors.push_back(atom.value);
    } else {
      const auto bound = [&](const Decimal& decimal) {
        const auto found = std::find(questions.bounds.begin(), questions.bounds.end(), decimal);
        if (found == questions.bounds.end()) questions.bounds.push_back(decimal);
        return static_cast<std::size_t>(
            std::find(questions.bounds.begin(), questions.bounds.end(), decimal) -
            questions.bounds.begin());
      };
      const std::size_t own = bound(atom.value);
      std::size_t next = own;
      if (atom.what == What::kAbove) next = bound(neighbour_of(atom.value, 1));
      if (atom.what == What::kBelow) next = bound(neighbour_of(atom.value, -1));
      bounds[i] = {own, next};
    }
  }
  const auto accepts = [&](const NumberFacts& facts) {
    return expressions.holds(whole, [&](int i) {
      const NumberAtom& atom = logic_.number_atom(i);
      if (atom.what == What::kWhole) return facts.whole;
      if (atom.what == What::kMultiple) return static_cast<bool>(facts.multiple[divisors[i]]);
      const int order = facts.order[bounds[i].first];
      // As doubles, numbers closer to the bound than their neighbour may become the bound.
      const int next = facts.order[bounds[i].second];
      switch (atom.what) {
        case What::kAtLeast:
          return order >= 0;
        case What::kAtMost:
          return order <= 0;
        case What::kAbove:
          return order > 0 && (!facts.as_float || next >= 0);
        case What::kBelow:
          return order < 0 && (!facts.as_float || next <= 0);
        default:
          return order == 0;
      }
    });
  };
  auto made = std::make_unique<Automaton>();
  try {
    if (whole == Expressions::kFalse) {
      made->states.resize(1);
    } else {
      bool any_fraction = !asks_whole;
      if (asks_whole) {
        // Integers are written without a fraction where nothing else is allowed.
        json_numbers(questions, {}, [&](const NumberFacts& facts) {
          const bool accepted = accepts(facts);
          any_fraction = any_fraction || (accepted && !facts.whole);
          return accepted;
        });
      }
      const bool free = whole == Expressions::kTrue;
      *made =
          any_fraction && !free
              ? json_numbers_with_exponents(questions, accepts)
              : json_numbers(questions, {.fractions = any_fraction, .exponents = free}, accepts);
    }
  } catch (const Error& error) {
    fail(error.code(), "the JSON schema at {}: {}", place(value), error.what());
  }
  values_[at(value)].numbers = std::move(made);
  return *values_[at(value)].numbers;
}

bool ValueTable::possible(int value) {
  if (values_[at(value)].possible) return *values_[at(value)].possible;
  // Deep in a chain of schemas the answer may stay open.
  if (values_[at(value)].open || depth_ >= kMostDepth) return true;
  values_[at(value)].open = true;
  ++depth_;
  const bool found = find_possible(value);
  values_[at(value)].open = false;
  --depth_;
  values_[at(value)].possible = found;
  return found;
}

bool ValueTable::find_possible(int value) {
  if (allows_anything(value)) return true;
  for (const ValueKind kind : {ValueKind::kNull, ValueKind::kFalse, ValueKind::kTrue}) {
    if (allows(value, kind)) return true;
  }
  const auto certain = [&](ValueKind kind) {
    return expression(value, kind) == Expressions::kTrue;
  };
  for (const ValueKind kind :
       {ValueKind::kNumber, ValueKind::kString, ValueKind::kArray, ValueKind::kObject}) {
    if (certain(kind)) return true;
  }
  return !numbers(value).empty() || !strings(value).empty() || !arrays(value).empty() ||
         !objects(value).empty();
}

std::optional<std::vector<std::string>> ValueTable::scalars(int value, std::size_t most) {
  std::vector<std::string> found;
  if (allows(value, ValueKind::kNull)) found.push_back("null");
  if (allows(value, ValueKind::kFalse)) found.push_back("false");
  if (allows(value, ValueKind::kTrue)) found.push_back("true");
  if (!arrays(value).empty() || !objects(value).empty()) return std::nullopt;
  const std::optional<std::vector<std::string>> numbers = texts_of(this->numbers(value), most);
  if (!numbers) return std::nullopt;
  found.insert(found.end(), numbers->begin(), numbers->end());
  const StringForm& form = strings(value);
  const std::optional<std::vector<std::string>> texts = texts_of(form.texts, most);
  if (!texts) return std::nullopt;
  for (const std::string& text : *texts) {
    const std::size_t length = count_code_points(text);
    if (length < form.fewest || length > form.most.value_or(length)) continue;
    found.push_back(json_text(OrderedJson(text)));
  }
  if (found.size() > most) return std::nullopt;
  return found;
}

}  // namespace bl
