// The ways in which a value may be an array or an object.

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "grammar/value_table.h"

namespace bl {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void keep_most(std::optional<std::size_t>& most, std::size_t value) {
  most = std::min(most.value_or(value), value);
}

ArrayForm array_form(const SchemaLogic& logic, const Alternative& alternative) {
  using What = ArrayAtom::What;
  ArrayForm form;
  for (const auto& [number, holds] : alternative) {
    const ArrayAtom& atom = logic.array_atom(number);
    switch (atom.what) {
      case What::kItems:
        form.lists.push_back(atom.schema);
        break;
      case What::kFewest:
        if (holds) form.fewest = std::max(form.fewest, atom.count);
        if (!holds) keep_most(form.most, atom.count - 1);
        break;
      case What::kUnique:
        form.unique = atom.schema;
        break;
      case What::kContains: {
        auto same = std::find_if(form.contains.begin(), form.contains.end(),
                                 [&](const auto& one) { return one.claim == atom.claim; });
        if (same == form.contains.end()) {
          same = form.contains.insert(same, ArrayForm::Contained{.claim = atom.claim});
        }
        if (holds) same->fewest = std::max(same->fewest, atom.count);
        if (!holds) keep_most(same->most, atom.count - 1);
        break;
      }
      case What::kAll:
        form.all.push_back(atom.claim);
        break;
      case What::kAt:
        form.at.emplace_back(atom.count, atom.claim);
        form.fewest = std::max(form.fewest, atom.count + 1);
        break;
      case What::kUnknown:
        form.unknown = atom.schema;
        break;
    }
    if (atom.what == What::kUnique && !holds) form.unknown = atom.schema;
  }
  return form;
}

ObjectForm object_form(const SchemaLogic& logic, const Alternative& alternative) {
  using What = ObjectAtom::What;
  ObjectForm form;
  for (const auto& [number, holds] : alternative) {
    const ObjectAtom& atom = logic.object_atom(number);
    switch (atom.what) {
      case What::kMembers:
        form.lists.push_back(atom.schema);
        break;
      case What::kRequired: {
        std::vector<std::string>& names = holds ? form.required : form.absent;
        if (!contains(names, atom.name)) names.push_back(atom.name);
        break;
      }
      case What::kFewest:
        if (holds) form.fewest = std::max(form.fewest, atom.count);
        if (!holds) keep_most(form.most, atom.count - 1);
        break;
      case What::kNames:
        form.names.push_back(atom.claim);
        break;
      case What::kHas:
        form.has.emplace_back(atom.name, atom.claim);
        if (!contains(form.required, atom.name)) form.required.push_back(atom.name);
        break;
      case What::kUnevaluated:
        form.unevaluated.emplace_back(atom.schema, atom.claim);
        break;
      case What::kUnknown:
        form.unknown = atom.schema;
        break;
    }
  }
  return form;
}

}  // namespace

std::size_t ArrayForm::first_count(SchemaLogic& logic) const {
  std::size_t count = 0;
  for (const OrderedJson* schema : lists)
    count = std::max(count, logic.items(*schema).first.size());
  for (const auto& [index, claim] : at) count = std::max(count, index + 1);
  return count;
}

Claims ArrayForm::item(SchemaLogic& logic, std::size_t index) const {
  Claims claims;
  for (const OrderedJson* schema : lists) {
    const ItemList& list = logic.items(*schema);
    if (index < list.first.size()) {
      claims.push_back({list.first[index]});
    } else if (list.rest != nullptr) {
      claims.push_back({list.rest});
    }
  }
  claims.insert(claims.end(), all.begin(), all.end());
  for (const auto& [place, claim] : at) {
    if (place == index) claims.push_back(claim);
  }
  return claims;
}

bool ArrayForm::closed(SchemaLogic& logic) const {
  bool tuple = false;
  for (const OrderedJson* schema : lists) {
    const ItemList& list = logic.items(*schema);
    if (list.rest != nullptr) return false;
    tuple = tuple || !list.first.empty();
  }
  return tuple && fewest <= first_count(logic);
}

bool ObjectForm::requires_name(const std::string& name) const { return contains(required, name); }
bool ObjectForm::excludes_name(const std::string& name) const { return contains(absent, name); }

const std::vector<ArrayForm>& ValueTable::arrays(int value) {
  if (values_[at(value)].arrays == nullptr) {
    const auto form = [&](const Alternative& one) { return array_form(logic_, one); };
    const AlternativeRules rules{
        .negation = [&](int atom) { return logic_.negation_of_array_atom(atom); },
        .is_possible = [&](const Alternative& one) { return possible(form(one)); }};
    auto made = std::make_unique<std::vector<ArrayForm>>();
    try {
      for (const Alternative& one :
           alternatives(logic_.expressions(), expression(value, ValueKind::kArray), rules)) {
        made->push_back(form(one));
      }
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kLimit) throw;
      fail(ErrorCode::kLimit, "the JSON schema at {}: {}", place(value), error.what());
    }
    values_[at(value)].arrays = std::move(made);
  }
  return *values_[at(value)].arrays;
}

const std::vector<ObjectForm>& ValueTable::objects(int value) {
  if (values_[at(value)].objects == nullptr) {
    const auto form = [&](const Alternative& one) { return object_form(logic_, one); };
    const AlternativeRules rules{
        .negation = [&](int atom) { return logic_.negation_of_object_atom(atom); },
        .is_possible = [&](const Alternative& one) { return possible(form(one)); }};
    auto made = std::make_unique<std::vector<ObjectForm>>();
    try {
      for (const Alternative& one :
           alternatives(logic_.expressions(), expression(value, ValueKind::kObject), rules)) {
        made->push_back(form(one));
      }
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kLimit) throw;
      fail(ErrorCode::kLimit, "the JSON schema at {}: {}", place(value), error.what());
    }
    values_[at(value)].objects = std::move(made);
  }
  return *values_[at(value)].objects;
}

bool ValueTable::possible(const ArrayForm& form) {
  if (form.most && *form.most < form.fewest) return false;
  const std::size_t first = form.first_count(logic_);
  for (std::size_t i = 0; i < std::min(form.fewest, first + 1); ++i) {
    if (!possible(number_of(form.item(logic_, i)))) return false;
  }
  for (const ArrayForm::Contained& contained : form.contains) {
    if (contained.most && *contained.most < contained.fewest) return false;
    if (contained.fewest > form.most.value_or(contained.fewest)) return false;
    if (contained.fewest == 0) continue;
    bool found = false;
    for (std::size_t i = 0; i <= first && i < form.most.value_or(first + 1) && !found; ++i) {
      Claims claims = form.item(logic_, i);
      claims.push_back(contained.claim);
      found = possible(number_of(claims));
    }
    if (!found) return false;
  }
  return true;
}

bool ValueTable::possible(const ObjectForm& form) {
  if (form.most && (*form.most < form.fewest || *form.most < form.required.size())) return false;
  for (const std::string& name : form.required) {
    if (form.excludes_name(name) || !allows_name(form, name)) return false;
    if (!possible(member(form, name))) return false;
  }
  return true;
}

// The claims about a member whose name is `name`, or any undescribed name if that is null, and
// matches the patterns for which `matches` says so.
int ValueTable::member_of(const ObjectForm& form, const std::string* name,
                          const std::function<bool(const Automaton*)>& matches) {
  Claims claims;
  const auto described = [&](const MemberList& list, bool add) {
    bool found = false;
    if (const OrderedJson* part = name == nullptr ? nullptr : list.find(*name)) {
      if (add) claims.push_back({part});
      found = true;
    }
    for (const auto& [texts, part] : list.patterns) {
      if (!matches(texts.get())) continue;
      if (add) claims.push_back({part});
      found = true;
    }
    return found;
  };
  for (const OrderedJson* schema : form.lists) {
    const MemberList& list = logic_.members(*schema);
    if (!described(list, true) && list.others != nullptr) claims.push_back({list.others});
  }
  for (const auto& unevaluated : form.unevaluated) {
    const OrderedJson* scope = unevaluated.first;
    const std::set<const OrderedJson*> inside = logic_.in_place(*scope);
    const bool evaluated_within = std::any_of(
        form.unevaluated.begin(), form.unevaluated.end(),
        [&](const auto& other) { return other.first != scope && inside.contains(other.first); });
    const bool evaluated =
        evaluated_within ||
        std::any_of(form.lists.begin(), form.lists.end(), [&](const OrderedJson* schema) {
          if (!inside.contains(schema)) return false;
          const MemberList& list = logic_.members(*schema);
          return list.others != nullptr || described(list, false);
        });
    if (!evaluated) claims.push_back(unevaluated.second);
  }
  for (const auto& [own, claim] : form.has) {
    if (name != nullptr && own == *name) claims.push_back(claim);
  }
  return number_of(claims);
}

int ValueTable::member(const ObjectForm& form, const std::string& name) {
  return member_of(form, &name, [&](const Automaton* texts) { return texts->matches(name); });
}

int ValueTable::other_member(const ObjectForm& form,
                             const std::function<bool(const Automaton*)>& matches) {
  return member_of(form, nullptr, matches);
}

bool ValueTable::allows_name(const ObjectForm& form, const std::string& name) {
  if (form.names.empty()) return true;
  const StringForm& allowed = strings(number_of(form.names));
  const std::size_t length = count_code_points(name);
  return length >= allowed.fewest && length <= allowed.most.value_or(length) &&
         allowed.texts.matches(name);
}

}  // namespace bl
