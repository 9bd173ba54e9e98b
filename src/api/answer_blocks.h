#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "toolcall/answer_event.h"

namespace bl::openai {

// A part of an answer: a run of content, a run of reasoning, or a call of a tool.
enum class BlockKind { kContent, kReasoning, kCall };

// One step in writing an answer as a sequence of blocks.
struct BlockStep {
  enum class Kind { kOpen, kText, kClose };
  Kind kind = Kind::kOpen;
  BlockKind block = BlockKind::kContent;
  std::int64_t index = 0;  // of the block in the answer, from 0
  // kText: what follows in the block; kClose: all of the block's text. A call's text is its
  // arguments.
  std::string text{};
  std::string name{};    // of the tool that is called; empty with kText
  std::string id{};      // of the call; empty with kText
  bool complete = true;  // kClose of a call: its arguments are whole JSON

  bool operator==(const BlockStep&) const = default;
};

// Divides an answer into blocks, as Anthropic's messages and OpenAI's responses have it. Blocks
// follow one another: each is closed before the next one is opened.
//
// White space between blocks belongs to none of them: clients refuse a block of content that is
// blank, and some send it back to servers that refuse it.
class AnswerBlocks {
 public:
  std::vector<BlockStep> push(const std::vector<AnswerEvent>& news);
  // The answer is over: closes the open block. An answer without blocks gets an empty block of
  // content, since clients expect at least one.
  std::vector<BlockStep> finish();

  // Whether there are calls, and all of them have whole arguments.
  bool has_complete_calls() const { return calls_ > 0 && calls_ == complete_; }

 private:
  void read(const AnswerEvent& event, std::vector<BlockStep>& steps);
  void add_text(BlockKind block, const std::string& text, std::vector<BlockStep>& steps);
  void open(BlockStep block, std::vector<BlockStep>& steps);
  void close(bool complete, std::vector<BlockStep>& steps);

  bool open_ = false;
  BlockStep current_{};  // the block that is open; its text so far
  std::int64_t next_index_ = 0;
  std::string blank_;  // white space that belongs to a content if more of it follows
  int calls_ = 0;
  int complete_ = 0;
};

}  // namespace bl::openai
