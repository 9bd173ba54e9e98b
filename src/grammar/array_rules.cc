#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "grammar/ebnf_literal.h"
#include "grammar/value_rules.h"

namespace bl {
namespace {

constexpr std::size_t kMostArrayPlaces = 3000;  // states of one array
constexpr std::size_t kMostUnique = 8;          // values of which each may come once
constexpr std::size_t kFewForStates = 24;       // counts up to which every count is a state

// How far an array has come.
struct Place {
  std::size_t count = 0;                 // items so far, saturated
  std::vector<std::size_t> contained{};  // for each `contains`: matching items so far, saturated
  unsigned used = 0;                     // the values that have come, where items must be unique

  auto operator<=>(const Place&) const = default;
};

struct Step {
  std::string item;  // a rule or a literal
  int to;
};

// An array as a graph: every item leads from one place to the next.
class ArrayGraph {
 public:
  ArrayGraph(ValueRules& rules, const ArrayForm& form)
      : rules_(rules),
        table_(rules.table()),
        form_(form),
        first_(form.first_count(table_.logic())) {
    most_ = form.most.value_or(kUnbounded);
    if (rules.closed() && form.closed(table_.logic())) most_ = std::min(most_, first_);
    last_count_ = std::max(form.fewest, first_);
    if (most_ != kUnbounded) last_count_ = std::max(last_count_, most_);
  }

  std::string rule() {
    settle_unique();
    if (form_.contains.empty() && values_.empty() && first_ == 0 && counts_are_large()) {
      return repeated();
    }
    number_of({.count = 0, .contained = std::vector<std::size_t>(form_.contains.size())});
    for (std::size_t i = 0; i < places_.size(); ++i) expand(i);
    find_live();
    if (!live_[0]) fail_at("allows no array");
    names_.resize(places_.size());
    for (std::size_t i = 0; i < places_.size(); ++i) names_[i] = rules_.writer().reserve();
    for (std::size_t i = places_.size(); i-- > 0;) write(i);
    std::vector<std::string> begin = items(0);
    if (accepts(places_[0])) begin.insert(begin.begin(), "\"]\"");
    return open(rules_.writer().choice(begin));
  }

 private:
  static constexpr std::size_t kUnbounded = std::numeric_limits<std::size_t>::max();

  [[noreturn]] void fail_at(const std::string& what) {
    const OrderedJson* schema = form_.unique;
    if (schema == nullptr && !form_.lists.empty()) schema = form_.lists[0];
    SchemaDocument& document = table_.logic().document();
    document.refuse(schema == nullptr ? document.root() : *schema, "{}", what);
  }

  std::string open(const std::string& next) {
    return rules_.writer().choice({"\"[\" " + rules_.writer().gap(next)});
  }

  bool counts_are_large() const {
    return form_.fewest > kFewForStates || (most_ != kUnbounded && most_ > kFewForStates);
  }

  // Decides how items are kept unique.
  void settle_unique() {
    if (form_.unique == nullptr || most_ <= 1) return;
    std::vector<int> kinds;
    for (std::size_t i = 0; i < std::min(most_, first_ + 1); ++i) {
      kinds.push_back(table_.number_of(form_.item(table_.logic(), i)));
    }
    if (most_ <= first_ && pairwise_different(kinds)) return;
    const auto values = first_ == 0 && form_.contains.empty()
                            ? table_.scalars(kinds[0], kMostUnique)
                            : std::nullopt;
    if (!values) {
      fail_at(
          fmt::format("has uniqueItems, which is supported only for items of at most {} constant "
                      "values: remove "
                      "it, or list the values by enum",
                      kMostUnique));
    }
    values_ = *values;
    most_ = std::min(most_, values_.size());
  }

  bool pairwise_different(const std::vector<int>& kinds) {
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        Claims both = table_.claims(kinds[i]);
        const Claims& other = table_.claims(kinds[j]);
        both.insert(both.end(), other.begin(), other.end());
        if (table_.possible(table_.number_of(both))) return false;
      }
    }
    return true;
  }

  // Many items, all of one kind: the grammar library counts them.
  std::string repeated() {
    RuleWriter& writer = rules_.writer();
    const int value = table_.number_of(form_.item(table_.logic(), 0));
    if (!table_.possible(value)) return open("\"]\"");
    const std::string item = rules_.rule(value);
    const std::string comma = "\",\" " + writer.gap(item, RuleWriter::Gap::kBehindSeparator);
    const std::string more = writer.gap(writer.choice({comma}));
    const std::string close = writer.gap("\"]\"");
    const std::size_t fewest = std::max<std::size_t>(form_.fewest, 1) - 1;
    std::string tail;
    if (most_ == kUnbounded) {
      const std::string star = writer.reserve();
      writer.define(star, {close, more + " " + star});
      tail = writer.repeated(more, fewest, fewest) + " " + star;
    } else {
      tail = writer.repeated(more, fewest, most_ - 1) + " " + close;
    }
    std::vector<std::string> begin{item + " " + writer.choice({tail})};
    if (form_.fewest == 0) begin.insert(begin.begin(), "\"]\"");
    return open(writer.choice(begin));
  }

  int number_of(const Place& place) {
    const auto [found, added] = known_.try_emplace(place, static_cast<int>(places_.size()));
    if (added) {
      if (places_.size() >= kMostArrayPlaces) {
        fail_at(
            "combines bounds, contains and uniqueItems in too many ways: make the bounds smaller");
      }
      places_.push_back(place);
      steps_.emplace_back();
    }
    return found->second;
  }

  bool accepts(const Place& place) const {
    if (place.count < form_.fewest) return false;
    for (std::size_t i = 0; i < form_.contains.size(); ++i) {
      if (place.contained[i] < form_.contains[i].fewest) return false;
    }
    return true;
  }

  void expand(std::size_t at) {
    const Place place = places_[at];
    if (place.count >= most_) return;
    Place next = place;
    next.count = std::min(place.count + 1, last_count_);
    if (!values_.empty()) {
      for (std::size_t i = 0; i < values_.size(); ++i) {
        if ((place.used >> i & 1) != 0) continue;
        next.used = place.used | 1u << i;
        const int to = number_of(next);
        steps_[at].push_back({ebnf_literal(values_[i]), to});
      }
      return;
    }
    // Beyond the described items all are alike, so saturated counts need no other description.
    const std::size_t index = std::min(place.count, first_);
    const std::size_t cases = std::size_t{1} << form_.contains.size();
    for (std::size_t c = 0; c < cases; ++c) {
      Claims claims = form_.item(table_.logic(), index);
      bool allowed = true;
      for (std::size_t i = 0; i < form_.contains.size(); ++i) {
        const ArrayForm::Contained& contained = form_.contains[i];
        const bool matches = (c >> i & 1) != 0;
        claims.push_back({contained.claim.schema, contained.claim.holds == matches});
        next.contained[i] = place.contained[i];
        if (!matches) continue;
        if (contained.most && place.contained[i] >= *contained.most) allowed = false;
        const std::size_t top = contained.most ? *contained.most : contained.fewest;
        next.contained[i] = std::min(place.contained[i] + 1, top);
      }
      if (!allowed) continue;
      const int value = table_.number_of(claims);
      if (!table_.possible(value)) continue;
      const int to = number_of(next);
      steps_[at].push_back({rules_.rule(value), to});
    }
  }

  // Finds the places from which the array can be closed.
  void find_live() {
    live_.resize(places_.size());
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t i = places_.size(); i-- > 0;) {
        if (live_[i]) continue;
        const bool leads_on =
            std::any_of(steps_[i].begin(), steps_[i].end(), [&](const Step& step) {
              return static_cast<bool>(live_[static_cast<std::size_t>(step.to)]);
            });
        if (!leads_on && !accepts(places_[i])) continue;
        live_[i] = true;
        changed = true;
      }
    }
  }

  std::vector<std::string> items(std::size_t at) const {
    std::vector<std::string> choices;
    for (const Step& step : steps_[at]) {
      const auto to = static_cast<std::size_t>(step.to);
      if (live_[to]) choices.push_back(step.item + " " + names_[to]);
    }
    return choices;
  }

  // What follows an item that leads to this place.
  void write(std::size_t at) {
    if (!live_[at]) return;
    RuleWriter& writer = rules_.writer();
    std::vector<std::string> behind;
    if (accepts(places_[at])) behind.push_back("\"]\"");
    const std::vector<std::string> next = items(at);
    if (!next.empty()) {
      behind.push_back("\",\" " +
                       writer.gap(writer.choice(next), RuleWriter::Gap::kBehindSeparator));
    }
    writer.define(names_[at], {writer.gap(writer.choice(behind))});
  }

  ValueRules& rules_;
  ValueTable& table_;
  const ArrayForm& form_;
  std::size_t first_;
  std::size_t most_ = kUnbounded;
  std::size_t last_count_ = 0;
  std::vector<std::string> values_;  // of items, where they must be unique
  std::map<Place, int> known_;
  std::vector<Place> places_;
  std::vector<std::vector<Step>> steps_;
  std::vector<bool> live_;
  std::vector<std::string> names_;
};

}  // namespace

std::string array_rule(ValueRules& rules, const ArrayForm& form) {
  if (form.unknown != nullptr) {
    rules.table().logic().document().refuse(
        *form.unknown,
        "is negated (by not, if or an overlapping oneOf) in a way that is not supported");
  }
  return ArrayGraph(rules, form).rule();
}

}  // namespace bl
