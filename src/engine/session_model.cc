#include "engine/session_model.h"

#include <array>

namespace bl {

void SessionModel::run_states(std::span<const StepItem> items, std::vector<float>& states) {
  if (!states_) {
    states_ = std::make_unique<StateRoom>(session_, std::array{StateRows::kNormed});
  }
  const StateRows& rows = states_->rows().front();
  const std::int64_t count = runner_.run(items, states_->rows()).rows();
  states.clear();
  if (count == 0) return;
  const TensorView view = states_->fetch(rows, count);
  const auto* first = view.row<const float>(0);
  states.assign(first, first + view.shape.elements());
}

}  // namespace bl
