#pragma once
#include <cstddef>
#include <string>

namespace bl {

// Reports that `steps` small steps, of about ten nanoseconds each, are about to be done. Throws
// kLimit if the budget of this thread is spent.
void spend_work(std::size_t steps);
// Reports that `bytes` bytes are about to be allocated for keeps. Throws as spend_work() does.
void keep_work(std::size_t bytes);

// Limits what compiling and matching a grammar may cost: the translation of schemas reports its
// work by the functions above, and so does the grammar library (sample/grammar_hooks.h). A budget
// applies to the thread that made it while it lives, one at a time per thread. Work beyond it
// throws kLimit with a message that names `what`. Without a budget, work is unlimited.
class WorkBudget {
 public:
  WorkBudget(const char* what, double seconds, std::size_t bytes);
  WorkBudget(const WorkBudget&) = delete;
  WorkBudget& operator=(const WorkBudget&) = delete;
  ~WorkBudget();

  // Bytes reported as kept since the budget was made.
  std::size_t kept() const { return kept_; }
  // Processor seconds since the budget was made.
  double seconds() const;
  // Small steps since the budget was made.
  std::size_t spent() const;

  void keep(std::size_t bytes);
  void look_at_clock();

  // Steps until the clock is read again; the hot path of spend_work() touches nothing else.
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
