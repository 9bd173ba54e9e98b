#pragma once
#include <cstddef>
#include <string>

namespace bl {

// What a call into the grammar library may cost; the library asks while it works
// (grammar_hooks.h). One at a time on a thread, for the thread that made it.
// While it lives, work beyond it throws an Error kLimit that names `what`. Without one, work is
// free.
class WorkBudget {
 public:
  WorkBudget(const char* what, double seconds, std::size_t bytes);
  WorkBudget(const WorkBudget&) = delete;
  WorkBudget& operator=(const WorkBudget&) = delete;
  ~WorkBudget();

  // Bytes that were said to be kept since it was made.
  std::size_t kept() const { return kept_; }
  // Processor time since it was made.
  double seconds() const;
  // Small steps since it was made.
  std::size_t spent() const;

  void keep(std::size_t bytes);
  void look_at_clock();

  // Steps until the clock is looked at again; the hot path of spend() touches nothing else.
  std::size_t left = 0;

 private:
  const char* what_;
  double most_seconds_;
  double begin_;
  std::size_t most_bytes_;
  std::size_t kept_ = 0;
  std::size_t granted_ = 0;
};

}  // namespace bl
