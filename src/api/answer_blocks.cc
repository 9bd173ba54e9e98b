#include "api/answer_blocks.h"

#include <utility>

namespace bl::openai {

std::vector<BlockStep> AnswerBlocks::push(const std::vector<AnswerEvent>& news) {
  std::vector<BlockStep> steps;
  for (const AnswerEvent& event : news) read(event, steps);
  return steps;
}

std::vector<BlockStep> AnswerBlocks::finish() {
  std::vector<BlockStep> steps;
  if (next_index_ == 0) open({.block = BlockKind::kContent}, steps);
  if (open_) close(current_.block != BlockKind::kCall, steps);
  return steps;
}

void AnswerBlocks::read(const AnswerEvent& event, std::vector<BlockStep>& steps) {
  switch (event.kind) {
    case AnswerEvent::Kind::kContent:
      return add_text(BlockKind::kContent, event.text, steps);
    case AnswerEvent::Kind::kReasoning:
      return add_text(BlockKind::kReasoning, event.text, steps);
    case AnswerEvent::Kind::kCallBegin:
      ++calls_;
      return open({.block = BlockKind::kCall, .name = event.name, .id = event.id}, steps);
    case AnswerEvent::Kind::kArguments:
      return add_text(BlockKind::kCall, event.text, steps);
    case AnswerEvent::Kind::kCallEnd:
      if (event.complete) ++complete_;
      return close(event.complete, steps);
  }
}

void AnswerBlocks::add_text(BlockKind block, const std::string& text,
                            std::vector<BlockStep>& steps) {
  if (text.empty()) return;
  std::string all = text;
  if (!open_ || current_.block != block) {
    if (block == BlockKind::kContent) {
      all = std::exchange(blank_, {}) + text;
      if (all.find_first_not_of(" \t\r\n") == std::string::npos) {
        blank_ = std::move(all);
        return;
      }
    }
    open({.block = block}, steps);
  }
  current_.text += all;
  steps.push_back({.kind = BlockStep::Kind::kText,
                   .block = block,
                   .index = current_.index,
                   .text = std::move(all)});
}

void AnswerBlocks::open(BlockStep block, std::vector<BlockStep>& steps) {
  if (open_) close(current_.block != BlockKind::kCall, steps);
  blank_.clear();
  block.kind = BlockStep::Kind::kOpen;
  block.index = next_index_++;
  open_ = true;
  current_ = block;
  steps.push_back(std::move(block));
}

void AnswerBlocks::close(bool complete, std::vector<BlockStep>& steps) {
  if (!std::exchange(open_, false)) return;
  current_.kind = BlockStep::Kind::kClose;
  current_.complete = complete;
  steps.push_back(std::move(current_));
  current_ = {};
}

}  // namespace bl::openai
