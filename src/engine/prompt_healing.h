#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace bl {

class PieceIndex;
class Tokenizer;
struct Request;

// Token healing. A prompt that ends within a word or before a space that belongs to the next token
// ends in tokens that its own continuation would not have. So its last tokens are taken off and
// chosen again, among those whose text begins with theirs: one that goes beyond it, or the same
// ones in fewer steps or as they were.
//
// How many are taken off: so many, at most 8, that some token begins with the text of all of them;
// always the last one, unless it is special or stands for a byte; never the first of the prompt.
class HealedPrompt {
 public:
  // Null where nothing can be healed.
  static std::shared_ptr<const HealedPrompt> make(const Request& request,
                                                  const Tokenizer& tokenizer,
                                                  const PieceIndex& pieces, std::int64_t vocab);

  std::size_t kept() const { return kept_; }              // tokens of the prompt that stay
  std::size_t removed() const { return pieces_.size(); }  // tokens taken off
  std::size_t text_bytes() const { return text_bytes_; }  // of text that the answer leaves out

  // The tokens that may follow when the first `done` of those taken off are there again: bits.
  std::span<const std::uint32_t> mask(std::size_t done) const { return masks_[done]; }
  // How many are there again with `id`, which the mask allows.
  std::size_t advance(std::size_t done, std::int32_t id) const;

 private:
  HealedPrompt(const Request& request, const PieceIndex& index, std::size_t removed,
               std::int64_t vocab);
  // Text of the tokens [from, to) that were taken off.
  std::string joined(std::size_t from, std::size_t to) const;

  const PieceIndex& index_;
  std::size_t kept_;
  std::vector<std::string> pieces_;
  std::vector<std::vector<std::uint32_t>> masks_;  // [removed][words]
  std::size_t text_bytes_ = 0;
};

// How far an answer has come in choosing the prompt's end again; a value.
struct HealingProgress {
  bool active() const { return prompt != nullptr && done < prompt->removed(); }
  void accept(std::int32_t id) {
    done = prompt->advance(done, id);
    ++tokens;
  }
  std::shared_ptr<const HealedPrompt> prompt{};
  std::size_t done = 0;
  std::int64_t tokens = 0;  // that stand for those taken off
};

}  // namespace bl
