#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "grammar/json_string.h"
#include "grammar/value_rules.h"

namespace bl {
namespace {

constexpr std::size_t kMostPatterns = 6;
constexpr std::size_t kMostObjectPlaces = 20000;
constexpr std::size_t kUnbounded = std::numeric_limits<std::size_t>::max();

// A member with a name of its own.
struct Named {
  std::string name;
  int value;
  bool required;
};

// Members whose names are not described one by one, but share what is said about them.
struct Others {
  std::string key;  // a rule
  int value;
};

// An object as a chain: its members come in order, and each may be left out unless it is required.
class ObjectChain {
 public:
  ObjectChain(ValueRules& rules, const ObjectForm& form)
      : rules_(rules), table_(rules.table()), writer_(rules.writer()), form_(form) {
    most_ = form.most.value_or(kUnbounded);
    find_named();
    find_others();
  }

  std::string rule() {
    const std::size_t required = required_from(0);
    if (!others_.empty() && form_.fewest > required + 1) {
      refuse(fmt::format("has minProperties {} although names are open, so that a name could come "
                         "twice to reach it: require names, or set additionalProperties to false",
                         form_.fewest));
    }
    const bool counts = form_.fewest > required || most_ < named_.size() ||
                        (most_ != kUnbounded && !others_.empty());
    last_count_ = counts ? std::max(form_.fewest, most_ == kUnbounded ? 0 : most_) : 0;
    if (counts && (last_count_ + 1) * (named_.size() + 1) > kMostObjectPlaces) {
      if (most_ != kUnbounded && most_ > named_.size() && form_.fewest <= required) {
        refuse("has a maxProperties that is too large to be counted: remove it");
      }
      refuse("combines many properties with minProperties or maxProperties: remove the bounds");
    }
    std::vector<std::string> begin;
    if (can_close(0, 0)) begin.push_back("\"}\"");
    if (can_go_on(0, 0)) begin.push_back(keys(0, 0));
    if (begin.empty()) refuse("allows no object");
    return writer_.choice({"\"{\" " + writer_.gap(writer_.choice(begin))});
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    SchemaDocument& document = table_.logic().document();
    const OrderedJson* schema = form_.lists.empty() ? &document.root() : form_.lists[0];
    document.refuse(*schema, "{}", what);
  }

  void find_named() {
    std::vector<std::string> names;
    const auto add = [&](const std::string& name) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    };
    for (const OrderedJson* schema : form_.lists) {
      for (const auto& [name, part] : table_.logic().members(*schema).named) add(name);
    }
    for (const auto& [name, claim] : form_.has) add(name);
    described_ = names.size();
    for (const std::string& name : form_.required) add(name);
    taken_ = names;
    taken_.insert(taken_.end(), form_.absent.begin(), form_.absent.end());
    std::size_t described = 0;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::string& name = names[i];
      if (form_.excludes_name(name) || !table_.allows_name(form_, name)) continue;
      const int value = table_.member(form_, name);
      if (!table_.possible(value)) continue;
      named_.push_back({name, value, form_.requires_name(name)});
      if (i < described_) ++described;
    }
    described_ = described;
  }

  // Which members that are not described one by one may come: for every combination of patterns
  // that a name may match, what is said about it.
  void find_others() {
    SchemaLogic& logic = table_.logic();
    std::vector<const Automaton*> patterns;
    bool opens = !rules_.closed();
    bool closes = false;
    for (const OrderedJson* schema : form_.lists) {
      const MemberList& list = logic.members(*schema);
      opens = opens || list.opens;
      closes = closes || list.closes;
      for (const auto& [texts, part] : list.patterns) {
        if (std::find(patterns.begin(), patterns.end(), texts.get()) == patterns.end()) {
          patterns.push_back(texts.get());
        }
      }
    }
    for (const auto& [scope, claim] : form_.unevaluated) opens = opens || *claim.schema != false;
    if (patterns.size() > kMostPatterns) {
      refuse(fmt::format("has more than {} patternProperties at once, which is not supported",
                         kMostPatterns));
    }
    const bool all = opens || !closes;
    for (std::size_t mask = 0; mask < std::size_t{1} << patterns.size(); ++mask) {
      if (mask == 0 && !all) continue;
      std::vector<bool> matches;
      for (std::size_t i = 0; i < patterns.size(); ++i) matches.push_back((mask >> i & 1) != 0);
      add_others(patterns, matches);
    }
  }

  void add_others(const std::vector<const Automaton*>& patterns, const std::vector<bool>& matches) {
    const auto matched = [&](const Automaton* texts) {
      const auto found = std::find(patterns.begin(), patterns.end(), texts);
      return static_cast<bool>(matches[static_cast<std::size_t>(found - patterns.begin())]);
    };
    const int value = table_.other_member(form_, matched);
    if (!table_.possible(value)) return;
    std::vector<const Automaton*> parts = patterns;
    std::vector<bool> expected = matches;
    const Automaton taken = one_of_texts(taken_);
    parts.push_back(&taken);
    expected.push_back(false);
    Automaton length;
    if (!form_.names.empty()) {
      const StringForm& allowed = table_.strings(table_.number_of(form_.names));
      length = text_of_length(std::min(allowed.fewest, kMostObjectPlaces), allowed.most);
      parts.push_back(&allowed.texts);
      parts.push_back(&length);
      expected.insert(expected.end(), {true, true});
    }
    const Automaton names =
        combine(parts, [&](const std::vector<bool>& bits) { return bits == expected; },
                "the names of an object");
    if (names.empty()) return;
    const bool free = patterns.empty() && form_.names.empty();
    others_.push_back(
        {writer_.automaton(json_strings(
             names, free && taken_.empty() ? StringEscapes::kAll : StringEscapes::kNotAscii)),
         value});
  }

  std::size_t required_from(std::size_t index) const {
    return static_cast<std::size_t>(
        std::count_if(named_.begin() + static_cast<std::ptrdiff_t>(index), named_.end(),
                      [](const Named& named) { return named.required; }));
  }

  // `index`: the members before it are done; `count`: how many have come, saturated.
  bool can_close(std::size_t index, std::size_t count) const {
    return required_from(index) == 0 && (last_count_ == 0 || count >= form_.fewest);
  }
  // Whether the object can be completed from here.
  bool can_end(std::size_t index, std::size_t count) const {
    if (last_count_ == 0) return true;
    if (most_ != kUnbounded && count + required_from(index) > most_) return false;
    return !others_.empty() || count + named_.size() - index >= form_.fewest;
  }
  bool takes_named(std::size_t index, std::size_t count) const {
    return can_end(index + 1, behind(count)) && (most_ == kUnbounded || count < most_);
  }
  // Undescribed members come behind all described ones, and also between required names that are
  // not described.
  bool takes_others(std::size_t index, std::size_t count) const {
    return index >= described_ && !others_.empty() && can_end(index, behind(count)) &&
           (most_ == kUnbounded || count < most_);
  }
  bool can_go_on(std::size_t index, std::size_t count) const {
    for (std::size_t i = index; i < named_.size(); ++i) {
      if (takes_named(i, count) || takes_others(i, count)) return true;
      if (named_[i].required) return false;
    }
    return takes_others(named_.size(), count);
  }
  std::size_t behind(std::size_t count) const { return std::min(count + 1, last_count_); }

  // The rule for the next member from `index` on; there must be one.
  std::string keys(std::size_t index, std::size_t count) {
    std::string& known = keys_[{index, count}];
    if (!known.empty()) return known;
    known = writer_.reserve();
    const std::string name = known;
    std::vector<std::string> choices;
    if (index < named_.size()) {
      const Named& named = named_[index];
      if (takes_named(index, count)) {
        choices.push_back(member(rules_.key(named.name), named.value, index + 1, behind(count)));
      }
      if (!named.required && can_go_on(index + 1, count)) choices.push_back(keys(index + 1, count));
    }
    if (takes_others(index, count)) {
      if (index == named_.size() || named_[index].required) {
        for (const Others& others : others_) {
          choices.push_back(member(others.key, others.value, index, behind(count)));
        }
      }
    }
    writer_.define(name, choices);
    return name;
  }

  std::string member(const std::string& key, int value, std::size_t index, std::size_t count) {
    const std::string content = writer_.gap(rules_.rule(value) + " " + next(index, count),
                                            RuleWriter::Gap::kBehindSeparator);
    return key + " " + writer_.gap("\":\" " + content);
  }

  // What follows a member.
  std::string next(std::size_t index, std::size_t count) {
    std::string& known = next_[{index, count}];
    if (!known.empty()) return known;
    known = writer_.reserve();
    const std::string name = known;
    std::vector<std::string> choices;
    if (can_close(index, count)) choices.push_back("\"}\"");
    if (can_go_on(index, count)) {
      choices.push_back("\",\" " +
                        writer_.gap(keys(index, count), RuleWriter::Gap::kBehindSeparator));
    }
    writer_.define(name, {writer_.gap(writer_.choice(choices))});
    return name;
  }

  ValueRules& rules_;
  ValueTable& table_;
  RuleWriter& writer_;
  const ObjectForm& form_;
  std::size_t most_ = kUnbounded;
  std::size_t last_count_ = 0;        // counts are saturated here; 0: they do not matter
  std::size_t described_ = 0;         // of named_, those that the schema describes
  std::vector<Named> named_;
  std::vector<std::string> taken_;    // names that undescribed members cannot have
  std::vector<Others> others_;
  std::map<std::pair<std::size_t, std::size_t>, std::string> keys_;
  std::map<std::pair<std::size_t, std::size_t>, std::string> next_;
};

}  // namespace

std::string object_rule(ValueRules& rules, const ObjectForm& form) {
  if (form.unknown != nullptr) {
    rules.table().logic().document().refuse(
        *form.unknown, "is negated (by not, if or an overlapping oneOf) in a way that is not supported");
  }
  return ObjectChain(rules, form).rule();
}

}  // namespace bl
