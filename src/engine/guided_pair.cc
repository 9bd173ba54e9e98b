#include "engine/guided_pair.h"

namespace bl {

void GuidedPair::keep_waiting_row() {
  for (auto* rows : {&text_rows_, &guide_rows_}) {
    if (rows->empty() || rows->front().data() == waiting_row_.data()) continue;
    waiting_row_.assign(rows->front().begin(), rows->front().end());
    rows->assign(1, waiting_row_);
  }
}

void GuidedPair::forget_rows() {
  text_rows_.clear();
  guide_rows_.clear();
}

}  // namespace bl
