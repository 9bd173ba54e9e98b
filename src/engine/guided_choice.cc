#include "engine/guided_choice.h"

#include <algorithm>

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

std::vector<RowTask> pair_rows(Choice& answer) {
  std::vector<RowTask> pairs(std::min(answer.rows.size(), answer.guide->rows.size()));
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    pairs[i].logits = answer.rows[i];
    pairs[i].negative = answer.guide->rows[i];
  }
  if (pairs.empty()) return pairs;
  answer.rows.clear();
  answer.guide->rows.clear();
  return pairs;
}

void keep_row(Choice& choice) {
  if (choice.rows.empty() || choice.rows.front().data() == choice.waiting_row.data()) return;
  choice.waiting_row.assign(choice.rows.front().begin(), choice.rows.front().end());
  choice.rows.assign(1, choice.waiting_row);
}

}  // namespace bl
