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

// Compiles constraints for one vocabulary and keeps the most recently used ones.
//
// Goals: any number of threads may call compile() with untrusted input. Input that is wrong, too
// large or too costly is an error of that call, within the limits on time, memory and stack. The
// first call prepares the vocabulary. Non-goal: a fast first compilation. It takes 10 to 300 ms;
// compiling the same constraint again is a look-up.
class ConstraintCompiler {
 public:
  // The tokenizer must outlive the compiler.
  explicit ConstraintCompiler(const Tokenizer& tokenizer, ConstraintLimits limits = {});
  ~ConstraintCompiler();

  // Throws kInvalidArgument, kLimit or kOutOfMemory, and kUnsupported if the build has no grammar
  // library.
  CompiledConstraint compile(const ConstraintSpec& spec);

  struct Stats {
    std::int64_t hits = 0;
    std::int64_t misses = 0;
    std::size_t bytes = 0;  // of the cached grammars
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
  // Compiles one part within `left`, and subtracts what it cost from `left`.
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
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_;
  Stats stats_;
};

}  // namespace bl
