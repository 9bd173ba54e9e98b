#include "engine/choice_list.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace bl {

void ChoiceList::add(std::vector<std::unique_ptr<Choice>> made) {
  choices_.reserve(choices_.size() + made.size());
  const auto place = std::upper_bound(
      choices_.begin(), choices_.end(), made.front()->open().rank,
      [](double rank, const std::unique_ptr<Choice>& c) { return rank < c->open().rank; });
  choices_.insert(place, std::make_move_iterator(made.begin()),
                  std::make_move_iterator(made.end()));
  ++requests_;
}

void ChoiceList::sweep() {
  if (!any_over_) return;
  any_over_ = false;
  std::erase_if(choices_, [](const std::unique_ptr<Choice>& choice) { return choice->is_over(); });
}

}  // namespace bl
