#include "engine/guided_choice.h"

#include <utility>

namespace bl {

std::unique_ptr<Choice> make_guide(Choice& answer, PagePool& pool) {
  auto guide = std::make_unique<Choice>(answer.open, answer.index, pool);
  guide->sequence.ids = answer.open->negative;
  guide->healing = {};
  guide->main = &answer;
  guide->leader = answer.leader != nullptr ? answer.leader->guide : nullptr;
  answer.guide = guide.get();
  return guide;
}

bool pair_rows(Choice& choice, RowTask& task) {
  Choice& answer = choice.main != nullptr ? *choice.main : choice;
  Choice& guide = *answer.guide;
  choice.row = task.logits;
  if (answer.row.empty() || guide.row.empty()) return false;
  task.logits = std::exchange(answer.row, {});
  task.negative = std::exchange(guide.row, {});
  return true;
}

void keep_row(Choice& choice) {
  if (choice.row.empty() || choice.row.data() == choice.waiting_row.data()) return;
  choice.waiting_row.assign(choice.row.begin(), choice.row.end());
  choice.row = choice.waiting_row;
}

}  // namespace bl
