#pragma once
// Guidance (cfg_scale): an answer is chosen from two rows of logits, behind its own text and behind
// the same continuation of a negative prompt. The second text is a Choice of its own, so that
// scheduling, pages and the prefix cache treat it like any other; it has no reader and draws
// nothing. Each waits for the other's row, whatever step that comes in. Guesses stand behind both
// texts, where both have a row of the same step for them.

#include <memory>
#include <vector>

#include "engine/choice.h"
#include "engine/row_sampler.h"

namespace bl {

// The second text of an answer that has just been made.
std::unique_ptr<Choice> make_guide(Choice& answer, PagePool& pool);

inline bool is_guided(const Choice& choice) {
  return choice.guide != nullptr || choice.main != nullptr;
}

// Whose tokens come of a choice's rows.
inline Choice& answer_of(Choice& choice) { return choice.main != nullptr ? *choice.main : choice; }

// The places that both texts have rows for, in order, which they have no more then. None until the
// second of the two has come.
std::vector<RowTask> pair_rows(Choice& answer);
// At the end of a step, whose rows will be gone: keeps the one that waits. Those behind guesses do
// not: a guess is taken in its own step or never.
void keep_row(Choice& choice);

}  // namespace bl
