#include "engine/request_answers.h"

#include <exception>
#include <utility>

namespace bl {

RequestAnswers::RequestAnswers(std::shared_ptr<OpenRequest> open)
    : open_(std::move(open)), unfinished_(open_->choices()) {
  if (open_->keeps_best()) best_.emplace(open_->choices());
}

std::unique_ptr<Constraint> RequestAnswers::take_constraint(std::int32_t choice) {
  if (open_->constraints.empty()) return nullptr;
  return std::move(open_->constraints[static_cast<std::size_t>(choice)]);
}

void RequestAnswers::set_score(std::int32_t choice, double score) noexcept {
  if (best_) best_->set_score(choice, score);
}

bool RequestAnswers::end_one(const Usage& usage) noexcept {
  if (--unfinished_ > 0) return false;
  if (!best_) return true;
  const std::int64_t count = open_->request.sampling.n;
  try {
    best_->give(*open_->stream, count);
  } catch (const std::exception&) {
    for (std::int64_t i = 0; i < count; ++i) {
      open_->stream->end_without_memory(static_cast<std::int32_t>(i), usage);
    }
  }
  return true;
}

}  // namespace bl
