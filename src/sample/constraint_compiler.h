#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "sample/constraint.h"
#include "sample/constraint_spec.h"

namespace bl {

class Tokenizer;

// Makes constraints of one vocabulary, and keeps those that were used last.
//
// Goals: compile() may be called by many threads, with whatever somebody sent: what is wrong, too
// large or too costly is an error of that call, within the limits of time, memory and stack. The
// vocabulary is prepared by the first call. Non-goal: speed of a cold compile, which takes 10 to
// 300 ms; the same constraint again takes a look-up.
class ConstraintCompiler {
 public:
  // The tokenizer must outlive it.
  explicit ConstraintCompiler(const Tokenizer& tokenizer, ConstraintLimits limits = {});
  ~ConstraintCompiler();

  // Throws kInvalidArgument, kLimit, kOutOfMemory; kUnsupported where this build has no library.
  CompiledConstraint compile(const ConstraintSpec& spec);

  struct Stats {
    std::int64_t hits = 0;
    std::int64_t misses = 0;
    std::size_t bytes = 0;
    std::size_t grammars = 0;
  };
  Stats stats() const;

 private:
  using Compiled = std::shared_ptr<const CompiledGrammar>;
  struct Entry {
    std::string key;
    Compiled grammar;
    std::size_t bytes = 0;
  };

  const GrammarLibrary& library();
  Compiled find(const std::string& key);
  void insert(const std::string& key, const Compiled& grammar);
  // Of one that holds alone, within `left`, from which it takes what that has cost.
  Compiled compile_part(const ConstraintSpec& spec, ConstraintLimits& left);
  Compiled compile_apart(const ConstraintSpec& spec, ConstraintLimits& left);

  const Tokenizer& tokenizer_;
  ConstraintLimits limits_;
  std::once_flag opened_;
  std::unique_ptr<GrammarLibrary> library_;
  std::size_t vocab_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable compiled_one_;
  int compiling_ = 0;
  std::list<Entry> entries_;  // used last first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_;
  Stats stats_;
};

}  // namespace bl
