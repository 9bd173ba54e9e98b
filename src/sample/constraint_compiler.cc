#include "sample/constraint_compiler.h"

#include <pthread.h>

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "base/error.h"
#include "grammar/work_budget.h"
#include "text/token_bytes.h"
#include "text/tokenizer.h"

namespace bl {
namespace {

// The library recurses into a grammar's expressions and rules, a few hundred bytes per level, and
// the largest text that is allowed can nest as deep as it has rules. Untouched stack pages cost
// nothing.
constexpr std::size_t kStackBytes = 512u << 20;
// How many compilations may run at once; others wait. Each may use ConstraintLimits::compile_bytes.
constexpr int kCompiling = 2;

struct Task {
  const GrammarLibrary& library;
  const ConstraintSpec& spec;
  const ConstraintLimits& limits;
  std::unique_ptr<CompiledGrammar> result{};
  double seconds = 0;  // processor time used
  std::optional<Error> error{};
};

// The body of the thread. Errors are handed to the thread that waits for it.
void* run_task(void* pointer) {
  auto& task = *static_cast<Task*>(pointer);
  try {
    const WorkBudget budget("compiling the constraint", task.limits.compile_seconds,
                            task.limits.compile_bytes);
    task.result = task.library.compile(task.spec);
    task.seconds = budget.seconds();
  } catch (const Error& error) {
    task.error = error;
  } catch (const std::bad_alloc&) {
    task.error = Error(ErrorCode::kOutOfMemory, "out of memory while compiling the constraint");
  }
  return nullptr;
}

void run_on_deep_stack(Task& task) {
  pthread_attr_t attributes;
  pthread_t thread;
  bool started = pthread_attr_init(&attributes) == 0;
  if (started) {
    started = pthread_attr_setstacksize(&attributes, kStackBytes) == 0 &&
              pthread_create(&thread, &attributes, run_task, &task) == 0;
    pthread_attr_destroy(&attributes);
  }
  if (!started) {
    fail(ErrorCode::kOutOfMemory,
         "cannot start a thread with {} MiB of stack to compile the constraint", kStackBytes >> 20);
  }
  pthread_join(thread, nullptr);
  if (task.error) throw *task.error;
}

std::string key_of(const ConstraintSpec& spec) {
  return fmt::format("{} {} {}{}{} {}", static_cast<int>(spec.kind),
                     static_cast<int>(spec.whitespace.kind), spec.whitespace.most,
                     spec.strict ? 's' : '-', spec.tool_parameters ? 't' : '-', spec.text);
}

}  // namespace

ConstraintCompiler::ConstraintCompiler(const Tokenizer& tokenizer, ConstraintLimits limits)
    : tokenizer_(tokenizer), limits_(limits) {}

ConstraintCompiler::~ConstraintCompiler() = default;

const GrammarLibrary& ConstraintCompiler::library() {
  std::call_once(opened_, [this] {
    vocab_ = static_cast<std::size_t>(tokenizer_.vocab_size());
    std::vector<std::int32_t> special;
    for (std::int32_t id = 0; id < tokenizer_.vocab_size(); ++id) {
      if (tokenizer_.is_special(id)) special.push_back(id);
    }
    library_ = open_grammar_library(token_bytes(tokenizer_), std::move(special));
  });
  if (library_ == nullptr) {
    fail(ErrorCode::kUnsupported,
         "this build has no grammar library, so it cannot constrain answers; build with "
         "-DBL_GRAMMAR=ON");
  }
  return *library_;
}

ConstraintCompiler::Compiled ConstraintCompiler::find(const std::string& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  ++stats_.hits;
  return found->second->grammar;
}

void ConstraintCompiler::insert(const std::string& key, const Compiled& grammar) {
  const std::size_t bytes = grammar->bytes() + 2 * key.size() + sizeof(Entry);
  ++stats_.misses;
  if (bytes > limits_.cache_bytes || by_key_.contains(key)) return;
  entries_.push_front({key, grammar, bytes});
  by_key_[key] = entries_.begin();
  stats_.bytes += bytes;
  while (stats_.bytes > limits_.cache_bytes) {
    stats_.bytes -= entries_.back().bytes;
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

ConstraintCompiler::Compiled ConstraintCompiler::compile_apart(const ConstraintSpec& spec,
                                                               ConstraintLimits& left) {
  Task task{.library = library(), .spec = spec, .limits = left};
  run_on_deep_stack(task);
  left.compile_seconds = std::max(left.compile_seconds - task.seconds, 0.0);
  return std::move(task.result);
}

CompiledConstraint ConstraintCompiler::compile(const ConstraintSpec& spec) {
  validate(spec, limits_);
  library();
  CompiledConstraint made{.vocab = vocab_, .prefer_end = spec.prefer_end, .limits = limits_};
  ConstraintLimits left = limits_;
  const auto add = [&](const ConstraintSpec& part) {
    made.parts.push_back({compile_part(part, left), part.trigger_token});
    made.prefer_end = made.prefer_end || part.prefer_end;
    if (spec.also.empty()) return;
    const std::size_t bytes = made.parts.back().grammar->bytes();
    if (bytes > left.compile_bytes) {
      fail(ErrorCode::kLimit,
           "the compiled constraints take more than {} MiB together; make them smaller",
           limits_.compile_bytes >> 20);
    }
    left.compile_bytes -= bytes;
  };
  add(spec);
  for (const ConstraintSpec& part : spec.also) add(part);
  return made;
}

ConstraintCompiler::Compiled ConstraintCompiler::compile_part(const ConstraintSpec& spec,
                                                              ConstraintLimits& left) {
  const std::string key = key_of(spec);
  std::unique_lock lock(mutex_);
  if (Compiled grammar = find(key)) return grammar;
  compiled_one_.wait(lock, [&] { return compiling_ < kCompiling; });
  // Another thread may have compiled the same constraint while this one waited.
  if (Compiled grammar = find(key)) return grammar;
  ++compiling_;
  lock.unlock();
  // Decrements the count again, also if compiling throws.
  struct Leave {
    ConstraintCompiler& self;
    ~Leave() {
      {
        const std::lock_guard guard(self.mutex_);
        --self.compiling_;
      }
      self.compiled_one_.notify_one();
    }
  } leave{*this};
  Compiled grammar = compile_apart(spec, left);
  const std::lock_guard guard(mutex_);
  insert(key, grammar);
  return grammar;
}

ConstraintCompiler::Stats ConstraintCompiler::stats() const {
  const std::lock_guard guard(mutex_);
  Stats stats = stats_;
  stats.grammars = entries_.size();
  return stats;
}

}  // namespace bl
