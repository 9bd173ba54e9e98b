#include "engine/prompt_healing.h"

#include <algorithm>

#include "base/check.h"
#include "engine/answer_text.h"
#include "engine/piece_index.h"
#include "engine/request.h"

namespace bl {
namespace {

constexpr std::size_t kMostRemoved = 8;

}  // namespace

std::shared_ptr<const HealedPrompt> HealedPrompt::make(const Request& request,
                                                       const Tokenizer& tokenizer,
                                                       const PieceIndex& pieces,
                                                       std::int64_t vocab) {
  const std::vector<std::int32_t>& ids = request.prompt;
  std::size_t removed = 0;
  std::string text;
  for (std::size_t i = 1; i <= kMostRemoved && i < ids.size(); ++i) {
    const std::string_view piece = pieces.piece(ids[ids.size() - i]);
    if (piece.empty()) break;
    text.insert(0, piece);
    if (!pieces.beginning_with(text).empty()) removed = i;
  }
  if (removed == 0) return nullptr;
  std::shared_ptr<HealedPrompt> healed(new HealedPrompt(request, pieces, removed, vocab));
  // AnswerText gives no text for a character that the prompt leaves incomplete, so that the bytes
  // counted here are only those of whole characters.
  const std::span<const std::int32_t> kept = std::span(ids).first(healed->kept_);
  AnswerText stream(tokenizer, request.special_text(), {},
                    request.continues_prompt ? kept : std::span<const std::int32_t>());
  for (std::size_t i = healed->kept_; i < ids.size(); ++i) {
    healed->text_bytes_ += stream.push(ids[i]).size();
  }
  return healed;
}

HealedPrompt::HealedPrompt(const Request& request, const PieceIndex& index, std::size_t removed,
                           std::int64_t vocab)
    : index_(index), kept_(request.prompt.size() - removed) {
  for (std::size_t i = kept_; i < request.prompt.size(); ++i) {
    pieces_.emplace_back(index.piece(request.prompt[i]));
  }
  const auto words = static_cast<std::size_t>((vocab + 31) / 32);
  for (std::size_t done = 0; done < removed; ++done) {
    std::vector<std::uint32_t>& mask = masks_.emplace_back(words, 0);
    const auto allow = [&](std::int32_t id) {
      mask[static_cast<std::size_t>(id) / 32] |= std::uint32_t{1} << (id % 32);
    };
    for (const std::int32_t id : index.beginning_with(joined(done, removed))) allow(id);
    for (std::size_t to = done + 1; to < removed; ++to) {
      const std::string text = joined(done, to);
      for (const std::int32_t id : index.beginning_with(text)) {
        if (index.piece(id) != text) break;
        allow(id);
      }
    }
  }
}

std::string HealedPrompt::joined(std::size_t from, std::size_t to) const {
  std::string text;
  for (std::size_t i = from; i < to; ++i) text += pieces_[i];
  return text;
}

std::size_t HealedPrompt::advance(std::size_t done, std::int32_t id) const {
  const std::string_view piece = index_.piece(id);
  std::string text;
  for (std::size_t to = done; to < pieces_.size(); ++to) {
    text += pieces_[to];
    if (piece == text) return to + 1;
  }
  BL_CHECK(piece.starts_with(text));
  return pieces_.size();
}

}  // namespace bl
