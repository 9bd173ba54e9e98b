#include "engine/state_room.h"

#include "base/error.h"

namespace bl {

StateRoom::StateRoom(ModelSession& session, std::span<const std::int32_t> states)
    : backend_(session.backend()) {
  const ModelSpec& spec = session.model().spec();
  const auto blocks = static_cast<std::int32_t>(spec.order.size());
  const Shape shape{session.logit_rows(), spec.hidden};
  for (const std::int32_t state : states) {
    if (state < StateRows::kNormed || state > blocks) {
      fail(ErrorCode::kInvalidArgument,
           "there is no hidden state {}; the model has 0 (the embedding) … {} (behind its last "
           "block)",
           state, blocks);
    }
    const auto bytes = static_cast<std::size_t>(shape.elements()) * sizeof(float);
    tensors_.emplace_back(backend_.allocate(bytes), DType::kF32, shape);
    rows_.push_back({state, tensors_.back().view()});
  }
  if (!backend_.reads_host_memory()) host_ = make_host_tensor(DType::kF32, shape);
}

TensorView StateRoom::fetch(const StateRows& rows, std::int64_t count) {
  const TensorView from = slice_rows(rows.to, 0, count);
  if (host_.empty()) return from;
  const TensorView to = slice_rows(host_.view(), 0, count);
  backend_.download(to, from);
  return to;
}

}  // namespace bl
