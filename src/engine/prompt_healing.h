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

// Token healing. A prompt that ends within a word, or before a space that belongs to the next
// token, ends in tokens that a text with its continuation would not have. So its last tokens are
// removed and chosen again, among the tokens that agree with the removed text: one whose text goes
// beyond it, or one or several that spell it.
//
// As many tokens are removed, at most 8, as have a text with which some token begins. The last
// token is always removed, unless it is special or stands for a byte; the first one of a prompt
// never is.
class HealedPrompt {
 public:
  // Null where no token can be removed. `pieces` must outlive it; `vocab`: the width of logits.
  static std::shared_ptr<const HealedPrompt> make(const Request& request,
                                                  const Tokenizer& tokenizer,
                                                  const PieceIndex& pieces, std::int64_t vocab);

  std::size_t kept() const { return kept_; }              // tokens of the prompt that stay
  std::size_t removed() const { return pieces_.size(); }  // tokens removed from its end
  // Bytes of the removed text, which the answer's text must leave out.
  std::size_t text_bytes() const { return text_bytes_; }

  // The tokens that may follow once the first `done` removed tokens are spelled again, as the bits
  // of PickArgs::mask.
  std::span<const std::uint32_t> mask(std::size_t done) const { return masks_[done]; }
  // How many removed tokens are spelled again once `id`, which mask(done) allows, has followed.
  std::size_t advance(std::size_t done, std::int32_t id) const;

 private:
  HealedPrompt(const Request& request, const PieceIndex& index, std::size_t removed,
               std::int64_t vocab);
  // The text of the removed tokens [from, to).
  std::string joined(std::size_t from, std::size_t to) const;

  const PieceIndex& index_;
  std::size_t kept_;
  std::vector<std::string> pieces_;
  std::vector<std::vector<std::uint32_t>> masks_;  // [removed][words]
  std::size_t text_bytes_ = 0;
};

// How far an answer has come in choosing the prompt's end again; a plain value.
struct HealingProgress {
  bool active() const { return prompt != nullptr && done < prompt->removed(); }
  void accept(std::int32_t id) {
    done = prompt->advance(done, id);
    ++tokens;
  }
  std::shared_ptr<const HealedPrompt> prompt{};  // null: nothing is healed
  std::size_t done = 0;                          // removed tokens that are spelled again
  std::int64_t tokens = 0;                       // tokens chosen in their place
};

}  // namespace bl
