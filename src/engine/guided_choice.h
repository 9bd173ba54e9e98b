#pragma once
// Guidance (cfg_scale): an answer is chosen from two rows of logits, behind its own text and behind
// the same continuation of a negative prompt. The second text is a Choice of its own, so that
// scheduling, pages and the prefix cache treat it like any other; it has no reader and draws
// nothing. Each waits for the other's row, whatever step that comes in.

#include <memory>

#include "engine/choice.h"
#include "engine/row_sampler.h"

namespace bl {

// The second text of an answer that has just been made.
std::unique_ptr<Choice> make_guide(Choice& answer, PagePool& pool);

inline bool is_guided(const Choice& choice) {
  return choice.guide != nullptr || choice.main != nullptr;
}

// `task` holds a new row of either of the two. True when the other one's is there: then the task
// has both.
bool pair_rows(Choice& choice, RowTask& task);
// At the end of a step, whose rows will be gone: keeps one that waits.
void keep_row(Choice& choice);

}  // namespace bl
