#include <algorithm>
#include <compare>
#include <cstdint>
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
constexpr std::size_t kMostExtra = 64;  // required names that are not described
constexpr std::size_t kFewExtra = 4;    // up to here they come in any order
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
    const std::size_t required = required_from({});
    if (!others_.empty() && form_.fewest > required + 1) {
      refuse(
          fmt::format("has minProperties {} although names are open, so that a name could come "
                      "twice to reach it: require names, or set additionalProperties to false",
                      form_.fewest));
    }
    const bool counts = form_.fewest > required || most_ < named_.size() + extra_.size() ||
                        (most_ != kUnbounded && !others_.empty());
    counts_ = counts;
    last_count_ = counts ? std::max(form_.fewest, most_ == kUnbounded ? 0 : most_) : 0;
    if (counts && (last_count_ + 1) * (named_.size() + 1) > kMostObjectPlaces) {
      if (most_ != kUnbounded && most_ > named_.size() && form_.fewest <= required) {
        refuse("has a maxProperties that is too large to be counted: remove it");
      }
      refuse("combines many properties with minProperties or maxProperties: remove the bounds");
    }
    std::vector<std::string> begin;
    if (can_close({})) begin.push_back("\"}\"");
    if (can_go_on({})) begin.push_back(keys({}));
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
    const std::size_t described = names.size();
    for (const std::string& name : form_.required) add(name);
    taken_ = names;
    taken_.insert(taken_.end(), form_.absent.begin(), form_.absent.end());
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::string& name = names[i];
      if (form_.excludes_name(name) || !table_.allows_name(form_, name)) continue;
      const int value = table_.member(form_, name);
      if (!table_.possible(value)) continue;
      (i < described ? named_ : extra_).push_back({name, value, form_.requires_name(name)});
    }
    if (extra_.size() > kMostExtra) refuse("requires too many names that it does not describe");
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
    const Automaton names = combine(
        parts, [&](const std::vector<bool>& bits) { return bits == expected; },
        "the names of an object");
    if (names.empty()) return;
    const bool free = patterns.empty() && form_.names.empty();
    others_.push_back(
        {writer_.automaton(json_strings(
             names, free && taken_.empty() ? StringEscapes::kAll : StringEscapes::kNotAscii)),
         value});
  }

  // How far an object has come.
  struct Place {
    std::size_t index = 0;    // the described members before it are done
    std::size_t count = 0;    // members so far, saturated
    std::uint64_t extra = 0;  // which of extra_ have come

    auto operator<=>(const Place&) const = default;
  };

  bool has_come(const Place& place, std::size_t extra) const {
    return (place.extra >> extra & 1) != 0;
  }
  std::size_t required_from(const Place& place) const {
    auto count = static_cast<std::size_t>(
        std::count_if(named_.begin() + static_cast<std::ptrdiff_t>(place.index), named_.end(),
                      [](const Named& named) { return named.required; }));
    for (std::size_t i = 0; i < extra_.size(); ++i) count += has_come(place, i) ? 0 : 1;
    return count;
  }
  bool can_close(const Place& place) const {
    return required_from(place) == 0 && (!counts_ || place.count >= form_.fewest);
  }
  // Whether one more member that leads to `next` leaves a way to complete the object.
  bool can_take(const Place& place, const Place& next) const {
    if (!counts_) return true;
    if (most_ != kUnbounded && (place.count >= most_ || next.count + required_from(next) > most_)) {
      return false;
    }
    std::size_t left = named_.size() - next.index;
    for (std::size_t i = 0; i < extra_.size(); ++i) left += has_come(next, i) ? 0 : 1;
    return !others_.empty() || next.count + left >= form_.fewest;
  }
  Place behind(const Place& place) const {
    Place next = place;
    next.count = std::min(place.count + 1, last_count_);
    return next;
  }
  bool can_go_on(Place place) const {
    for (; place.index < named_.size(); ++place.index) {
      Place next = behind(place);
      ++next.index;
      if (can_take(place, next)) return true;
      if (named_[place.index].required) return false;
    }
    for (std::size_t i = 0; i < extra_.size(); ++i) {
      if (!has_come(place, i)) return true;
    }
    return !others_.empty() && can_take(place, behind(place));
  }

  // The rule for the next member; there must be one.
  std::string keys(const Place& place) {
    std::string& known = keys_[place];
    if (!known.empty()) return known;
    known = writer_.reserve();
    const std::string name = known;
    std::vector<std::string> choices;
    if (place.index < named_.size()) {
      const Named& named = named_[place.index];
      Place next = behind(place);
      ++next.index;
      if (can_take(place, next))
        choices.push_back(member(rules_.key(named.name), named.value, next));
      Place skipped = place;
      ++skipped.index;
      if (!named.required && can_go_on(skipped)) choices.push_back(keys(skipped));
    } else {
      add_undescribed(place, choices);
    }
    writer_.define(name, choices);
    return name;
  }

  // Undescribed members come behind the described ones, in any order. Where many of them are
  // required, these keep the order of `required`.
  void add_undescribed(const Place& place, std::vector<std::string>& choices) {
    for (std::size_t i = 0; i < extra_.size(); ++i) {
      if (has_come(place, i)) continue;
      Place next = behind(place);
      next.extra |= std::uint64_t{1} << i;
      if (can_take(place, next)) {
        choices.push_back(member(rules_.key(extra_[i].name), extra_[i].value, next));
      }
      if (extra_.size() > kFewExtra) break;
    }
    if (!can_take(place, behind(place))) return;
    for (const Others& others : others_) {
      choices.push_back(member(others.key, others.value, behind(place)));
    }
  }

  std::string member(const std::string& key, int value, const Place& next) {
    const std::string content =
        writer_.gap(rules_.rule(value) + " " + tail(next), RuleWriter::Gap::kBehindSeparator);
    return key + " " + writer_.gap("\":\" " + content);
  }

  // What follows a member.
  std::string tail(const Place& place) {
    std::string& known = tails_[place];
    if (!known.empty()) return known;
    known = writer_.reserve();
    const std::string name = known;
    std::vector<std::string> choices;
    if (can_close(place)) choices.push_back("\"}\"");
    if (can_go_on(place)) {
      choices.push_back("\",\" " + writer_.gap(keys(place), RuleWriter::Gap::kBehindSeparator));
    }
    writer_.define(name, {writer_.gap(writer_.choice(choices))});
    return name;
  }

  ValueRules& rules_;
  ValueTable& table_;
  RuleWriter& writer_;
  const ObjectForm& form_;
  std::size_t most_ = kUnbounded;
  bool counts_ = false;             // whether the number of members matters
  std::size_t last_count_ = 0;      // counts are saturated here
  std::vector<Named> named_;        // in the schema's order
  std::vector<Named> extra_;        // required, but not described
  std::vector<std::string> taken_;  // names that undescribed members cannot have
  std::vector<Others> others_;
  std::map<Place, std::string> keys_;
  std::map<Place, std::string> tails_;
};

}  // namespace

std::string object_rule(ValueRules& rules, const ObjectForm& form) {
  if (form.unknown != nullptr) {
    rules.table().logic().document().refuse(
        *form.unknown,
        "is negated (by not, if or an overlapping oneOf) in a way that is not supported");
  }
  return ObjectChain(rules, form).rule();
}

}  // namespace bl
