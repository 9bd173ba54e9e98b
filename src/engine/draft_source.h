#pragma once
// Sources of guesses for how texts go on (speculative decoding). The engine draws the target
// model's own tokens; a guess that equals one of them has saved a step.

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

// What a source keeps about one text from step to step. It is destroyed with the text; the source
// outlives it.
class DraftMemory {
 public:
  virtual ~DraftMemory() = default;
};

// Guesses have one of this many confidences. Those of equal confidence are right about equally
// often, so their acceptance is measured together.
constexpr std::size_t kDraftConfidences = 3;

// A text for which guesses are wanted.
struct DraftJob {
  std::span<const std::int32_t> text;  // the whole text
  std::int64_t same = 0;               // its first tokens that have not changed since the last time
  std::int64_t most = 0;               // guesses that are wanted at most; 1 or more
  std::unique_ptr<DraftMemory>* memory = nullptr;  // the source's memory of the text; null at first
  std::int64_t reach = 0;                          // the target's Sequence::reach
  std::string_view salt{};                         // nothing is shared between unequal salts

  // How the target will choose. The source may use the sampler, and restores its state.
  SamplerChain* sampler = nullptr;
  std::int64_t generated = 0;                  // tokens of the answer so far
  std::uint32_t rewinds = 0;                   // PickArgs::rewinds
  std::span<const std::int32_t> end_tokens{};  // the target's, sorted
  bool likeliest = false;                      // the target takes the likeliest token
  // The target's model chooses the token itself: the parameters and the text alone decide.
  bool chosen_by_model = false;
  // The target's own sequence, of which all but the last token is computed; null where there is no
  // room behind it for DraftSource::slots_behind() more tokens.
  Sequence* sequence = nullptr;

  // The result: at most `most` tokens; none where there is no guess.
  std::vector<std::int32_t> ids{};
  std::size_t confidence = 0;  // below kDraftConfidences
};

class DraftSource {
 public:
  virtual ~DraftSource() = default;
  // Throws kInvalidArgument where the source's tokens are not the target's, and names the
  // difference. `tokenizer`: the target's; null where it has none. `vocab`: the width of its
  // logits.
  virtual void check_target(const Tokenizer* tokenizer, std::int64_t vocab) = 0;
  // Sets the model that it guesses for, which must live until the last call. Called before any
  // propose(). Throws kInvalidArgument where it cannot guess for that model, and what running the
  // model throws.
  virtual void attach(StepModel&) {}
  // Slots behind the target's sequences that propose() writes into.
  virtual std::int64_t slots_behind() const { return 0; }
  // Whether guessing costs next to nothing, so that guesses may be made without being used.
  virtual bool is_free() const = 0;
  // Seconds for one more guess for each text of a step; 0: not known yet.
  virtual double round_seconds() const { return 0; }
  // Seconds for guessing in a step, whatever the number of guesses; 0: not known yet.
  virtual double fixed_seconds() const { return 0; }
  // How many tokens of a new text it must read before its first guess, and the seconds for reading
  // one; 0: not known yet.
  virtual std::int64_t unread(const DraftJob&) const { return 0; }
  virtual double read_seconds() const { return 0; }
  // Sets the results of all jobs. May throw Error; then no job has guesses.
  virtual void propose(std::span<DraftJob> jobs) = 0;
};

}  // namespace bl
