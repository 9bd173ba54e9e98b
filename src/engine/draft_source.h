#pragma once
// Who guesses how texts go on. What a target model does with a guess is engine_core's business: it
// draws its own tokens, and a guess that equals them has saved a step.

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace bl {

class SamplerChain;
class StepModel;
class Tokenizer;
struct Sequence;

// What a source keeps about one text from step to step. Goes with the text; the source outlives it.
class DraftMemory {
 public:
  virtual ~DraftMemory() = default;
};

// Guesses of the same confidence are right about equally often, so their acceptance is measured
// together.
constexpr std::size_t kDraftConfidences = 3;

// One text, and what is wanted: the tokens that follow.
struct DraftJob {
  std::span<const std::int32_t> text;  // all of it
  std::int64_t same = 0;               // its first tokens that are as they were the last time
  std::int64_t most = 0;               // tokens, 1 or more
  std::unique_ptr<DraftMemory>* memory = nullptr;  // the source's own; null at first
  std::int64_t reach = 0;                          // Sequence::reach of the target
  std::string_view salt{};                         // nothing is shared with texts of another one

  // How the target will choose. The sampler may be used; its state is left as it was.
  SamplerChain* sampler = nullptr;
  std::int64_t generated = 0;                  // tokens of the answer so far
  std::span<const std::int32_t> end_tokens{};  // the target's, sorted
  bool likeliest = false;                      // no more than the likeliest token is wanted
  // Nothing that only the host knows decides how the target chooses.
  bool chosen_by_model = false;
  // The target's own, all of it computed but the last token; null where there is no room behind it
  // for DraftSource::slots_behind() more.
  Sequence* sequence = nullptr;

  // The outcome: at most `most` tokens, none where there is no guess.
  std::vector<std::int32_t> ids{};
  std::size_t confidence = 0;  // below kDraftConfidences
};

class DraftSource {
 public:
  virtual ~DraftSource() = default;
  // Throws kInvalidArgument where its tokens are not the target's, naming the difference.
  // `tokenizer` is null where the target has none; `vocab`: the width of its logits.
  virtual void check_target(const Tokenizer* tokenizer, std::int64_t vocab) = 0;
  // The model that it guesses for: outlives it, or the last call. Before any propose(). Throws
  // kInvalidArgument where it cannot guess for that one, and what running it throws.
  virtual void attach(StepModel&) {}
  // Slots behind the target's own texts that propose() writes into.
  virtual std::int64_t slots_behind() const { return 0; }
  // Guessing costs next to nothing, so that guesses may be made which are not used.
  virtual bool is_free() const = 0;
  // What one more token for each of a step's texts costs, as far as it is known.
  virtual double round_seconds() const { return 0; }
  // The same of what does not depend on how many tokens are guessed.
  virtual double fixed_seconds() const { return 0; }
  // Tokens of a text that it has not met yet which it must read before the first guess, and what
  // reading one costs, as far as that is known.
  virtual std::int64_t unread(const DraftJob&) const { return 0; }
  virtual double read_seconds() const { return 0; }
  // May throw Error; then nobody gets anything.
  virtual void propose(std::span<DraftJob> jobs) = 0;
};

}  // namespace bl
