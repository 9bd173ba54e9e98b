#include "grammar/work_budget.h"

#include <time.h>

#include "base/check.h"
#include "base/error.h"

namespace bl {
namespace {

// Steps between two reads of the clock; a read costs about as much as 50 steps.
constexpr std::size_t kStride = 20'000;

WorkBudget*& present() {
  static thread_local WorkBudget* budget = nullptr;
  return budget;
}

// Processor time of this thread, so that a busy machine does not turn a good grammar into an error.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

WorkBudget::WorkBudget(const char* what, double seconds, std::size_t bytes)
    : what_(what), most_seconds_(seconds), begin_(thread_seconds()), most_bytes_(bytes) {
  BL_CHECK(present() == nullptr);
  left = granted_ = kStride;
  present() = this;
}

WorkBudget::~WorkBudget() { present() = nullptr; }

double WorkBudget::seconds() const { return thread_seconds() - begin_; }

std::size_t WorkBudget::spent() const { return granted_ - left; }

void WorkBudget::keep(std::size_t bytes) {
  kept_ += bytes;
  if (kept_ > most_bytes_) {
    fail(ErrorCode::kLimit, "{} takes more than {} MiB; use a smaller or less ambiguous grammar",
         what_, most_bytes_ >> 20);
  }
}

void WorkBudget::look_at_clock() {
  if (seconds() > most_seconds_) {
    fail(ErrorCode::kLimit,
         "{} takes more than {:.2g} seconds; use a smaller or less ambiguous grammar", what_,
         most_seconds_);
  }
  granted_ += kStride;
  left += kStride;
}

void spend_work(std::size_t steps) {
  WorkBudget* const budget = present();
  if (budget == nullptr) return;
  if (budget->left >= steps) {
    budget->left -= steps;
    return;
  }
  // A step that is larger than what is left just triggers one read of the clock.
  budget->left = 0;
  budget->look_at_clock();
}

void keep_work(std::size_t bytes) {
  if (WorkBudget* const budget = present(); budget != nullptr) budget->keep(bytes);
}

}  // namespace bl
